"""The step of a rank that has a part of each sample, as Oyama et al. (2020) model it, equations 2 and 3.

    forward pass of a layer   FP = max{Comp(main), Σ 2 SR(halo)} + Comp(halo), backward BP alike
    step                      Σ FP + max{Σ BP, Σ AR}

`main` are the rows that need no halo, and `halo` those that do. The maximum over BP and AR is that of
`train.scaling.model.estimate_step`, which follows the reductions one by one.

A layer's computation takes its share by FLOP of the whole network's, and a part's the share of its rows. Kernels are
slower on few rows: with r rows they take the time of r + `Machine.kernel_rows`.

Two ways of exchange:
  alltoall   this project's: Horovod agrees on each exchange in its next cycle, half a cycle later in the mean. The
             interior is the whole part, whose border is computed again. Moments of normalisations go to all parts.
  direct     LBANN's: messages between neighbours without agreement; moments by an allreduce. Ranks are left without
             rows of small maps, which are not gathered
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fcdensenet.count import BYTES_PER_VALUE, LayerCount

from ..networks import Network, count
from .model import allreduce_s, coordination_s
from .strategy import Machine, Strategy
from .workload import FORWARD_SHARE, LayerTime, WireType, Workload, workload_of


@dataclass(frozen=True)
class Division:
    """How samples are divided."""

    ways: int  # number of parts
    axis: int = 0  # the divided axis of the grid, from 0
    exchange: Literal["alltoall", "direct"] = "alltoall"  # see above


@dataclass(frozen=True)
class DividedStep:
    """The step of a rank that has a part of each sample."""

    work: Workload  # the step without communication of gradients
    forward_s: float  # time of the forward passes, s
    backward_s: float  # time of the backward passes, s
    computation_s: float  # of both, the time if nothing had to be exchanged, s


def divided_step(
    network: Network,
    dtype: WireType,  # type of the gradients on the wire
    compute_s: float,  # time of the computation of one step with whole samples, s
    machine: Machine,
    strategy: Strategy,  # how ranks agree
    division: Division,  # how samples are divided
    samples: int = 1,  # number of samples of a pass
    accumulate: int = 1,  # number of passes per step
    activations: WireType = "float32",  # type of the maps
) -> DividedStep:
    """Returns the step of a rank.

    Raises:
        InputError: If networks of this kind are not divided.
        ValueError: If the sample cannot be divided so.
    """
    whole = {layer.name: layer for layer in count(network).layers}
    per_flop = compute_s / accumulate / sum(layer.forward_flop for layer in whole.values())
    row_axis = division.axis + (network.data_format == "channels_first")
    exchange = _Exchange(machine, strategy, division)
    times, computation_s = [], 0.0
    for layer in count(network, ways=division.ways, axis=division.axis).layers:
        if layer.kind == "gathered" and division.exchange == "direct":
            continue
        of_whole, rows, all_rows = whole.get(layer.name, layer), 1.0, 1
        if len(layer.output_shape) == len(network.input_shape):
            all_rows = of_whole.output_shape[row_axis]
            rows = max(all_rows / division.ways, 1.0)
        longer = (rows + machine.kernel_rows) / (all_rows + machine.kernel_rows)
        compute = per_flop * of_whole.forward_flop * longer
        main, border = _main_and_border(layer, rows, division)
        passes = []
        for share, values in ((FORWARD_SHARE, layer.halo_values), (1 - FORWARD_SHARE, layer.halo_gradients)):
            halo_s = exchange.halo_s(samples * values * BYTES_PER_VALUE[activations])
            seconds = max(share * compute * main, halo_s) + share * compute * border + exchange.moments_s(layer)
            passes.append(seconds)
        times.append(LayerTime(layer, *passes))
        computation_s += accumulate * compute
    return DividedStep(
        workload_of(times, dtype, accumulate),
        accumulate * sum(time.forward_s for time in times),
        accumulate * sum(time.backward_s for time in times),
        computation_s,
    )


def _main_and_border(layer: LayerCount, rows: float, division: Division) -> Sequence[float]:
    """Fractions of a part's computation: what can be done while the halo travels, and what waits for it."""
    border = min(layer.border_rows, rows)
    if not border:
        return 1.0, 0.0
    if division.exchange == "direct":
        return (rows - border) / rows, border / rows
    return (0.0, 1.0) if border > rows // 2 else (1.0, border / rows)


@dataclass(frozen=True)
class _Exchange:
    """Times of exchanges among the parts of a sample."""

    machine: Machine
    strategy: Strategy
    division: Division

    @property
    def _agreement_s(self) -> float:
        if self.division.exchange == "direct":
            return 0.0
        return self.strategy.cycle_s / 2 + coordination_s(self.machine, self.strategy, self.division.ways, 1)

    @property
    def _within_node(self) -> bool:
        return self.division.ways <= self.machine.ranks_per_node

    @property
    def _hop_s(self) -> float:
        return self.machine.hop_within_node_s if self._within_node else self.machine.hop_between_nodes_s

    def _transfer_s(self, size: float) -> float:
        rate = self.machine.within_node_bytes_per_s if self._within_node else self.machine.node_link_bytes_per_s
        return size / rate

    def halo_s(self, size: float) -> float:
        """Time in which a part gets the halo of both sides, `size` bytes together."""
        if not size or self.division.ways == 1:
            return 0.0
        return self._agreement_s + 2 * self._hop_s + self._transfer_s(size)

    def moments_s(self, layer: LayerCount) -> float:
        """Time in which the moments of a normalisation are added over the parts."""
        size, ways = layer.shared_values * BYTES_PER_VALUE["float32"], self.division.ways
        if not size or ways == 1:
            return 0.0
        if self.division.exchange == "direct":
            return allreduce_s(self.machine, "tree", ways, size, "float32")
        return self._agreement_s + math.ceil(math.log2(ways)) * self._hop_s + self._transfer_s((ways - 1) * size)
