"""The step of a rank that has a part of each sample, as Oyama et al. (2020) model it, equations 2
and 3.

    forward pass of a layer   FP = max{Comp(main), Σ 2 SR(halo)} + Comp(halo), backward BP alike
    step                      Σ FP + max{Σ BP, Σ AR}

`main` are the rows that need no halo, and `halo` those that do. The maximum over BP and AR is that
of `train.scaling.model.estimate_step`, which follows the reductions one by one.

A layer's computation takes its share by FLOP of the whole network's, and a part's the share of its
rows. Kernels are slower on few rows: with r rows they take the time of r + `Machine.kernel_rows`.

Two ways of exchange:
  alltoall   this project's: Horovod agrees on each exchange in its next cycle, half a cycle later
             in the mean. The interior is the whole part, whose border is computed again. Moments of
             normalisations go to all parts.
  direct     LBANN's: messages between neighbours without agreement; moments by an allreduce. Ranks
             are left without rows of small maps, which are not gathered
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from fcdensenet.layer_counts import BYTES_PER_VALUE, LayerCount

from ..networks import Network, count
from .model import allreduce_s, coordination_s
from .strategy import Machine, Strategy
from .workload import FORWARD_SHARE, LayerTime, StepWorkload, WireType, workload_of


@dataclass(frozen=True)
class Division:
    """Division of samples."""

    ways: int  # number of parts
    axis: int = 0  # the divided axis of the grid, from 0
    exchange: Literal["alltoall", "direct"] = "alltoall"  # see above


@dataclass(frozen=True)
class DividedStep:
    """The step of a rank that has a part of each sample."""

    work: StepWorkload  # the step without communication of gradients
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
    undivided = {layer.name: layer for layer in count(network).layers}
    per_flop = compute_s / accumulate / sum(layer.forward_flop for layer in undivided.values())
    row_axis = division.axis + (network.data_format == "channels_first")
    exchange = _Exchange(machine, strategy, division)
    value_bytes = samples * BYTES_PER_VALUE[activations]
    times = []
    computation_s = 0.0
    for layer in count(network, ways=division.ways, axis=division.axis).layers:
        if layer.kind == "gathered" and division.exchange == "direct":
            continue
        whole_layer = undivided.get(layer.name, layer)
        rows = _Rows(of_part=1.0, of_sample=1)
        if len(layer.output_shape) == len(network.input_shape):
            rows = _Rows.divided(whole_layer.output_shape[row_axis], division.ways)
        fraction = (rows.of_part + machine.kernel_rows) / (rows.of_sample + machine.kernel_rows)
        layer_s = per_flop * whole_layer.forward_flop * fraction
        fractions = _main_and_border(layer, rows.of_part, division)
        moments_s = exchange.moments_s(layer)
        values_s = exchange.halo_s(layer.halo_values * value_bytes)
        forward_s = fractions.pass_s(FORWARD_SHARE * layer_s, values_s) + moments_s
        gradients_s = exchange.halo_s(layer.halo_gradients * value_bytes)
        backward_s = fractions.pass_s((1 - FORWARD_SHARE) * layer_s, gradients_s) + moments_s
        times.append(LayerTime(layer, forward_s, backward_s))
        computation_s += accumulate * layer_s
    return DividedStep(
        workload_of(times, dtype, accumulate),
        accumulate * sum(time.forward_s for time in times),
        accumulate * sum(time.backward_s for time in times),
        computation_s,
    )


class _Rows(NamedTuple):
    """Numbers of rows of a layer's maps along the divided axis."""

    of_part: float
    of_sample: int

    @classmethod
    def divided(cls, of_sample: int, ways: int) -> "_Rows":
        """Returns the rows of a part, of which there is one at least."""
        return cls(max(of_sample / ways, 1.0), of_sample)


class _Fractions(NamedTuple):
    """Fractions of the computation of a part."""

    main: float  # what can be done while the halo travels
    border: float  # what waits for it

    def pass_s(self, computation_s: float, halo_s: float) -> float:
        """Returns the time of a pass in which a halo travels, s."""
        return max(computation_s * self.main, halo_s) + computation_s * self.border


def _main_and_border(layer: LayerCount, rows: float, division: Division) -> _Fractions:
    """Returns what of a part's computation can be done while the halo travels."""
    border = min(layer.border_rows, rows)
    if not border:
        return _Fractions(main=1.0, border=0.0)
    if division.exchange == "direct":
        return _Fractions(main=(rows - border) / rows, border=border / rows)
    if border > rows // 2:
        return _Fractions(main=0.0, border=1.0)
    return _Fractions(main=1.0, border=border / rows)


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
        return self.strategy.cycle_s / 2 + coordination_s(
            self.machine, self.strategy, self.division.ways, 1
        )

    @property
    def _within_node(self) -> bool:
        return self.division.ways <= self.machine.ranks_per_node

    @property
    def _hop_s(self) -> float:
        if self._within_node:
            return self.machine.hop_within_node_s
        return self.machine.hop_between_nodes_s

    def _transfer_s(self, size: float) -> float:
        if self._within_node:
            rate = self.machine.within_node_bytes_per_s
        else:
            rate = self.machine.node_link_bytes_per_s
        return size / rate

    def halo_s(self, size: float) -> float:
        """Time in which a part gets the halo of both sides, `size` bytes together."""
        if not size or self.division.ways == 1:
            return 0.0
        return self._agreement_s + 2 * self._hop_s + self._transfer_s(size)

    def moments_s(self, layer: LayerCount) -> float:
        """Time in which the moments of a normalisation are added over the parts."""
        size = layer.shared_values * BYTES_PER_VALUE["float32"]
        ways = self.division.ways
        if not size or ways == 1:
            return 0.0
        if self.division.exchange == "direct":
            return allreduce_s(self.machine, "tree", ways, size, "float32")
        return (
            self._agreement_s
            + math.ceil(math.log2(ways)) * self._hop_s
            + self._transfer_s((ways - 1) * size)
        )
