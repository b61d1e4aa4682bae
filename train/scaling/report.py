"""`python -m train scaling CONFIG`: how far a job scales, how many ranks to ask for, and how the model was checked."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict
from itertools import takewhile
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from fcdensenet.count import count
from namsa.config.loading import read_yaml, validate
from namsa.dataset import manifest
from namsa.errors import InputError
from train.experiment.experiment import Experiment, load
from train.experiment.sections import Reduction
from train.reports.runs import read_steps
from train.scaling import fit as scaling_fit
from train.scaling.model import Machine, Strategy, Workload, step, workload
from train.scaling.published import STRATEGIES, facts

Row = dict[str, Any]


def report(
    config: Path,
    overrides: Sequence[str] = (),
    *,
    ranks: str = "1..27600",
    machine: Path | None = None,
    run_dir: Path | None = None,
    samples: int | None = None,
    worthwhile: float = 0.9,
    measured: Path | None = None,
) -> Row:
    """What `train scaling` prints, JSON types only.

    ranks: "1..N", or numbers with commas between them
    machine: a YAML file with the keys of `scaling.Machine`; none is Summit
    run_dir: a run on one rank, whose steps say how long one computes; none takes the network's FLOP
    samples: in the training split; none asks the dataset, where it is there
    worthwhile: the lowest efficiency that the recommendation accepts
    measured: output of scripts/bench/reduction.py, to which the coordinator's costs are fitted; see `scaling_fit`

    Raises InputError for what cannot be read.
    """
    experiment = load(config, overrides)
    made_of = validate(Machine, read_yaml(machine), str(machine)) if machine else Machine()
    training, strategy = experiment.training, strategy_of(experiment.training.reduction)
    batch = training.batch_size
    compute_s = (
        measured_s(run_dir) if run_dir else batch * count(experiment.network).step_flop / made_of.sustained_flop_per_s
    )
    load_ = workload(
        experiment.network, "float16" if training.reduction.compression == "fp16" else "float32", compute_s
    )
    samples = samples if samples is not None else _training_samples(experiment)
    curve = [
        _row(made_of, load_, strategy, number, batch, training.epochs, samples)
        for number in rank_counts(ranks, made_of)
    ]
    return {
        "name": experiment.name,
        "machine": made_of.name,
        "compute_s": compute_s,
        "strategy": asdict(strategy),
        "samples": samples,
        "curve": curve,
        "recommended": recommended(curve, worthwhile),
        "worthwhile": worthwhile,
        "published": [asdict(fact) for fact in facts(Machine())],
        "measured": scaling_fit.fit(measured) if measured else None,
    }


def strategy_of(reduction: Reduction) -> Strategy:
    """What a configuration asks Horovod for; reductions that are not hierarchical are NCCL's trees."""
    return Strategy(
        "bitvector" if reduction.cache_capacity else "master-worker",
        reduction.groups,
        "hierarchical" if getattr(reduction, "hierarchical", False) else "tree",
        bool(getattr(reduction, "lag", False)),
        cycle_s=reduction.cycle_time_ms / 1e3,
        fusion_bytes=reduction.fusion_threshold_mib * 2**20,
    )


def rank_counts(text: str, machine: Machine) -> list[int]:
    """1..N: powers of two within a node, then whole nodes, doubling up to N; or the numbers that are listed."""
    try:
        if ".." not in text:
            numbers = [int(number) for number in text.split(",")]
        else:
            first, last = (int(number) for number in text.split(".."))
            if not 1 <= first <= last:
                raise ValueError
            node = machine.ranks_per_node
            small = [2**power for power in range(20) if 2**power < node]
            whole = list(takewhile(lambda number: number < last, (node * 2**power for power in range(40))))
            numbers = [number for number in [*small, *whole] if first <= number < last] + [last]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise InputError(f"--ranks {text}: write 1..27600, or numbers from 1 on with commas between them")
    return numbers


