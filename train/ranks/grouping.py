"""Which gradients travel together: colours of the backward graph (Laanait et al. 2019), pure, without Horovod.

A group is reduced when its last gradient is ready. Groups are therefore made, and numbered, by readiness: the order in
which the backward graph can finish the gradients. That is nearly the variables' order reversed, but not where skips
let a layer's gradient wait for another branch.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from namsa.errors import InputError
from train.experiment.sections import Reduction

Tensor = Any


def groups(gradients: Sequence[Tensor], paths: Sequence[str], config: Reduction) -> list[list[int]]:
    """Indices of `gradients`, of variables with these `paths`, by group; each once, first to be ready first.

    To be called where the tf.function is traced that computes the gradients. Raises InputError as `colours` does.
    """
    order = readiness(gradients)
    if config.grouping == "bytes" and config.groups == 0:
        return [[index] for index in order]
    if config.grouping == "bytes":
        return equal_runs([gradient.shape.num_elements() for gradient in gradients], order, config.groups)
    return by_colour(colours(paths, config), order)


def readiness(tensors: Sequence[Tensor]) -> list[int]:
    """Indices of a tf.function's `tensors` by the longest chain of operations before each, the shortest first.

    Equal ones stand in the order in which their operations were made, which for a tape's gradients is backward.
    """
    depth: dict[Any, int] = {}
    made: dict[Any, int] = {}
    for number, operation in enumerate(tensors[0].graph.get_operations()):  # made after what they take
        before = [tensor.op for tensor in operation.inputs] + list(operation.control_inputs)
        depth[operation] = 1 + max((depth[other] for other in before), default=0)
        made[operation] = number
    return sorted(range(len(tensors)), key=lambda index: (depth[tensors[index].op], made[tensors[index].op]))


def equal_runs(sizes: Sequence[int], order: Sequence[int], number: int) -> list[list[int]]:
    """`order`, a permutation of the indices of `sizes`, cut into at most `number` runs of about equal sizes."""
    runs: list[list[int]] = [[] for _ in range(number)]
    whole, before = sum(sizes), 0
    for index in order:
        middle = before + sizes[index] / 2
        runs[min(number - 1, int(number * middle / whole))].append(index)
        before += sizes[index]
    return [run for run in runs if run]


def by_colour(colour: Sequence[str], order: Sequence[int]) -> list[list[int]]:
    """The indices of each colour in `order`; the colour that is complete first comes first."""
    found: dict[str, list[int]] = {}
    for index in order:
        found.setdefault(colour[index], []).append(index)
    place = {index: number for number, index in enumerate(order)}
    return sorted(found.values(), key=lambda group: place[group[-1]])


def colours(paths: Sequence[str], config: Reduction) -> list[str]:
    """The colour of each variable: its layer, its block or transition, or its group in the configuration's list.

    A path is `down1_conv2/kernel`: layer `down1_conv2`, block `down1`. Raises InputError for a variable that the list
    has in no group or in two, and for a group without a variable.
    """
    layers = [path.rpartition("/")[0] for path in paths]
    if config.grouping == "layer":
        return layers
    if config.grouping == "block":
        return [layer.rpartition("/")[2].partition("_")[0] for layer in layers]
    if config.grouping == "list":
        return _listed(paths, config.group_list)
    return [""] * len(paths)


def _listed(paths: Sequence[str], patterns: Sequence[Sequence[str]]) -> list[str]:
    key, found = "training.reduction.group_list", []
    for path in paths:
        fitting = [n for n, group in enumerate(patterns) if any(fnmatchcase(path, pattern) for pattern in group)]
        if len(fitting) != 1:
            place = f"in groups {', '.join(map(str, fitting))}" if fitting else "in no group"
            raise InputError(f"{key} has the variable {path} {place}; it must be in exactly one")
        found.append(str(fitting[0]))
    for number, group in enumerate(patterns):
        if str(number) not in found:
            raise InputError(f"{key}: group {number} ({', '.join(group)}) has no variable; one of them is {paths[0]}")
    return found
