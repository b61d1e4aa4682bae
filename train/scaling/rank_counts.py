"""Numbers of ranks and of parts of a sample, as the command's arguments give them."""

from namsa.base.errors import InputError

from .strategy import Machine


def rank_counts(text: str, machine: Machine) -> list[int]:
    """Returns the rank counts of a `--ranks` argument.

    Args:
        text: "1..N" for powers of two within a node, then whole nodes, doubling up to N; or numbers
            separated by commas.

    Raises:
        InputError: If `text` is neither.
    """
    try:
        if ".." in text:
            least, most = map(int, text.split(".."))
            counts = _doubling(least, most, machine.ranks_per_node)
        else:
            counts = [int(count) for count in text.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < 1:
        raise InputError(
            f"--ranks {text}: write 1..27600, or numbers from 1 on separated by commas"
        )
    return counts


def _doubling(least: int, most: int, ranks_per_node: int) -> list[int]:
    """Returns powers of two within a node, then whole nodes, doubling; from `least` up to `most`.

    There are none if `least` is not between 1 and `most`.
    """
    if not 1 <= least <= most:
        return []
    counts = []
    for start, stop in ((1, ranks_per_node), (ranks_per_node, most)):
        ranks = start
        while ranks < stop:
            if least <= ranks < most:
                counts.append(ranks)
            ranks *= 2
    return [*counts, most]


def way_counts(text: str) -> list[int]:
    """Returns the numbers of a `--ways` argument. Raises InputError if it is not numbers from 1
    on.
    """
    try:
        numbers = [int(count) for count in text.split(",")]
    except ValueError:
        numbers = [0]
    if min(numbers) < 1:
        raise InputError(f"--ways {text}: write numbers from 1 on separated by commas, as 1,2,4")
    return numbers
