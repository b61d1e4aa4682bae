"""Scaling of a job, the ranks to ask for, and a comparison of the model with published
results.

`namsa-train scaling CONFIG` prints this report; see `train.scaling.tables`.
"""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fcdensenet.layer_counts import NetworkCount
from namsa.base.errors import InputError
from namsa.config.loading import read_yaml, validate
from namsa.dataset import manifest

from ..experiment.experiment import Experiment, load
from ..experiment.sections import Training
from ..networks import Network, count, read_network
from ..reports.runs import read_steps
from . import fit
from .curve import ScaledJob, curve_row
from .divided_job import DividedJob
from .model import block_bytes
from .published import published_results
from .rank_counts import rank_counts, way_counts
from .results import CurveRow, ScalingReport, Synchronisation
from .strategy import SUMMIT, Machine, strategy_of
from .workload import StepWorkload, WireType, workload


def report(
    # YAML file of the experiment, or one with only a section network, and training if need be
    config: Path,
    overrides: Sequence[str] = (),  # overrides of the form "section.key=value"
    *,
    ranks: str = "1..27600",  # "1..N", or numbers separated by commas
    # YAML file with the keys of `train.scaling.strategy.Machine`; Summit without it
    machine: Path | None = None,
    # Run on one rank, whose steps tell how long one rank computes. Default: the network's FLOP over
    # the machine's rate.
    run_dir: Path | None = None,
    # samples in the training split; without it, those of the dataset, if it exists
    samples: int | None = None,
    min_efficiency: float = 0.9,  # the lowest efficiency that the recommendation accepts
    # Output of scripts/bench/reduction.py, to which the coordinator's costs are fitted; see
    # `train.scaling.fit`.
    measured: Path | None = None,
    # Numbers of ranks that a sample is divided over, separated by commas, for the rows of
    # `division`.
    ways: str | None = None,
    # number of groups of so many ranks in these rows, each with samples of its own
    groups: int = 1,
) -> ScalingReport:
    """Returns how the job of a configuration scales.

    Raises:
        InputError: If a file, `ranks` or `ways` cannot be read, the samples cannot be divided so,
            or the model does not know how the configuration reduces gradients.
    """
    sections = _sections(config, overrides)
    if samples is not None:
        sections = sections._replace(samples=samples)
    hardware = SUMMIT
    if machine:
        hardware = _read_machine(machine)
    training = sections.training
    _check_split(training)
    compute_s = _compute_s(sections, hardware, run_dir)
    wire_type: WireType = "float16" if training.exchange.sends_float16 else "float32"
    work = workload(sections.network, wire_type, compute_s, training.accumulate)
    strategy = strategy_of(training, work.gradients)
    divided = DividedJob(sections.network, wire_type, compute_s, hardware, strategy, training)
    # Summit's convolutions are not those of a run on another machine.
    knows_convolutions = machine is not None or run_dir is None
    job = _scaled_job(divided, work, sections.samples, knows_convolutions)
    curve = [curve_row(job, rank_count) for rank_count in _counts_of_job(job, ranks)]
    fitted = None
    if measured:
        fitted = fit.fit(measured)
    division_rows = None
    if ways:
        division_rows = divided.rows(way_counts(ways), groups)
    return ScalingReport(
        name=sections.name,
        machine=hardware.name,
        compute_s=compute_s,
        compute_from="run" if run_dir else "rate",
        strategy=job.strategy,
        samples=job.samples,
        curve=curve,
        recommended=recommended(curve, min_efficiency),
        min_efficiency=min_efficiency,
        published=published_results(),
        measured=fitted,
        synchronisation=_synchronisation(job),
        ways=job.ways,
        division=division_rows,
    )


def _read_machine(path: Path) -> Machine:
    """Returns the machine that a YAML file describes."""
    return validate(Machine, read_yaml(path), str(path))


def _check_split(training: Training) -> None:
    """Raises InputError for samples that are divided along several axes."""
    if training.split.further:
        raise InputError(
            "training.split.further: the model of scaling divides samples along one axis: leave it "
            "out"
        )


