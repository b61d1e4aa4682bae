"""How far a job scales, how many ranks to ask for, and how the model compares with published results.

`python -m train scaling CONFIG` prints this report; see `train.scaling.tables`.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import numpy as np

from fcdensenet.count import NetworkCount
from namsa.config.loading import read_yaml, validate
from namsa.dataset import manifest
from namsa.errors import InputError

from ..experiment.experiment import Experiment, load
from ..experiment.sections import Checkpoints, Training
from ..measure.performance import sustained_and_peak
from ..networks import Network, count, read_network
from ..reports.runs import read_steps
from . import fit
from .division import DividedStep, Division, divided_step
from .model import block_bytes, checkpoint_s, efficiency, estimate_step, steps_between
from .published import STRATEGIES, published_results
from .results import CurveRow, DivisionRow, ScalingReport, Synchronisation
from .strategy import SUMMIT, Machine, Strategy, strategy_of
from .workload import WireType, Workload, workload


@dataclass(frozen=True)
class _Job:
    """A training job on a machine."""

    machine: Machine  # the machine
    work: Workload  # the step of one rank
    strategy: Strategy  # how its gradients are reduced
    training: Training  # the section training
    step_flop: int  # FLOP per step of one rank
    convolutions_s: float | None  # time of the convolutions in a step of one rank, s; `None` if not known
    samples: int | None  # samples of the training split; `None` if not known
    state_bytes: int  # of a checkpoint

    @property
    def samples_per_step(self) -> int:
        """Samples that one rank, or one group with divided samples, takes per step."""
        return self.training.batch_size * self.training.accumulate

    @property
    def ways(self) -> int:
        """Ranks of a sample."""
        return self.training.split.ways


@dataclass(frozen=True)
class DividedJob:
    """A job whose samples are divided."""

    network: Network  # the network
    wire_type: WireType  # type of the gradients on the wire
    compute_s: float  # time of the computation of one step with whole samples, s
    machine: Machine  # the machine
    strategy: Strategy  # how gradients are reduced
    training: Training  # the section training

    @property
    def _axis(self) -> int:
        return self.training.split.axis_index

    @property
    def _activations(self) -> WireType:
        return "float32" if self.training.precision.compute == "float32" else "float16"

    def step(self, ways: int) -> tuple[DividedStep, NetworkCount]:
        """Returns the step of a rank, and the layers of its part. Raises InputError if samples cannot be divided so."""
        training = self.training
        try:
            counted = count(self.network, training.recompute, ways, self._axis)
        except ValueError as error:
            raise InputError(f"{ways} ways along {training.split.axis}: {error}") from None
        step = divided_step(
            self.network,
            self.wire_type,
            self.compute_s,
            self.machine,
            self.strategy,
            Division(ways, self._axis),
            training.batch_size,
            training.accumulate,
            self._activations,
        )
        return step, counted

    def rows(self, numbers: Sequence[int], groups: int) -> list[DivisionRow]:
        """Returns the rows of `ScalingReport.division`."""
        rows: list[DivisionRow] = []
        for ways in numbers:
            part, counted = self.step(ways)
            step_s = estimate_step(self.machine, part.work, self.strategy, groups * ways).seconds
            passes, samples = self.training.accumulate, self.training.batch_size
            sent = samples * counted.halo_bytes(self._activations) + counted.moment_bytes(ways)
            rows.append(
                {
                    "ways": ways,
                    "ranks": groups * ways,
                    "step_s": step_s,
                    "speed_up": rows[0]["step_s"] / step_s if rows else 1.0,
                    "computation_s": part.computation_s,
                    "exchange_s": part.work.compute_s - part.computation_s if ways > 1 else 0.0,
                    "reduction_s": step_s - part.work.compute_s,
                    "exchanges": passes * counted.exchanges,
                    "exchanged_bytes": passes * sent,
                    "activation_bytes": samples * counted.activation_bytes(self._activations),
                }
            )
        return rows


def report(
    config: Path,  # YAML file of the experiment, or one with only a section network, and training if need be
    overrides: Sequence[str] = (),  # overrides of the form "section.key=value"
    *,
    ranks: str = "1..27600",  # "1..N", or numbers separated by commas
    machine: Path | None = None,  # YAML file with the keys of `train.scaling.strategy.Machine`. Default: Summit
    # Run on one rank, whose steps tell how long one rank computes. Default: the network's FLOP over the machine's rate.
    run_dir: Path | None = None,
    samples: int | None = None,  # samples in the training split. Default: those of the dataset, if it exists
    min_efficiency: float = 0.9,  # the lowest efficiency that the recommendation accepts
    # Output of scripts/bench/reduction.py, to which the coordinator's costs are fitted; see `train.scaling.fit`.
    measured: Path | None = None,
    # Numbers of ranks that a sample is divided over, separated by commas, for the rows of `division`.
    ways: str | None = None,
    groups: int = 1,  # number of groups of so many ranks in these rows, each with samples of its own
) -> ScalingReport:
    """Returns how the job of a configuration scales.

    Raises:
        InputError: If a file, `ranks` or `ways` cannot be read, the samples cannot be divided so, or the model does not
            know how the configuration reduces gradients.
    """
    name, network, training, found_samples = _sections(config, overrides)
    hardware = validate(Machine, read_yaml(machine), str(machine)) if machine else SUMMIT
    whole = count(network)
    whole_flop = training.batch_size * training.accumulate * whole.step_flop
    compute_s = measured_compute_s(run_dir) if run_dir else whole_flop / hardware.sustained_flop_per_s
    wire_type: WireType = "float16" if training.exchange.sends_float16 else "float32"
    work = workload(network, wire_type, compute_s, training.accumulate)
    summits_peak = machine is None and run_dir is not None  # Summit's convolutions are not those of the run
    peak = None if summits_peak else hardware.convolution_flop_per_s
    strategy = strategy_of(training, work.gradients)
    parts = DividedJob(network, wire_type, compute_s, hardware, strategy, training)
    step_flop = whole_flop
    if training.split.ways > 1:
        divided, part = parts.step(training.split.ways)
        work, step_flop = divided.work, training.batch_size * training.accumulate * part.step_flop
    job = _Job(
        hardware,
        work,
        strategy,
        training,
        step_flop,
        step_flop / peak if peak else None,
        samples if samples is not None else found_samples,
        4 * (1 + training.optimizer.moments) * whole.parameters,
    )
    if job.strategy.synchronise == "epoch" and job.samples is None:
        raise InputError(
            "training.exchange.synchronise epoch: the steps between two synchronisations follow from the number of "
            "training samples, which is not known; give --samples, or a number of steps instead of epoch"
        )
    numbers = [number for number in rank_counts(ranks, hardware) if number % job.ways == 0]
    if not numbers:
        raise InputError(f"--ranks {ranks} has no multiple of training.split.ways, {job.ways}: give one")
    curve = [_row(job, number) for number in numbers]
    return ScalingReport(
        name=name,
        machine=hardware.name,
        compute_s=compute_s,
        compute_from="run" if run_dir else "rate",
        strategy=job.strategy,
        samples=job.samples,
        curve=curve,
        recommended=recommended(curve, min_efficiency),
        min_efficiency=min_efficiency,
        published=published_results(),
        measured=fit.fit(measured) if measured else None,
        synchronisation=_synchronisation(job),
        ways=job.ways,
        division=parts.rows(way_counts(ways), groups) if ways else None,
    )


def rank_counts(text: str, machine: Machine) -> list[int]:
    """Returns the rank counts of a `--ranks` argument.

    Args:
        text: "1..N" for powers of two within a node, then whole nodes, doubling up to N; or numbers separated by
            commas.

    Raises:
        InputError: If `text` is neither.
    """
    try:
        if ".." not in text:
            numbers = [int(number) for number in text.split(",")]
        else:
            first, last = (int(number) for number in text.split(".."))
            if not 1 <= first <= last:
                raise ValueError
            node = machine.ranks_per_node
            within_node = [2**power for power in range(20) if 2**power < node]
            whole_nodes = list(takewhile(lambda number: number < last, (node * 2**power for power in range(40))))
            numbers = [number for number in [*within_node, *whole_nodes] if first <= number < last] + [last]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise InputError(f"--ranks {text}: write 1..27600, or numbers from 1 on separated by commas")
    return numbers


def way_counts(text: str) -> list[int]:
    """Returns the numbers of a `--ways` argument. Raises InputError if it is not numbers from 1 on."""
    try:
        numbers = [int(number) for number in text.split(",")]
    except ValueError:
        numbers = [0]
    if min(numbers) < 1:
        raise InputError(f"--ways {text}: write numbers from 1 on separated by commas, as 1,2,4")
    return numbers


def measured_compute_s(run_dir: Path) -> float:
    """Returns the median time of the computation per step of a run, without waiting for data and for other ranks, s."""
    path = run_dir / "metrics.jsonl"
    try:
        steps = read_steps(path, ("step_s", "data_s", "comm_s"), ("sync_s",))
        times = steps["step_s"] - steps["data_s"] - steps["comm_s"] - np.nan_to_num(steps["sync_s"])
        return statistics.median(times[len(times) // 10 :].tolist())  # the first steps compile
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot read steps from {path} ({error}): give the directory of a run that has trained"
        ) from None


def recommended(curve: Sequence[CurveRow], min_efficiency: float) -> CurveRow | None:
    """Returns the row with the most ranks that keeps an efficiency and has a batch for every rank, if there is one."""
    accepted = [row for row in curve if row["efficiency"] >= min_efficiency and row.get("steps_per_epoch") != 0]
    return max(accepted, key=lambda row: row["ranks"], default=None)


def _sections(config: Path, overrides: Sequence[str]) -> tuple[str, Network, Training, int | None]:
    """Name, network and training of a configuration, and the number of its training samples if there is a dataset."""
    tree = read_yaml(config, overrides)
    if not set(tree) <= {"network", "training"}:
        experiment = load(config, overrides)
        return experiment.name, experiment.network, experiment.training, _training_samples(experiment)
    training = validate(Training, {"epochs": 1} | tree.get("training", {}), f"{config}, section training")
    return config.stem, read_network(tree, str(config)), training, None


def _training_samples(experiment: Experiment) -> int | None:
    """Number of training samples that the job takes of the dataset; `None` if there is no dataset."""
    if not (experiment.data.directory / manifest.FILE_NAME).exists():
        return None
    number = int(manifest.read_header(experiment.data.directory)["splits"]["train"])
    return min(number, experiment.training.samples or number)


def _synchronisation(job: _Job) -> Synchronisation | None:
    """What local SGD averages; `None` where gradients are averaged."""
    every = job.strategy.synchronise
    if every == "step":
        return None
    return Synchronisation(block_bytes(job.work, job.strategy), every, job.strategy.averaged_per_weight > 1)


def _row(job: _Job, ranks: int) -> CurveRow:
    """The model's prediction for `ranks` ranks."""
    groups = ranks // job.ways
    steps = None if job.samples is None else job.samples // (groups * job.samples_per_step)
    step = estimate_step(job.machine, job.work, job.strategy, ranks, steps)
    kept = job.work.compute_s / step.seconds
    rates = sustained_and_peak(job.step_flop, job.work.compute_s, job.convolutions_s, ranks, kept)
    row: CurveRow = {
        "ranks": ranks,
        "efficiency": kept,
        "step_s": step.seconds,
        "operations": step.operations,
        "reduced_bytes": step.reduced_bytes,
        "samples_per_s": groups * job.samples_per_step / step.seconds,
        "flop_per_s": rates.sustained,
        "others": {name: efficiency(job.machine, job.work, other, ranks) for name, other in STRATEGIES.items()},
    }
    if rates.peak is not None:
        row["peak_flop_per_s"] = rates.peak
    if job.strategy.synchronise != "step" and ranks > 1:
        row["steps_between"] = steps_between(job.strategy, steps)
        row["synchronisation_s"] = row["steps_between"] * (step.seconds - job.work.compute_s)
    if steps is not None:
        row["steps_per_epoch"] = steps
    totals = [] if steps is None else [job.training.epochs * steps]
    totals += [job.training.steps] if job.training.steps else []
    between_s = _between_checkpoints_s(job.training.checkpoints, step.seconds, steps)
    if between_s is not None:
        held_s = checkpoint_s(job.machine, job.state_bytes, between_s)
        row["checkpoint_s"] = held_s * step.seconds / between_s
    if totals:
        row["hours"] = min(totals) * (step.seconds + row.get("checkpoint_s", 0.0)) / 3600
    return row


def _between_checkpoints_s(config: Checkpoints, step_s: float, steps_per_epoch: int | None) -> float | None:
    """Time of the steps between two checkpoints, s; `None` if it follows from an unknown length of epochs."""
    times = [] if config.every_seconds is None else [config.every_seconds]
    times += [] if config.every_steps is None else [config.every_steps * step_s]
    times += [] if not steps_per_epoch else [config.every_epochs * steps_per_epoch * step_s]
    return max(step_s, min(times)) if times else None