def measured_s(run_dir: Path) -> float:
    """The median computation of a step in `run_dir`, in seconds: without waiting for data and for other ranks."""
    path = run_dir / "metrics.jsonl"
    try:
        steps = read_steps(path, ("step_s", "data_s", "comm_s"))
        times = steps["step_s"] - steps["data_s"] - steps["comm_s"]
        return statistics.median(times[len(times) // 10 :].tolist())  # the first steps compile
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot read steps from {path} ({error}): give the directory of a run that has trained"
        ) from None


def recommended(curve: Sequence[Row], worthwhile: float) -> Row | None:
    """The row with the most ranks that are worth their while and that all have a batch."""
    useful = [row for row in curve if row["efficiency"] >= worthwhile and row.get("steps_per_epoch") != 0]
    return max(useful, key=lambda row: row["ranks"], default=None)


def _training_samples(experiment: Experiment) -> int | None:
    if not (experiment.data.directory / manifest.FILE_NAME).exists():
        return None
    return int(manifest.read_header(experiment.data.directory)["splits"]["train"])


def _row(
    machine: Machine, load_: Workload, strategy: Strategy, ranks: int, batch: int, epochs: int, samples: int | None
) -> Row:
    taken = step(machine, load_, strategy, ranks)
    row: Row = {
        "ranks": ranks,
        "efficiency": load_.compute_s / taken.seconds,
        "step_s": taken.seconds,
        "operations": taken.operations,
        "samples_per_s": ranks * batch / taken.seconds,
        "others": {
            name: load_.compute_s / step(machine, load_, other, ranks).seconds for name, other in STRATEGIES.items()
        },
    }
    if samples is not None:
        row["steps_per_epoch"] = samples // (ranks * batch)
        row["hours"] = epochs * row["steps_per_epoch"] * taken.seconds / 3600
    return row


# ---- For people -----------------------------------------------------------------------------------------------------


def show(found: Row, console: Console) -> None:
    """The curve, the recommendation and the check against what was published, as tables."""
    table = Table(
        title=f"{found['name']} on {found['machine']}: a step of {found['compute_s']:.3g} s a rank", box=box.SIMPLE_HEAD
    )
    columns = ["ranks", "efficiency", "step, s", "samples/s", *(["steps/epoch", "hours"] if found["samples"] else [])]
    for column in columns:
        table.add_column(column, justify="right")
    for row in found["curve"]:
        cells = [
            f"{row['ranks']:,}",
            f"{row['efficiency']:.3f}",
            f"{row['step_s']:.4g}",
            f"{row['samples_per_s']:,.4g}",
        ]
        if found["samples"]:
            cells += [f"{row['steps_per_epoch']:,}", f"{row['hours']:.3g}" if row["steps_per_epoch"] else "–"]
        table.add_row(*cells)
    console.print(table)
    console.print(_advice(found), highlight=False)
    console.print(_check(found["published"]))
    if found["measured"]:
        console.print(_fitted(found["measured"]))


def _advice(found: Row) -> str:
    best = found["recommended"]
    if best is None:
        return f"No number of ranks here reaches an efficiency of {found['worthwhile']:g} with a batch for each."
    text = (
        f"Ask for up to {best['ranks']:,} ranks: the most of these that keep an efficiency of {found['worthwhile']:g}"
        + (" and have a batch each." if found["samples"] else ".")
    )
    if not found["samples"]:
        text += " With --samples, or once the dataset is there, hours are told too."
    return text


def _check(published: Sequence[Row]) -> Table:
    table = Table(title="The model against what was published of Summit", box=box.SIMPLE_HEAD)
    for column in ("", "published", "model", "fitted to it", "source"):
        table.add_column(column, justify="left" if column in ("", "source") else "right")
    for fact in published:
        sign = "≥ " if fact["kind"] == "at_least" else ""
        row = (fact["name"], f"{sign}{fact['published']:g}", f"{fact['model']:.3g}", "yes" if fact["fitted"] else "no")
        table.add_row(*row, fact["source"])
    return table


def _fitted(measured: Row) -> Table:
    title = (
        f"The coordinator as measured: {1e6 * measured['cycle_s']:.3g} µs a cycle, "
        f"{1e6 * measured['message_s']:.3g} µs a message, {1e6 * measured['announcement_s']:.3g} µs a gradient and "
        f"rank; at most {100 * measured['worst']:.0f}% off where not fitted"
    )
    table = Table(title=title, box=box.SIMPLE_HEAD)
    for column in ("ranks", "", "measured, ms", "model, ms", "fitted to it"):
        table.add_column(column, justify="left" if column == "" else "right")
    for row in measured["rows"]:
        times = (f"{1e3 * row[name]:.3g}" for name in ("measured_s", "model_s"))
        table.add_row(str(row["ranks"]), row["arm"], *times, "yes" if row["fitted"] else "no")
    return table
