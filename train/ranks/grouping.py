"""Groups of gradients that are reduced together, found from the backward graph without Horovod.

Laanait et al. (2019) call such a group a colour of the graph. A group is reduced when its last
gradient is ready. Groups are therefore made, and numbered, in the order in which the backward graph
can finish the gradients. This is nearly the reverse order of the variables, except where a skip
connection makes a layer's gradient wait for another branch.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from namsa.base.arrays import Tensor
from namsa.base.errors import InputError

from ..experiment.exchange import GradientGroups


def groups(
    gradients: Sequence[Tensor], paths: Sequence[str], config: GradientGroups
) -> list[list[int]]:
    """Groups gradients. Call it where the tf.function that computes the gradients is traced.

    Args:
        gradients: Symbolic tensors of the backward graph.
        paths: Path of each gradient's variable.

    Returns:
        Indices of `gradients` in each group, each index once. The group that is ready first comes
        first.

    Raises:
        InputError: As `colours`.
    """
    order = readiness(gradients)
    if config.grouping == "bytes" and config.groups == 0:
        return [[index] for index in order]
    if config.grouping == "bytes":
        sizes = [gradient.shape.num_elements() for gradient in gradients]
        return equal_runs(sizes, order, config.groups)
    return by_colour(colours(paths, config), order)


def readiness(tensors: Sequence[Tensor]) -> list[int]:
    """Sorts symbolic tensors of one graph by the length of the longest chain of operations before
    each.

    Tensors with chains of equal length are in the order in which their operations were created,
    which is backward for a tape's gradients.

    Returns:
        Their indices, the shortest chain first.
    """
    depth: dict[object, int] = {}
    created: dict[object, int] = {}
    # The inputs of an operation are created before it.
    for position, operation in enumerate(tensors[0].graph.get_operations()):
        depth[operation] = 1
        created[operation] = position
        for tensor in operation.inputs:
            depth[operation] = max(depth[operation], 1 + depth[tensor.op])
        for other in operation.control_inputs:
            depth[operation] = max(depth[operation], 1 + depth[other])
    return sorted(
        range(len(tensors)),
        key=lambda index: (depth[tensors[index].op], created[tensors[index].op]),
    )


def equal_runs(sizes: Sequence[int], order: Sequence[int], most: int) -> list[list[int]]:
    """Cuts `order`, a permutation of the indices of `sizes`, into at most `most` runs of about
    equal total size.
    """
    runs: list[list[int]] = [[] for _ in range(most)]
    total = sum(sizes)
    bytes_before = 0
    for index in order:
        middle = bytes_before + sizes[index] / 2
        runs[min(most - 1, int(most * middle / total))].append(index)
        bytes_before += sizes[index]
    return [run for run in runs if run]


def by_colour(colour: Sequence[str], order: Sequence[int]) -> list[list[int]]:
    """Returns the indices of each colour in `order`. The colour that is complete first comes
    first.
    """
    members: dict[str, list[int]] = {}
    for index in order:
        members.setdefault(colour[index], []).append(index)
    position = {index: place for place, index in enumerate(order)}
    return sorted(members.values(), key=lambda group: position[group[-1]])


def colours(paths: Sequence[str], config: GradientGroups) -> list[str]:
    """Assigns a colour to each variable: its layer, its block or transition, or its group in the
    configured list.

    Args:
        paths: Paths of variables, as `down1_conv2/kernel`: layer `down1_conv2`, block `down1`.

    Returns:
        The colour of each variable.

    Raises:
        InputError: If a variable is in no group of the list or in two, or a group has no variable.
    """
    layers = [path.rpartition("/")[0] for path in paths]
    if config.grouping == "layer":
        return layers
    if config.grouping == "block":
        return [layer.rpartition("/")[2].partition("_")[0] for layer in layers]
    if config.grouping == "list":
        return _listed_colours(paths, config.group_list)
    return [""] * len(paths)


def _listed_colours(paths: Sequence[str], patterns: Sequence[Sequence[str]]) -> list[str]:
    """Returns the number of each variable's group in training.exchange.group_list, as text."""
    key = "training.exchange.group_list"
    numbers = []
    for path in paths:
        fitting = []
        for index, group in enumerate(patterns):
            if any(fnmatchcase(path, pattern) for pattern in group):
                fitting.append(index)
        if len(fitting) != 1:
            place = "in no group"
            if fitting:
                place = f"in groups {', '.join(map(str, fitting))}"
            raise InputError(f"{key} has the variable {path} {place}; it must be in exactly one")
        numbers.append(str(fitting[0]))
    for index, group in enumerate(patterns):
        if str(index) not in numbers:
            raise InputError(
                f"{key}: group {index} ({', '.join(group)}) has no variable; one of them is "
                f"{paths[0]}"
            )
    return numbers
