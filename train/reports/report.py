"""report.html: what a run learned, in one file that needs no network and no script.

It is written from config.yaml, metrics.jsonl, evaluation.json and predictions.npz alone, so that it can be written
again later and elsewhere. A part whose file is missing says so.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
import yaml

from namsa.errors import InputError, WorkError
from namsa.files import write_text_atomic
from train.reports import figures
from train.reports.evaluate import read_predictions
from train.reports.runs import read_steps

Row = Mapping[str, Any]

FILES = ("config.yaml", "metrics.jsonl", "evaluation.json", "predictions.npz")
STEP_COLUMNS = ("step", "epoch", "loss", "huber", "lr", "delta", "step_s", "data_s", "comm_s")


class Metric(NamedTuple):
    """How a number of `train.measure.metrics` is written."""

    key: str
    title: str
    unit: str
    digits: str
    more_is_better: bool
    meaning: str

    def text(self, row: Row) -> str:
        """The number with its unit, of a row of evaluation.json."""
        return _number(row[self.key], self.digits) + (self.unit and f"\u00a0{self.unit}")


SSIM = Metric("ssim", "SSIM", "", "z.3f", True, "structural similarity, 1 is perfect")
PEARSON = Metric("pearson", "Pearson", "", "z.3f", True, "correlation of the pixels, 1 is perfect")
PSNR = Metric("psnr", "PSNR", "dB", "z.1f", True, "peak signal to noise; the peak is the truth's range")
MAE = Metric("mae", "MAE", "e/Å²", ".2f", False, "mean absolute error")
R_FACTOR = Metric("r_factor", "R", "", "z.3f", False, "Σ|error| / Σ|truth|, 0 is perfect")
HUBER = Metric("huber", "Huber", "", ".3g", False, "the training's loss without its decay of δ")
COMPARED = (SSIM, PEARSON, MAE, R_FACTOR)
COMPARED_HEAD = ("SSIM", "Pearson", "MAE, e/Å²", "R")


def write_report(run_dir: Path) -> Path:
    """Write `run_dir`/report.html and return its path.

    Raises InputError where `run_dir` holds nothing to report, WorkError where a file in it is damaged or the page
    cannot be written.
    """
    if not any((run_dir / name).is_file() for name in FILES):
        raise InputError(f"{run_dir} is no run directory: it has none of {', '.join(FILES)}")
    readers = (
        _config,
        lambda path: read_steps(path, STEP_COLUMNS),
        lambda path: json.loads(_text(path)),
        read_predictions,
    )
    config, steps, evaluation, predictions = (
        _read(run_dir / name, reader) for name, reader in zip(FILES, readers, strict=True)
    )
    run = evaluation["run"] if evaluation else {}
    if evaluation and not evaluation["samples"]:
        evaluation = None
    if steps and not len(steps["step"]):
        steps = None
    template = Template(Path(__file__).with_name("report_page.html").read_text(encoding="utf-8"))
    page = template.substitute(
        name=escape(config[0] if config else run_dir.resolve().name),
        headline=_headline(evaluation) if evaluation else _missing("No held-out sample has been evaluated."),
        means=_means(evaluation) if evaluation else "",
        pictures=_pictures(*predictions) if predictions else _missing("No pictures: predictions.npz is not there."),
        groups=_groups(evaluation) if evaluation else _missing("No held-out sample has been evaluated."),
        training=_training(steps) if steps else _missing("No step has been recorded in metrics.jsonl."),
        time=_time(steps) if steps else _missing("No step has been recorded in metrics.jsonl."),
        facts=_facts(run, steps),
        samples=_samples(evaluation["samples"]) if evaluation else _missing("None."),
        config=f"<pre>{escape(config[1])}</pre>" if config else _missing("config.yaml is not there."),
    )
    path = run_dir / "report.html"
    write_text_atomic(path, page)
    return path


# ---- Sections -------------------------------------------------------------------------------------------------------


def _headline(evaluation: Row) -> str:
    mean, rival = evaluation["mean"], evaluation["mean_predictor"]
    samples = [row for row in evaluation["samples"] if row["split"] == evaluation["split"]]
    compared = [row for row in samples if None not in (row["ssim"], row["mean_predictor"]["ssim"])]
    better = sum(row["ssim"] > row["mean_predictor"]["ssim"] for row in compared)
    ssim, pearson, mae = (
        f"{words} <strong>{metric.text(mean)}</strong> (mean image: {metric.text(rival)})"
        for metric, words in ((SSIM, "SSIM"), (PEARSON, "Pearson correlation"), (MAE, "mean absolute error"))
    )
    return (
        f'<p class="headline">On {_count(len(samples), "held-out sample")} of '
        f"{_count(len({row['material'] for row in samples}), 'material')} that training never saw, the network "
        f"reconstructs the projected electron density with {ssim}, {pearson} and {mae}. "
        f"That error is {_against(MAE, mean['mae'], rival['mae'])} than if every sample were answered with the mean "
        f"training image; the SSIM is higher in {better} of {len(compared)} samples.</p>"
    )


def _means(evaluation: Row) -> str:
    mean, rival = evaluation["mean"], evaluation["mean_predictor"]
    rows = [
        (
            f'{metric.title}<span class="note">{metric.meaning}</span>',
            metric.text(mean),
            metric.text(rival),
            _against(metric, mean[metric.key], rival[metric.key]),
        )
        for metric in (SSIM, PEARSON, MAE, R_FACTOR, PSNR, HUBER)
    ]
    head = ("", "Network", "Mean image", "The network's is")
    return _table(f"Means over the {evaluation['split']} split", head, rows, text_columns=1)


def _pictures(pictures: Sequence[Row], mean_image: npt.NDArray[Any]) -> str:
    if not pictures:
        return _missing("No pictures: no held-out sample has been evaluated.")
    return (
        "<p>The best, the median and the worst sample by SSIM are among these, and as many materials as there is room "
        "for. The mean image's numbers stand in brackets.</p>\n"
    ) + "\n".join(_picture(picture, mean_image) for picture in pictures)


def _picture(picture: Row, mean_image: npt.NDArray[Any]) -> str:
    numbers = ", ".join(
        f"{metric.title} {metric.text(picture)} ({metric.text(picture['mean_predictor'])})"
        for metric in (SSIM, PEARSON, MAE)
    )
    source = figures.data_uri(figures.sample_figure(picture, mean_image), "png")
    return (
        f"<figure><figcaption><strong>{escape(picture['material'])}</strong> along {_zone(picture['zone_axis'])}, "
        f"{picture['thickness_angstrom']:.1f} Å thick, {escape(picture['split'])} split: {numbers}</figcaption>"
        f'<img src="{source}" alt="Densities and patterns of {escape(picture["id"])}"></figure>'
    )


def _groups(evaluation: Row) -> str:
    thicknesses: dict[str, set[float]] = {}
    for row in evaluation["samples"]:
        thicknesses.setdefault(row["material"], set()).add(row["wanted_thickness_angstrom"])
    by_material = [
        (
            escape(row["material"]),
            _space_group(row["space_group"]),
            escape(row["split"]),
            ", ".join(f"{thickness:g}" for thickness in sorted(thicknesses[row["material"]])),
            str(row["samples"]),
            *_compared(row),
        )
        for row in evaluation["by_material"]
    ]
    by_thickness = [
        (f"{row['wanted_thickness_angstrom']:g}", str(row["samples"]), *_compared(row))
        for row in evaluation["by_thickness"]
    ]
    by_split = [(escape(row["split"]), str(row["samples"]), *_compared(row)) for row in evaluation["by_split"]]
    materials_head = ("Material", "Space group", "Split", "Thickness, Å", "Samples", *COMPARED_HEAD)
    return "\n".join(
        (
            "<p>Means over each group's samples; the mean image's in grey.</p>",
            _table("By material", materials_head, by_material, text_columns=4),
            '<div class="pair">',
            _table(
                f"By thickness, {evaluation['split']} split",
                ("Thickness, Å", "Samples", *COMPARED_HEAD),
                by_thickness,
                text_columns=1,
            ),
            _table("By split", ("Split", "Samples", *COMPARED_HEAD), by_split, text_columns=1),
            "</div>",
        )
    )


def _samples(samples: Sequence[Row]) -> str:
    scored = any("consistency_r" in row for row in samples)
    rows = [
        (
            escape(row["id"]),
            escape(row["formula"]),
            _zone(row["zone_axis"]),
            escape(row["split"]),
            f"{row['thickness_angstrom']:.1f}",
            *_compared(row),
            *([_explained(row)] if scored else []),
        )
        for row in samples
    ]
    head = ["Sample", "Formula", "Zone", "Split", "Thickness, Å", *COMPARED_HEAD]
    head += ["Patterns' R (of nothing)"] if scored else []
    return _table("", head, rows, text_columns=4)


def _explained(row: Row) -> str:
    """How far patterns of the network's density, and of nothing, are from the sample's; see `inverse.consistency`."""
    if "consistency_r" not in row:
        return _number(None, ".3f")
    return f"{_number(row['consistency_r'], '.3f')} ({_number(row['consistency_empty_r'], '.3f')})"


def _training(steps: figures.Steps) -> str:
    _, loss = figures.epoch_means(steps, "loss")
    skipped = int(np.count_nonzero(~np.isfinite(steps["loss"])))
    length = f"{_count(len(loss), 'epoch')}, {_count(len(steps['step']), 'step')}"
    text = f"The mean loss of an epoch went from {loss[0]:.3g} to {loss[-1]:.3g} in {length}."
    if skipped:
        text += f" {_count(skipped, 'step')} had no finite loss."
    return f"<p>{text}</p>{_plot(figures.loss_figure(steps), 'Loss, learning rate and Huber delta over the steps')}"


def _time(steps: figures.Steps) -> str:
    later = {name: column[1:] for name, column in steps.items()} if len(steps["step"]) > 1 else steps
    parts = {name: float(np.nansum(seconds)) for name, seconds in figures.time_parts(later).items()}
    whole = sum(parts.values()) or 1.0
    shares = ", ".join(f"{seconds / whole:.1%} {name}" for name, seconds in parts.items())
    text = (
        f"A step's time is {shares}. The median step takes {np.nanmedian(later['step_s']) * 1e3:.3g} ms on rank 0. "
        "Communication is what did not run beside computing, with the wait for the slowest rank; the first step, which "
        "builds the graph, is left out."
    )
    return f"<p>{text}</p>{_plot(figures.time_figure(later), 'The parts of the time of a step, over the steps')}"


def _facts(run: Row, steps: figures.Steps | None) -> str:
    facts = {key: value for key, value in run.items() if key != "performance"} | _performance(
        run.get("performance", {})
    )
    if steps:
        facts |= {"steps": len(steps["step"]), "time in steps": _duration(float(np.nansum(steps["step_s"])))}
    if not facts:
        return _missing("Nothing about the run has been recorded.")
    rows = [(escape(key.replace("_", " ")), escape(_plain(value))) for key, value in facts.items()]
    return _table("", (), rows, text_columns=2)


def _performance(measured: Row) -> dict[str, Any]:
    """`train.measure.performance`'s summary in words."""
    if not measured:
        return {}

    def spread(name: str, unit: str = "") -> str:
        values = measured[name]
        return f"{values['median']:.4g}{unit}, 68% between {values['low']:.4g} and {values['high']:.4g}"

    parts = ("t_comp_s", "t_comm_s", "t_misc_s", "waiting_for_data_s")
    facts = {
        "samples/s, all ranks": spread("samples_per_s"),
        "a step, mean of ranks": spread("step_s", " s"),
        "of that, median": ", ".join(f"{name.removesuffix('_s')} {measured[name]:.3g} s" for name in parts),
        "convolutions' FLOP/s, all ranks": f"sustained {measured['sustained_flop_per_s']:.4g}, "
        f"within t_comp {measured['peak_flop_per_s']:.4g}",
        "memory of rank 0": f"{measured['memory_mib_of_a_rank']:,.0f} MiB",
    }
    if "energy_j" in measured:
        facts["energy of the training steps"] = f"{measured['energy_j'] / 3.6e6:.4g} kWh"
    return facts


