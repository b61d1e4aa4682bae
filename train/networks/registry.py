"""From a section `network` to its kind, its model and its count."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Discriminator, Tag

import fcdensenet
from fcdensenet import NetworkConfig
from fcdensenet.count import NetworkCount
from namsa.config.loading import validate
from namsa.errors import InputError
from namsa.text import shorten
from train.networks import cosmoflow, cvae, deeplabv3plus, resnet50, unet3d
from train.networks.cosmoflow import CosmoFlowConfig
from train.networks.cvae import CVAEConfig
from train.networks.deeplabv3plus import DeepLabV3PlusConfig
from train.networks.resnet50 import ResNet50Config
from train.networks.shape_layers import ShapeNetworkLayers
from train.networks.unet3d import UNet3DConfig

if TYPE_CHECKING:
    import keras

Network = NetworkConfig | ResNet50Config | CVAEConfig | DeepLabV3PlusConfig | CosmoFlowConfig | UNet3DConfig

KINDS: dict[str, type[Network]] = {
    "fcdensenet": NetworkConfig,
    "resnet50": ResNet50Config,
    "cvae": CVAEConfig,
    "deeplabv3plus": DeepLabV3PlusConfig,
    "cosmoflow": CosmoFlowConfig,
    "unet3d": UNet3DConfig,
}


def _kind(section: Any) -> Any:
    """Returns the kind of a section, which is an FC-DenseNet's if it says none."""
    return section.get("kind", "fcdensenet") if isinstance(section, Mapping) else getattr(section, "kind", None)


# The section `network` of a configuration, of the class that its `kind` names.
NetworkSections = Annotated[
    Annotated[NetworkConfig, Tag("fcdensenet")]
    | Annotated[ResNet50Config, Tag("resnet50")]
    | Annotated[CVAEConfig, Tag("cvae")]
    | Annotated[DeepLabV3PlusConfig, Tag("deeplabv3plus")]
    | Annotated[CosmoFlowConfig, Tag("cosmoflow")]
    | Annotated[UNet3DConfig, Tag("unet3d")],
    Discriminator(
        _kind,
        custom_error_type="network_kind",
        custom_error_message=f"write a section whose kind is one of {', '.join(KINDS)}",
    ),
]


def read_network(tree: Mapping[str, Any], source: str) -> Network:
    """Returns the section `network` of a configuration, of the class that its `kind` names.

    Args:
        tree: The configuration; only its section `network` is read. Without `kind` it is an FC-DenseNet.
        source: Where the configuration comes from, for the error message.

    Raises:
        InputError: If the section is missing or has faults. It names the first ten of them.
    """
    section = tree.get("network")
    if not isinstance(section, dict):
        raise InputError(f"{source} has no section 'network': add one with at least kind and input_shape")
    kind = section.get("kind", "fcdensenet")
    if not isinstance(kind, str) or kind not in KINDS:
        raise InputError(f"{source}: network.kind is {shorten(kind)}; the kinds are {', '.join(KINDS)}")
    return validate(KINDS[kind], section, f"{source}, section network")


def build(config: Network, seed: int, recompute: bool = False) -> "keras.Model":
    """Builds a network as a Keras model.

    Args:
        config: The network's section.
        seed: Together with a layer's name, it determines the layer's initial weights, its dropout and its draws.
        recompute: See `fcdensenet.build`; other kinds have nothing to compute again.

    Returns:
        A model whose outputs are float32 for every Keras dtype policy.

    Raises:
        InputError: If `recompute` is set for another kind than FC-DenseNet.
    """
    if isinstance(config, NetworkConfig):
        return fcdensenet.build(config, seed, recompute)
    if recompute:
        raise InputError(f"recompute is for network.kind fcdensenet, not {config.kind}: set it to false")
    import keras

    from train.networks.keras_layers import KerasNetworkLayers

    layers = KerasNetworkLayers(config.input_shape, config.data_format, seed)
    return keras.Model(*_compose(layers, config), name=config.kind)


def count(config: Network, recompute: bool = False) -> NetworkCount:
    """Counts the layers of the network that `build` makes, without Keras.

    FLOP are those of convolutions and dense layers; see `fcdensenet.count`, also for `recompute`, which other kinds
    ignore.
    """
    if isinstance(config, NetworkConfig):
        return fcdensenet.count(config, recompute)
    shapes = ShapeNetworkLayers(config.input_shape, config.data_format)
    _compose(shapes, config)
    return shapes.counted()


def _compose(layers: Any, config: Network) -> tuple[Any, Any]:
    """Returns input and output of a network, made of `layers`."""
    match config:
        case ResNet50Config():
            return resnet50.network(layers, config)
        case CVAEConfig():
            return cvae.network(layers, config)
        case DeepLabV3PlusConfig():
            return deeplabv3plus.network(layers, config)
        case CosmoFlowConfig():
            return cosmoflow.network(layers, config)
        case UNet3DConfig():
            return unet3d.network(layers, config)
    raise AssertionError(f"no composition for {type(config).__name__}")
