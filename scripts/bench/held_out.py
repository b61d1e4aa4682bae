"""Noiseless held-out samples of a frozen benchmark, reconstructed by trained networks as files are: SSIM by thickness.

    scripts/uv run python scripts/bench/held_out.py [--checkpoint NAME ...] [--every 5]
        [--work DIR | --data DIR [--drawn]] [--json]

Takes every fifth id of the test list in configs/benchmark.manifest.json, simulates it with configs/benchmark.yaml
(once; the files stay in --work), and gives its patterns to `train.reconstruct` with the calibration of the simulation,
and nothing about the specimen. With `--data` the samples are every fifth of the test split of that dataset, as they are
stored there, or, with `--drawn`, with imperfections and dose as training draws them. "SSIM" is against the true density
at the positions, over the whole scan, "tenth" what a tenth of the samples are below. "size" is the rms error of the
factor of the true density that fits best, with its mean in brackets, "of heavy" that of samples with elements from Hf
on. "1σ" is the share of pixels whose error is within the stated uncertainty, "right" how often that is 0.55 to 0.85.
"ratio" is the mean SSIM of the last checkpoint over that of the first.
"""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
from ase.data import atomic_numbers
from ase.formula import Formula
from rich.console import Console
from rich.table import Table

import train
from namsa.config.simulation import SimulationConfig, load_config
from namsa.crystals.select import select_materials
from namsa.dataset import manifest
from namsa.dataset.entries import build_entries
from namsa.dataset.entry import Entry
from namsa.dataset.shards import Dataset
from namsa.dataset.simulate_entry import simulate_entry
from namsa.io.calibration import CalibrationOverrides
from train.apply.known_windows import known_windows
from train.experiment.experiment import Experiment
from train.measure.metrics import image_metrics