# ---- Pieces ---------------------------------------------------------------------------------------------------------


def _table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], text_columns: int) -> str:
    """Cells are HTML; those after the first `text_columns` are numbers."""

    def line(tag: str, cells: Sequence[str]) -> str:
        kinds = ("" if column < text_columns else ' class="number"' for column in range(len(cells)))
        row = "".join(f"<{tag}{kind}>{cell}</{tag}>" for kind, cell in zip(kinds, cells, strict=True))
        return f"<tr>{row}</tr>"

    title = f"<caption>{caption}</caption>" if caption else ""
    top = f"<thead>{line('th', head)}</thead>" if head else ""
    body = "\n".join(line("td", row) for row in rows)
    return f'<div class="scroll"><table>{title}{top}<tbody>\n{body}\n</tbody></table></div>'


def _plot(figure: Any, alt: str) -> str:
    return f'<figure><img class="plot" src="{figures.data_uri(figure, "svg")}" alt="{alt}"></figure>'


def _missing(text: str) -> str:
    return f'<p class="missing">{text}</p>'


def _compared(row: Row) -> list[str]:
    """The network's numbers, each with the mean image's behind it."""
    rival = row["mean_predictor"]
    return [
        f"{_number(row[metric.key], metric.digits)} <small>{_number(rival[metric.key], metric.digits)}</small>"
        for metric in COMPARED
    ]


