"""The size of a network as tables for people and as JSON for programs."""

from collections.abc import Callable
from typing import NotRequired, TypedDict

from rich import box
from rich.table import Table

from fcdensenet.layer_counts import BYTES_PER_VALUE, LayerCount, NetworkCount


class LayerDescription(TypedDict):
    """One layer, for one sample. The keys are those of `LayerCount`, with memory by dtype."""

    name: str
    kind: str
    output_shape: list[int]
    kernel_shape: list[int]
    weights: int
    parameters: int
    forward_flop: int
    activation_bytes: dict[str, int]


class NetworkDescription(TypedDict):
    """A network, for one sample. The keys are those of `NetworkCount`, with memory by dtype.

    `activation_bytes_recompute` is the memory if the stacks of dense blocks are computed again in
    the backward pass; it is absent if the network has no such stacks.
    """

    parameters: int
    trainable_parameters: int
    conv_weights: int
    convolutions: int
    forward_flop: int
    step_flop: int
    activation_bytes: dict[str, int]
    activation_bytes_recompute: NotRequired[dict[str, int]]
    gradient_bytes: dict[str, int]
    layers: list[LayerDescription]


def describe(count: NetworkCount, recomputed: NetworkCount | None = None) -> NetworkDescription:
    """Returns the sums and the layers in JSON types.

    Args:
        recomputed: The count of the same network if stacks are computed again in the backward pass.
    """
    described: NetworkDescription = {
        "parameters": count.parameters,
        "trainable_parameters": count.trainable_parameters,
        "conv_weights": count.conv_weights,
        "convolutions": count.convolutions,
        "forward_flop": count.forward_flop,
        "step_flop": count.step_flop,
        "activation_bytes": _by_dtype(count.activation_bytes),
        "gradient_bytes": _by_dtype(count.gradient_bytes),
        "layers": [_layer(layer) for layer in count.layers],
    }
    if recomputed:
        described["activation_bytes_recompute"] = _by_dtype(recomputed.activation_bytes)
    return described


def _by_dtype(size: Callable[[str], int]) -> dict[str, int]:
    """Returns a size in each dtype, bytes."""
    return {dtype: size(dtype) for dtype in BYTES_PER_VALUE}


def _layer(layer: LayerCount) -> LayerDescription:
    return {
        "name": layer.name,
        "kind": layer.kind,
        "output_shape": list(layer.output_shape),
        "kernel_shape": list(layer.kernel_shape),
        "weights": layer.weights,
        "parameters": layer.parameters,
        "forward_flop": layer.forward_flop,
        "activation_bytes": _by_dtype(layer.activation_bytes),
    }


def layer_table(count: NetworkCount) -> Table:
    """Returns a table with a row for every layer that has parameters or whose output a gradient
    needs.
    """
    table = Table("layer", "kind", box=box.SIMPLE_HEAD)
    for heading in ("output", "parameters", "GFLOP", "kept MB\nfloat16"):
        table.add_column(heading, justify="right", no_wrap=True)
    for layer in count.layers:
        kept = layer.activation_bytes("float16")
        if not (layer.parameters or kept):
            continue
        table.add_row(
            layer.name,
            " ".join([layer.kind, "×".join(map(str, layer.kernel_shape[:-2]))]).strip(),
            "×".join(map(str, layer.output_shape)),
            _unless_zero(layer.parameters, ","),
            _unless_zero(layer.forward_flop / 1e9, ",.1f"),
            _unless_zero(kept / 1e6, ",.1f"),
        )
    return table


def _unless_zero(value: float, digits: str) -> str:
    """Returns a number as text; an empty one for 0."""
    return format(value, digits) if value else ""


def sums_table(count: NetworkCount, recomputed: NetworkCount | None = None) -> Table:
    """Returns a table of the sums and their meanings; for the arguments see `describe`."""
    table = Table(box=None, show_header=False)
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    table.add_row(
        f"{count.parameters:,}", f"parameters, {count.trainable_parameters:,} of them trained"
    )
    table.add_row(
        f"{count.conv_weights:,}",
        f"weights of {count.convolutions} convolutions, without biases and norms",
    )
    table.add_row(f"{count.forward_flop:.5e}", "FLOP per sample, forward pass (2·H·W·C·K·R·S)")
    table.add_row(f"{count.step_flop:.5e}", "FLOP per sample, training step (three times forward)")
    for dtype in BYTES_PER_VALUE:
        table.add_row(
            f"{count.activation_bytes(dtype) / 1e9:.3f} GB", f"kept activations per sample, {dtype}"
        )
        if recomputed:
            smaller = recomputed.activation_bytes(dtype)
            table.add_row(f"{smaller / 1e9:.3f} GB", f"the same with recomputed stacks, {dtype}")
    for dtype in BYTES_PER_VALUE:
        table.add_row(
            f"{count.gradient_bytes(dtype) / 1e6:,.1f} MB", f"gradients per rank, {dtype}"
        )
    return table
