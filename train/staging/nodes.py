"""The nodes of a job: a rank's place on them, and which of them lack files of a dataset."""

import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from namsa.base.errors import InputError
from namsa.base.files import system_errors

from ..ranks.interface import Ranks
from .pieces import Item, Nodes


@dataclass(frozen=True)
class Place:
    """A rank's place on the nodes."""

    rank: int  # number of the rank
    nodes: Nodes  # the ranks of each node
    node: int  # number of the rank's node

    @classmethod
    def of(cls, ranks: Ranks) -> "Place":
        """Returns the place of this rank. Collective."""
        rank = ranks.rank()
        nodes = ranks.nodes()
        for node, members in enumerate(nodes):
            if rank in members:
                return cls(rank, nodes, node)
        raise ValueError(f"rank {rank} is on none of the nodes {nodes}")

    @property
    def members(self) -> list[int]:
        """The ranks of the node."""
        return self.nodes[self.node]

    @property
    def leads(self) -> bool:
        """Whether the rank is the first of its node."""
        return self.rank == self.members[0]


def _looked_for(
    placement: Sequence[tuple[int, ...]], place: Place, lookers: Sequence[int]
) -> list[int]:
    """Returns the indices of the items of this node that this rank looks for."""
    if place.rank not in lookers:
        return []
    of_node = [index for index, nodes in enumerate(placement) if place.node in nodes]
    return of_node[lookers.index(place.rank) :: len(lookers)]


def needing_nodes(
    items: Sequence[Item],  # what may move
    placement: Sequence[tuple[int, ...]],
    target: Path,  # a folder of this node's own
    ranks: Ranks,
    lookers: Sequence[int],  # the ranks of this node that look for items, each for others
    is_present: Callable[[Item], bool],  # whether an item is in `target`
) -> list[tuple[int, ...]]:
    """Returns for each item the nodes that should have it and do not. All ranks must call this
    function.

    Raises:
        InputError: If nodes share `target`, or as `is_present` raises it.
        WorkError: If `target` cannot be written.
    """
    place = Place.of(ranks)
    checked = _looked_for(placement, place, lookers)
    token = ranks.gather_json(uuid.uuid4().hex if place.rank == 0 else "")[0]
    with ExitStack() as stack:
        with ranks.local_work():
            if place.leads:
                mark = _mark_folder(target, token, place.node)
                stack.callback(mark.unlink, missing_ok=True)
        with ranks.local_work():
            _check_own_folder(target, token)
            missing = [index for index in checked if not is_present(items[index])]
        missing_of_ranks = ranks.gather_json(_bits_of(missing))
    lacking: list[set[int]] = [set() for _ in items]  # the nodes that lack each item
    for node, members in enumerate(place.nodes):
        for rank in members:
            for index in _set_bits(missing_of_ranks[rank]):
                lacking[index].add(node)
    needing = []
    for nodes, nodes_without in zip(placement, lacking, strict=True):
        needing.append(tuple(node for node in nodes if node in nodes_without))
    return needing


def _mark_folder(target: Path, token: str, node: int) -> Path:
    """Writes a file that another node sees only if the two share the folder, and returns it."""
    mark = target / f".staging-{token}-{node}"
    with system_errors(f"cannot write into {target}"):
        target.mkdir(parents=True, exist_ok=True)
        mark.touch()
    return mark


def _check_own_folder(target: Path, token: str) -> None:
    """Raises InputError if several nodes have marked a folder."""
    marks = list(target.glob(f".staging-{token}-*"))
    if len(marks) > 1:
        raise InputError(
            f"{target} is one folder for {len(marks)} nodes: stage into storage of each node's own"
        )


def _bits_of(indices: Sequence[int]) -> str:
    """Returns a set of indices as a hexadecimal number, whose bits are set: a short message."""
    bits = 0
    for index in indices:
        bits |= 1 << index
    return format(bits, "x")


def _set_bits(digits: str) -> list[int]:
    """Returns the indices of `_bits_of`."""
    bits = int(digits, 16)
    return [index for index in range(bits.bit_length()) if bits >> index & 1]


# ---- The node's folder
# ----------------------------------------------------------------------------------------------