def _against(metric: Metric, network: float | None, rival: float | None) -> str:
    """How the network's number stands to the mean image's: a ratio of errors, a difference of scores."""
    if network is None or rival is None:
        return "–"
    if metric.more_is_better:
        amount = metric.text({metric.key: abs(network - rival)})
        return f"{amount} {'higher' if network >= rival else 'lower'}"
    if min(network, rival) <= 0:
        return "–"
    return f"{max(network, rival) / min(network, rival):.1f} times {'larger' if network >= rival else 'smaller'}"


def _number(value: float | None, digits: str) -> str:
    return "–" if value is None else format(value, digits).replace("-", "−")


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def _zone(indices: Sequence[int]) -> str:
    """[1 −1 0] as crystallographers write it, with a bar for the minus."""
    return "[" + "".join(str(index) if index >= 0 else f"{-index}\u0304" for index in indices) + "]"


def _space_group(symbol: str) -> str:
    """P4_2/mnm and Fm-3m with the subscript and the bar that they stand for."""
    barred = re.sub(r"-(\d)", "\\1\u0304", escape(symbol))
    return re.sub(r"_(\d)", r"<sub>\1</sub>", barred)


def _duration(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    minutes, whole = divmod(rest, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {whole} s" if minutes else f"{seconds:.1f} s"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(inner)}" for key, inner in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if isinstance(value, float) else str(value)


# ---- Files ----------------------------------------------------------------------------------------------------------


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _config(path: Path) -> tuple[str, str]:
    """The experiment's name and the file's text."""
    text = _text(path)
    return str(yaml.safe_load(text)["name"]), text


def _read(path: Path, reader: Callable[[Path], Any]) -> Any:
    """What `reader` makes of the file; None where there is no file."""
    if not path.is_file():
        return None
    try:
        return reader(path)
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError, BadZipFile) as error:
        raise WorkError(f"{path} cannot be read: {error}") from None
