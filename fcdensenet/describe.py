"""A network's weight as a table for people and as JSON for programs."""

from typing import Any

from rich import box
from rich.table import Table

from fcdensenet.count import BYTES, Count


def as_json(count: Count, recomputed: Count) -> dict[str, Any]:
    """Sums and layers, plain numbers; shapes of one sample, activations and gradients in bytes for each dtype.

    recomputed: the count of the same network with training.recompute
    """
    return {
        "parameters": count.parameters,
        "trainable_parameters": count.trainable_parameters,
        "conv_weights": count.conv_weights,
        "convolutions": count.convolutions,
        "forward_flop": count.forward_flop,
        "step_flop": count.step_flop,
        "activation_bytes": {dtype: count.activation_bytes(dtype) for dtype in BYTES},
        "activation_bytes_recompute": {dtype: recomputed.activation_bytes(dtype) for dtype in BYTES},
        "gradient_bytes": {dtype: count.gradient_bytes(dtype) for dtype in BYTES},
        "layers": [
            {
                "name": layer.name,
                "kind": layer.kind,
                "output_shape": list(layer.output_shape),
                "kernel_shape": list(layer.kernel_shape),
                "weights": layer.weights,
                "parameters": layer.parameters,
                "forward_flop": layer.forward_flop,
                "activation_bytes": {dtype: layer.activation_bytes(dtype) for dtype in BYTES},
            }
            for layer in count.layers
        ],
    }


def layer_table(count: Count) -> Table:
    """A row for every layer that has parameters or whose output the gradient needs."""
    table = Table("layer", "kind", box=box.SIMPLE_HEAD)
    for heading in ("output", "parameters", "GFLOP", "kept MB\nfloat16"):
        table.add_column(heading, justify="right", no_wrap=True)
    for layer in count.layers:
        kept = layer.activation_bytes("float16")
        if not (layer.parameters or kept):
            continue
        table.add_row(
            layer.name,
            f"{layer.kind} {layer.kernel_shape[0]}×{layer.kernel_shape[1]}" if layer.kernel_shape else layer.kind,
            "×".join(map(str, layer.output_shape)),
            f"{layer.parameters:,}" if layer.parameters else "",
            f"{layer.forward_flop / 1e9:,.1f}" if layer.forward_flop else "",
            f"{kept / 1e6:,.1f}" if kept else "",
        )
    return table


def sums_table(count: Count, recomputed: Count) -> Table:
    """The sums, with what each of them counts; `recomputed` as in `as_json`."""
    table = Table(box=None, show_header=False)
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    table.add_row(f"{count.parameters:,}", f"parameters, {count.trainable_parameters:,} of them trained")
    table.add_row(f"{count.conv_weights:,}", f"weights of {count.convolutions} convolutions, without biases and norms")
    table.add_row(f"{count.forward_flop:.5e}", "FLOP of a forward pass, a sample (2·H·W·C·K·R·S)")
    table.add_row(f"{count.step_flop:.5e}", "FLOP of a training step, a sample (three times forward)")
    for dtype in BYTES:
        table.add_row(f"{count.activation_bytes(dtype) / 1e9:.3f} GB", f"activations a step keeps, a sample, {dtype}")
        lean = recomputed.activation_bytes(dtype)
        table.add_row(f"{lean / 1e9:.3f} GB", f"the same with training.recompute, {dtype}")
    for dtype in BYTES:
        table.add_row(f"{count.gradient_bytes(dtype) / 1e6:,.1f} MB", f"one rank's gradient message, {dtype}")
    return table
