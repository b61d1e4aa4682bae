"""From a section `network` to its kind, its model and its count."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Protocol, Union, get_args

from pydantic import Discriminator, Tag

import fcdensenet
from fcdensenet import NetworkConfig
from fcdensenet.count import counted_part
from fcdensenet.layer_counts import NetworkCount
from fcdensenet.split import FurtherAxes, PartSplit, further_axes, part_shape, shape_of_part
from namsa.base.errors import InputError
from namsa.base.text import shorten
from namsa.config.loading import validate

from ..execution import backend
from .cosmoflow import CosmoFlowConfig
from .cvae import CVAEConfig
from .deeplabv3plus import DeepLabV3PlusConfig
from .feedforward import AlexNetConfig, LeNetConfig, VGGConfig
from .function import FunctionNetworkConfig
from .layers import ShapeNetworkLayers
from .resnet50 import ResNet50Config
from .unet3d import UNet3DConfig

if TYPE_CHECKING:
    import keras

Network = (
    NetworkConfig
    | ResNet50Config
    | CVAEConfig
    | DeepLabV3PlusConfig
    | CosmoFlowConfig
    | UNet3DConfig
    | LeNetConfig
    | AlexNetConfig
    | VGGConfig
    | FunctionNetworkConfig
)

KINDS: dict[str, type[Network]] = {
    section.model_fields["kind"].default: section for section in get_args(Network)
}

# Kinds whose layers are local, but for dense ones at the end.
DIVIDED = ("fcdensenet", "deeplabv3plus", "cosmoflow", "unet3d")
# Of these, kinds whose small maps are gathered, so that they are divided along one axis alone.
ONE_AXIS = ("cosmoflow",)


class DivisionSettings(Protocol):
    """Division of samples, as in the section training.split."""

    @property
    def ways(self) -> int:
        """Number of parts along the first divided axis."""
        ...

    def axis_index(self, input_shape: Sequence[int]) -> int:
        """Returns the first divided axis as an index of the network's grid, from 0."""
        ...

    def further_axes(self, input_shape: Sequence[int]) -> FurtherAxes:
        """Returns the further divided axes, with the parts along each."""
        ...


def _kind(section: object) -> object:
    """Returns the kind of a section, which is an FC-DenseNet's if it says none."""
    if isinstance(section, Mapping):
        return section.get("kind", "fcdensenet")
    return getattr(section, "kind", None)


# The section `network` of a configuration, of the class that its `kind` names.
if TYPE_CHECKING:
    NetworkSections = Network
else:
    NetworkSections = Annotated[
        Union[tuple(Annotated[section, Tag(kind)] for kind, section in KINDS.items())],  # noqa: UP007 - of a tuple
        Discriminator(
            _kind,
            custom_error_type="network_kind",
            custom_error_message=f"write a section whose kind is one of {', '.join(KINDS)}",
        ),
    ]


def read_network(tree: Mapping[str, object], source: str) -> Network:
    """Returns the section `network` of a configuration, of the class that its `kind` names.

    Args:
        tree: The configuration; only its section `network` is read. Without `kind` it is an
            FC-DenseNet.
        source: Where the configuration comes from, for the error message.

    Raises:
        InputError: If the section is missing or has faults. It names the first ten of them.
    """
    section = tree.get("network")
    if not isinstance(section, dict):
        raise InputError(
            f"{source} has no section 'network': add one with at least kind and input_shape"
        )
    kind = section.get("kind", "fcdensenet")
    if not isinstance(kind, str) or kind not in KINDS:
        raise InputError(
            f"{source}: network.kind is {shorten(kind)}; the kinds are {', '.join(KINDS)}"
        )
    return validate(KINDS[kind], section, f"{source}, section network")