HEAVY = 72  # atomic number of hafnium
MOST_COLUMNS = 6  # of the table by thickness
CONFIG = Path(__file__).resolve().parents[2] / "configs" / "benchmark.yaml"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", nargs="+", default=["200kv-20mrad-reality"], metavar="NAME")
    parser.add_argument("--every", type=int, default=5)
    parser.add_argument("--work", type=Path, default=Path("data/held-out"))
    parser.add_argument("--data", type=Path, help="a dataset, in place of the frozen benchmark")
    parser.add_argument(
        "--drawn", action="store_true", help="with the imperfections of the first checkpoint's training"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.data:
        drawn_as = train.load_model(options.checkpoint[0]).experiment if options.drawn else None
        config, samples = load_config(options.data / "config.yaml"), list(stored(options.data, options.every, drawn_as))
    else:
        config = load_config(CONFIG)
        samples = list(written(write_samples(config, options.every, options.work), options.work))
    results = {}
    for checkpoint in options.checkpoint:
        model = train.load_model(checkpoint)
        results[checkpoint] = [evaluate(sample, model, config) for sample in samples]
    show(results)
    if options.json:
        means = [statistics.mean(row["ssim"] for row in rows) for rows in results.values()]
        print(json.dumps({"ratio": means[-1] / means[0], "rows": results}))
    return 0


def write_samples(config: SimulationConfig, every: int, folder: Path) -> list[Entry]:
    """Simulates the chosen samples that `folder` lacks, and returns their manifest entries."""
    folder.mkdir(parents=True, exist_ok=True)
    frozen = json.loads(CONFIG.with_suffix(".manifest.json").read_text(encoding="utf-8"))["test"]
    chosen = set(frozen[::every])
    materials = select_materials(config.materials)
    by_name = {material.name: material for material in materials}
    entries = [entry for entry in build_entries(config, materials) if entry.id in chosen]
    for entry in entries:
        path = folder / f"{entry.id}.npz"
        if not path.exists():
            sample = simulate_entry(config, by_name[entry.material], entry)
            patterns = sample.cbed.reshape(*config.scan.shape, *config.detector.shape).astype(np.float32)
            np.savez(path, patterns=patterns, density=sample.density)
            print(f"simulated {entry.id}", file=sys.stderr, flush=True)
    return entries


class HeldOut(NamedTuple):
    """A sample: its entry, patterns (sy, sx, dy, dx) as fractions of the beam, and density (sy, sx), e/Å²."""

    entry: Entry
    patterns: np.ndarray
    density: np.ndarray


def written(entries: Iterable[Entry], folder: Path) -> Iterator[HeldOut]:
    """Yields the samples of `write_samples`."""
    for entry in entries:
        with np.load(folder / f"{entry.id}.npz") as sample:
            yield HeldOut(entry, sample["patterns"], sample["density"])


def stored(directory: Path, every: int, drawn_as: Experiment | None = None) -> Iterator[HeldOut]:
    """Yields every `every`-th sample of the test split of a dataset, as it is or as a network's training draws it."""
    with Dataset(directory) as dataset:
        present = manifest.present(directory, dataset.ids)
        chosen = [entry for entry in present if entry.split == "test"][::every]
        if drawn_as:
            windows = known_windows(dataset, chosen, drawn_as)
            yield from (HeldOut(each.entry, each.patterns[0], each.density) for each in windows if each.is_last)
            return
        for entry in chosen:
            record = dataset.read(entry.id)
            patterns = record.patterns()
            yield HeldOut(entry, patterns.reshape(*record.density.shape, *patterns.shape[1:]), record.density)


def evaluate(sample: HeldOut, model: Any, config: SimulationConfig) -> dict[str, Any]:
    """Returns the numbers of a sample."""
    calibration = CalibrationOverrides(
        energy_ev=config.microscope.energy_ev,
        semiangle_mrad=config.microscope.semiangle_mrad,
        scan_step_angstrom=config.scan.step_angstrom,
        pixel_mrad=(config.detector.pixel_mrad,) * 2,
        centre_pixels=tuple((n - 1) / 2 for n in config.detector.shape),
    )
    entry, patterns, density = sample
    result = train.reconstruct(patterns, model, calibration, beam_intensity=1.0)
    row: dict[str, Any] = {"id": entry.id, "thickness_angstrom": entry.thickness_angstrom}
    row |= image_metrics(result.density, density, huber_delta=1.0)
    row["size"] = float((result.density * density).sum() / (density**2).sum())
    row["heavy"] = max(atomic_numbers[symbol] for symbol in Formula(entry.formula).count()) >= HEAVY
    if result.uncertainty is not None:
        row["cover_1"] = float(np.mean(np.abs(result.density - density) <= result.uncertainty))
    return row


def show(results: dict[str, list[dict[str, Any]]]) -> None:
    """Prints the mean of every network by thickness, and its worst samples."""
    rows = next(iter(results.values()))
    found = sorted({row["thickness_angstrom"] for row in rows})
    thicknesses = found if len(found) <= MOST_COLUMNS else []
    head = ("network", "SSIM", "tenth", *(f"{value:g} Å" for value in thicknesses), "size", "of heavy", "1σ", "right")
    table = Table(*head, "worst", box=None)
    for name, rows in results.items():
        means = [
            statistics.mean(row["ssim"] for row in rows if row["thickness_angstrom"] == value) for value in thicknesses
        ]
        cover, ssims = [row["cover_1"] for row in rows if "cover_1" in row], [row["ssim"] for row in rows]
        sizes = [[row["size"] for row in rows if row["heavy"] or not heavy] for heavy in (False, True)]
        worst = min(rows, key=lambda row: row["ssim"])
        table.add_row(
            name,
            *(f"{value:.4f}" for value in (statistics.mean(ssims), np.quantile(ssims, 0.1), *means)),
            *(
                f"{np.sqrt(np.mean((np.array(each) - 1) ** 2)):.3f} ({np.mean(each):.2f})" if each else "–"
                for each in sizes
            ),
            f"{statistics.mean(cover):.2f}" if cover else "–",
            f"{statistics.mean(0.55 <= each <= 0.85 for each in cover):.2f}" if cover else "–",
            f"{worst['ssim']:.3f} {worst['id']}",
        )
    Console(width=160).print(f"{len(rows)} samples", table)


if __name__ == "__main__":
    sys.exit(main())
