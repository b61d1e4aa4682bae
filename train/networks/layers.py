"""The layers that the networks of this package are made of, beside those of FC-DenseNet.

A network is written once over them, as in `fcdensenet.blocks`: with Keras tensors it builds the model
(`train.networks.keras_layers`), with bare shapes it counts (`train.networks.shape_layers`).

All layers but `mean`, `flatten` and what follows them are local: a part of a map follows from the same part of the
input and a border around it. That is what the division of a sample over ranks needs. Behind `gathered` with `None` the
maps are those of the whole sample on all ranks.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

from fcdensenet.blocks import Layers, Tensor

Padding = Literal["same", "valid"]


class NetworkLayers(Layers[Tensor], Protocol[Tensor]):
    """The layers of `fcdensenet.blocks`, and those of other networks. "2-D" takes a grid of two axes alone."""

    def pad(self, x: Tensor, width: int, name: str) -> Tensor:
        """Zeros around the grid, `width` on each side. 2-D."""
        ...

    def valid_conv(self, x: Tensor, filters: int, kernel: int, stride: int, name: str, bias: bool = True) -> Tensor:
        """A convolution without padding: an extent n becomes ⌊(n − kernel)/stride⌋ + 1."""
        ...

    def max_pool(self, x: Tensor, size: int, stride: int, padding: Padding, name: str) -> Tensor:
        """Maxima over windows of `size` pixels a side. 2-D."""
        ...

    def norm(self, x: Tensor, name: str, epsilon: float = 1e-3) -> Tensor:
        """Batch normalisation; `epsilon` is added to the variance."""
        ...

    def leaky_relu(self, x: Tensor, slope: float, name: str) -> Tensor:
        """Rectification with `slope` for negative values."""
        ...

    def sigmoid(self, x: Tensor, name: str) -> Tensor:
        """The logistic function."""
        ...

    def scale(self, x: Tensor, factor: float, name: str) -> Tensor:
        """Multiplication by a constant."""
        ...

    def add(self, parts: Sequence[Tensor], name: str) -> Tensor:
        """Sum of maps."""
        ...

    def mean(self, x: Tensor, name: str) -> Tensor:
        """Mean over the grid, which remains with extents of 1. 2-D."""
        ...

    def spread(self, x: Tensor, like: Tensor, name: str) -> Tensor:
        """Values of a grid of one pixel at every pixel of the grid of `like`. 2-D."""
        ...

    def gathered(self, x: Tensor, multiple: int | None, name: str) -> "tuple[NetworkLayers[Tensor], Tensor]":
        """Maps of which a part has a multiple of some rows, or with `None` all; and the layers for such maps.

        Of a whole sample, or where a part has them, these are the layers and maps themselves.
        """
        ...

    def flatten(self, x: Tensor, name: str) -> Tensor:
        """All values on one axis, in the order of channels last for each order of axes."""
        ...

    def unflatten(self, x: Tensor, like: Tensor, name: str) -> Tensor:
        """The values of one axis, in the order of channels last, as maps of the shape of `like`."""
        ...

    def dense(self, x: Tensor, units: int, name: str) -> Tensor:
        """A dense layer with bias, on the values of one axis."""
        ...

    def sample(self, mean: Tensor, log_variance: Tensor, name: str) -> Tensor:
        """A draw from normal distributions in training; their mean otherwise. In float32."""
        ...