def build(
    config: Network, seed: int | None, recompute: bool = False, split: PartSplit | None = None
) -> "keras.Model":
    """Builds a network as a Keras model.

    Args:
        config: The network's section.
        seed: Together with a layer's name, it determines the layer's initial weights, its dropout
            and its draws. `None`: weights are zero, for what does not depend on them.
        recompute: See `fcdensenet.build`; other kinds have nothing to compute again.
        split: How the parts of a divided sample exchange what they need of each other; `None` for
            whole samples.

    Returns:
        A model whose outputs are float32 for every Keras dtype policy. With `split`, its input is
        a part of a sample, and its output the same part of the maps, or all estimates of the
        whole sample.

    Raises:
        InputError: If `recompute` is set for another kind than FC-DenseNet, or `split` for a kind
            that is not of `DIVIDED`.
        ValueError: If `split` does not fit the network; names a number of ways that does.
    """
    if recompute and not isinstance(config, NetworkConfig):
        raise InputError(
            f"recompute is for network.kind fcdensenet, not {config.kind}: set it to false"
        )
    if isinstance(config, NetworkConfig):
        network = fcdensenet.build(config, seed, recompute, split)
    else:
        network = _build_other(config, seed, split)
    if split is None:  # whose layers exchange rows over Horovod
        backend.execution().compile_layers(network, config.data_format)
    return network


def _build_other(config: Network, seed: int | None, split: PartSplit | None) -> "keras.Model":
    import keras

    from .keras_layers import KerasNetworkLayers

    layers: object
    if split is None:
        layers = KerasNetworkLayers(config.input_shape, config.data_format, seed)
    else:
        from .divided_layers import DividedNetworkLayers

        # names a number of ways that is possible, if this one is not
        count(config, ways=split.ways, axis=split.axis, further=further_axes(split))
        shape = shape_of_part(config.input_shape, split)
        layers = DividedNetworkLayers(shape, config.data_format, seed, split=split)
    return keras.Model(*_compose(layers, config), name=config.kind)


def count(
    config: Network,
    recompute: bool = False,
    ways: int = 1,
    axis: int = 0,
    further: FurtherAxes = (),
) -> NetworkCount:
    """Counts the layers of the network that `build` makes, without Keras.

    FLOP are those of convolutions and dense layers; see `fcdensenet.count`.

    Args:
        config: The network's section.
        recompute: See `fcdensenet.count`; other kinds ignore it.
        ways: Number of parts of a sample, of which one is counted.
        axis: The divided axis of the grid, from 0.
        further: Further divided axes, with the number of parts along each.

    Raises:
        InputError: If networks of this kind are not divided, or along one axis alone.
        ValueError: If the sample cannot be divided so; names a number of ways that is possible.
    """
    if isinstance(config, NetworkConfig):
        return fcdensenet.count(config, recompute, ways, axis, further)
    if ways > 1 and config.kind not in DIVIDED:
        raise InputError(
            f"networks of kind {config.kind} are not divided: use one of {', '.join(DIVIDED)}"
        )
    if further and config.kind in ONE_AXIS:
        raise InputError(
            f"networks of kind {config.kind} gather parts, and are divided along one axis: leave "
            "further out"
        )

    def counted(ways: int) -> NetworkCount:
        shape = part_shape(config.input_shape, ways, axis, further)
        shapes = ShapeNetworkLayers(
            shape, config.data_format, divided_axis=axis if ways > 1 else None, ways=ways
        )
        if further:
            shapes = replace(
                shapes, further_axes=tuple(further_axis for further_axis, _ in further)
            )
        _compose(shapes, config)
        return shapes.counted()

    return counted_part(counted, ways, config.input_shape[1 + axis], bool(further))


def count_part(
    config: Network, division: DivisionSettings, recompute: bool = False
) -> NetworkCount:
    """Counts the layers of a network, of a part of it if samples are divided; see `count`.

    Args:
        config: The network's section.
        division: The section training.split.
        recompute: See `count`.
    """
    return count(
        config,
        recompute,
        division.ways,
        division.axis_index(config.input_shape),
        division.further_axes(config.input_shape),
    )


def _compose(layers: object, config: Network) -> Any:
    """Returns input and output of a network, made of `layers` by the function `network` of its
    section's module.
    """
    return sys.modules[type(config).__module__].network(layers, config)