def _step_flop(training: Training, counted: NetworkCount) -> int:
    """Returns the FLOP of a step of one rank."""
    return training.batch_size * training.accumulate * counted.step_flop


def _compute_s(sections: "_Sections", hardware: Machine, run_dir: Path | None) -> float:
    """Returns how long one rank computes per step, s: as measured in a run, or by its FLOP."""
    if run_dir:
        return measured_compute_s(run_dir)
    return _step_flop(sections.training, count(sections.network)) / hardware.sustained_flop_per_s


def _scaled_job(
    divided: DividedJob, work: StepWorkload, samples: int | None, knows_convolutions: bool
) -> ScaledJob:
    """Returns the job with the work of one rank, which has its part of each sample.

    Args:
        work: The work of a rank with whole samples.
        samples: Training samples; `None` if their number is not known.
    """
    training = divided.training
    hardware = divided.machine
    undivided = count(divided.network)
    counted = undivided
    if training.split.ways > 1:
        step, counted = divided.step(training.split.ways)
        work = step.work
    step_flop = _step_flop(training, counted)
    convolutions_s = None
    if knows_convolutions and hardware.convolution_flop_per_s:
        convolutions_s = step_flop / hardware.convolution_flop_per_s
    job = ScaledJob(
        machine=hardware,
        work=work,
        strategy=divided.strategy,
        training=training,
        step_flop=step_flop,
        convolutions_s=convolutions_s,
        samples=samples,
        state_bytes=4 * (1 + training.optimizer.moments) * undivided.parameters,
    )
    if job.strategy.synchronise == "epoch" and job.samples is None:
        raise InputError(
            "training.exchange.synchronise epoch: the steps between two synchronisations follow "
            "from the number of training samples, which is not known; give --samples, or a number "
            "of steps instead of epoch"
        )
    return job


def _counts_of_job(job: ScaledJob, ranks: str) -> list[int]:
    """Returns the numbers of ranks of the curve: whole groups that divide a sample."""
    counts = []
    for rank_count in rank_counts(ranks, job.machine):
        if rank_count % job.ways == 0:
            counts.append(rank_count)
    if not counts:
        raise InputError(
            f"--ranks {ranks} has no multiple of training.split.ways, {job.ways}: give one"
        )
    return counts


def measured_compute_s(run_dir: Path) -> float:
    """Returns the median time of the computation per step of a run, without waiting for data and
    for other ranks, s.
    """
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
    """Returns the row with the most ranks that keeps an efficiency and has a batch for every rank.

    Returns `None` if there is none.
    """
    accepted = []
    for row in curve:
        has_batches = row.get("steps_per_epoch") != 0
        if has_batches and row["efficiency"] >= min_efficiency:
            accepted.append(row)
    return max(accepted, key=lambda row: row["ranks"], default=None)


class _Sections(NamedTuple):
    """The sections of a configuration that the model needs."""

    name: str
    network: Network
    training: Training
    samples: int | None  # training samples; `None` if there is no dataset


def _sections(config: Path, overrides: Sequence[str]) -> _Sections:
    """Returns name, network, training and samples of a configuration."""
    tree = read_yaml(config, overrides)
    if set(tree) <= {"network", "training"}:
        settings = {"epochs": 1} | tree.get("training", {})
        training = validate(Training, settings, f"{config}, section training")
        return _Sections(config.stem, read_network(tree, str(config)), training, None)
    experiment = load(config, overrides)
    return _Sections(
        experiment.name, experiment.network, experiment.training, _training_samples(experiment)
    )


def _training_samples(experiment: Experiment) -> int | None:
    """Number of training samples that the job takes of the dataset; `None` if there is no
    dataset.
    """
    if not (experiment.data.directory / manifest.FILE_NAME).exists():
        return None
    sample_count = int(manifest.read_header(experiment.data.directory)["splits"]["train"])
    return min(sample_count, experiment.training.samples or sample_count)


def _synchronisation(job: ScaledJob) -> Synchronisation | None:
    """The averages of local SGD; `None` where gradients are averaged."""
    every = job.strategy.synchronise
    if every == "step":
        return None
    return Synchronisation(
        block_bytes(job.work, job.strategy), every, job.strategy.averaged_per_weight > 1
    )
