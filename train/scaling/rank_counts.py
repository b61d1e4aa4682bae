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
            first, last = map(int, text.split(".."))
            counts = _doubling(first, last, machine.ranks_per_node)
        else:
            counts = [int(number) for number in text.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < 1:
        raise InputError(
            f"--ranks {text}: write 1..27600, or numbers from 1 on separated by commas"
        )
    return counts


def _doubling(first: int, last: int, ranks_per_node: int) -> list[int]:
    """Returns powers of two within a node, then whole nodes, doubling; from `first` up to `last`.

    There are none if `first` is not between 1 and `last`.
    """
    if not 1 <= first <= last:
        return []
    counts = []
    for start, stop in ((1, ranks_per_node), (ranks_per_node, last)):
        ranks = start
        while ranks < stop:
            if first <= ranks < last:
                counts.append(ranks)
            ranks *= 2
    return [*counts, last]


def way_counts(text: str) -> list[int]:
    """Returns the numbers of a `--ways` argument. Raises InputError if it is not numbers from 1
    on.
    """
    try:
        numbers = [int(number) for number in text.split(",")]
    except ValueError:
        numbers = [0]
    if min(numbers) < 1:
        raise InputError(f"--ways {text}: write numbers from 1 on separated by commas, as 1,2,4")
    return numbers
