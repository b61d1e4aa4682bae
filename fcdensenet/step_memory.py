"""The memory that TensorFlow's graph of a training step takes, from the shapes of the layers alone.

The forward and the backward pass are gone through layer by layer. A map is there from the layer
that makes it to the last that needs it, forward or backward; an operation writes over its input
where no other needs that. Gradients of a map that several layers have used are all there until they
are added, and those of weights until the update. Beside them is the workspace of the operation that
runs.

The rules are those of TensorFlow 2.18. `scripts/bench/step_memory.py` compares the sums with what
its allocator counts.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from math import prod
from typing import NamedTuple

from fcdensenet.layer_counts import BYTES_PER_VALUE, LayerCount, NetworkCount

# Layers that write over their input, if no other layer needs it; and those whose gradient is
# written over the output's.
_IN_PLACE = {"relu", "leaky relu", "sigmoid", "scale", "flatten", "unflatten", "add"}
_BACK_IN_PLACE = {*_IN_PLACE, "dropout"}
_CONVOLUTIONS = {"conv", "conv up", "dense"}
_COLUMN_BYTES = 30 * 2**20  # that a convolution fills with columns, of as many images as it takes


class StepPeak(NamedTuple):
    """The memory at the moment of a step at which it is largest, bytes."""

    maps: int  # what the forward pass has kept, and gradients of maps
    gradients: int  # of weights, float32
    workspace: int  # of the operation that runs


def step_peak(
    network: NetworkCount,
    dtype: str,
    images: int,
    columns: bool = False,
    scaled: bool = True,
    penalised: bool = True,
) -> StepPeak:
    """Returns the largest memory in a training step, with the batch's inputs, without weights and
    moments.

    Args:
        network: The layers, for one image.
        dtype: "float16" or "float32", of maps and their gradients.
        images: Images of the network in a batch.
        columns: Whether convolutions are products with columns of pixels, as TensorFlow's of
            float16 on processors without arithmetic for it. Others have copies of what they read
            and write, in oneDNN's or cuDNN's order.
        scaled: Whether the update scales gradients, and so has each of them twice.
        penalised: Whether weights are penalised. The gradients of a penalty do not wait for the
            backward pass.
    """
    step = _Step(network.layers, BYTES_PER_VALUE[dtype], images, columns)
    gradients = network.gradient_bytes("float32")
    step.forward()
    step.backward(gradients if penalised else 0)
    update = StepPeak(0, (1 + scaled) * gradients, 0)
    return max(step.most, update, key=sum)


class _Step:
    """Goes through a step, and remembers the moment at which most is held."""

    def __init__(
        self, layers: tuple[LayerCount, ...], value_bytes: int, images: int, columns: bool
    ) -> None:
        self.layers = layers
        self.value_bytes = value_bytes
        self.images = images
        self.columns = columns
        self.by_name = {layer.name: layer for layer in layers}
        self.users: Counter[str] = Counter()  # layers that take the output of one
        self.needed: Counter[str] = Counter()  # gradients that need it
        for layer in layers:
            self.users.update(layer.inputs)
            self.needed.update(_needed_backward(layer))
        self.maps = 0
        self.gradients = 0
        self.most = StepPeak(0, 0, 0)

    def size(self, name: str) -> int:
        """Returns the size of a layer's output, bytes."""
        layer = self.by_name[name]
        values = self.images * prod(layer.output_shape)
        if layer.kind == "output":
            return values * BYTES_PER_VALUE["float32"]
        return values * self.value_bytes

    def take(self, size: int, workspace: int = 0) -> None:
        """Holds more memory of maps, while an operation has its workspace."""
        self.maps += size
        self.most = max(self.most, StepPeak(self.maps, self.gradients, workspace), key=sum)

    def give(self, sizes: Iterable[int]) -> None:
        """Frees memory of maps."""
        self.maps -= sum(sizes)

    def forward(self) -> None:
        left = Counter(self.users)
        for layer in self.layers:
            overwritten = self._overwritten(layer)
            size = 0 if overwritten else self.size(layer.name)
            self.take(size, self.workspace(layer, backward=False))
            self.take(self.images * layer.extra_bytes)
            left.subtract(layer.inputs)
            for name in set(layer.inputs):
                if not left[name] and not self.needed[name] and name != overwritten:
                    self.give([self.size(name)])

    def _overwritten(self, layer: LayerCount) -> str | None:
        """Returns the input in whose memory the output of a layer lies, if there is one."""
        if layer.kind not in _IN_PLACE:
            return None
        for name in layer.inputs:
            if self.users[name] == 1 and not self.needed[name]:
                return name
        return None

    def backward(self, early: int) -> None:
        self.gradients = early
        of_maps: defaultdict[str, list[int]] = defaultdict(list)
        last = self.layers[-1].name
        of_maps[last].append(self.size(last))
        self.take(self.size(last))
        for layer in reversed(self.layers):
            sizes = of_maps.pop(layer.name, [])  # of gradients by the layer's output
            if not sizes:
                continue
            self.give(sizes[1:])  # they are added to the first
            if not early:
                self.gradients += BYTES_PER_VALUE["float32"] * layer.trainable_parameters
            inputs = [name for name in layer.inputs if self.by_name[name].kind != "input"]
            for name in inputs:
                of_maps[name].append(self.size(name))
            written_over = 0
            if layer.kind in _BACK_IN_PLACE:
                written_over = sizes[0]
            new = sum(map(self.size, inputs)) - written_over
            self.take(new, self.workspace(layer, backward=True))
            self.give([sizes[0] - written_over, self.images * layer.extra_bytes])
            for name in _needed_backward(layer):
                self.needed[name] -= 1
                if not self.needed[name]:
                    self.give([self.size(name)])

    def workspace(self, layer: LayerCount, backward: bool) -> int:
        """Returns the memory that an operation takes for itself."""
        values = self.size(layer.name)
        # it is computed in float32
        if layer.kind == "norm" and self.value_bytes < BYTES_PER_VALUE["float32"]:
            return 2 * values
        if layer.kind == "dropout" and not backward:  # random numbers
            return values
        if layer.kind not in _CONVOLUTIONS:
            return 0
        if not self.columns or layer.kind == "dense":
            return values + sum(map(self.size, layer.inputs))
        if backward:  # gradients by input and by weights, at once
            return 2 * self._column_bytes(layer)
        if layer.kind == "conv":
            return 0
        return self._column_bytes(layer)

    def _column_bytes(self, layer: LayerCount) -> int:
        """Returns the memory of the columns of whole images, which fill about `_COLUMN_BYTES`
        whatever the batch.
        """
        # of a transposed convolution, that of which it is the gradient
        *extent, inner, outer = layer.kernel_shape
        grid = self.by_name[layer.inputs[0]] if layer.kind == "conv up" else layer
        pixels = prod(grid.output_shape) // outer
        taps = prod(extent) * inner
        image_values = pixels * taps + pixels * outer + taps * outer
        images = -(-_COLUMN_BYTES // self.value_bytes // image_values)
        return images * pixels * taps * self.value_bytes


def _needed_backward(layer: LayerCount) -> tuple[str, ...]:
    """Returns the names of the layers whose output the gradient of a layer needs."""
    if layer.kind in _CONVOLUTIONS or layer.kind == "leaky relu":
        return layer.inputs
    if layer.kind in {"relu", "sigmoid"}:
        return (layer.name,)
    if layer.kind == "max pool":
        return (*layer.inputs, layer.name)
    if layer.kind == "sample":
        return layer.inputs[1:]
    return ()
