"""Scans of held-out specimens that were simulated as a whole, segmented by a trained network as files are.

    scripts/uv run python scripts/bench/segment_specimens.py [NAME] [--per-kind 10] [--work DIR] [--json]

Takes the network's configuration with larger cells, and of each kind of specimen with labels (`LABEL_NAMES`) the first
specimens of its test split. They are simulated once; the files stay in --work. Each scan is given to `train.segment`
with the calibration of the simulation. The table has the intersection over union of each class and their mean, from
the confusion matrices summed over the specimens of a kind, and the mean of an answer that calls every position matrix.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
from rich.console import Console
from rich.table import Table

import train
from namsa.crystals.select import select_materials
from namsa.dataset.entries import build_entries
from namsa.dataset.entry import Entry, material_of
from namsa.dataset.labels import LABEL_NAMES
from namsa.dataset.simulate_entry import simulate_entry
from namsa.errors import InputError
from namsa.io.calibration import CalibrationOverrides
from train.experiment import experiment
from train.experiment.experiment import Experiment
from train.tasks.segment.scores import confusion, scores


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", default="200kv-5mrad-segment", help="a network of the task segment")
    parser.add_argument("--per-kind", type=int, default=10, metavar="N")
    parser.add_argument("--side", type=float, default=36, metavar="ANGSTROM", help="of the square specimens")
    parser.add_argument("--work", type=Path, default=Path("data/segment-specimens"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    model = train.load_model(options.name)
    classes = model.experiment.training.segment.classes
    tables: dict[str, list[np.ndarray]] = {}
    for kind in sorted(kind for kind, names in LABEL_NAMES.items() if set(names) <= set(classes)):
        config = with_kind(model.folder / "config.yaml", kind, options.side)
        for entry, scan, labels in specimens(config, kind, options.per_kind, options.work):
            segmented = train.segment(scan, model, calibration(config), beam_intensity=1.0)
            truth = np.array([classes.index(name) for name in LABEL_NAMES[entry.kind]])[labels]
            tables.setdefault(kind, []).append(confusion(truth, segmented.labels, len(classes)))
    tables["all"] = [table for found in tables.values() for table in found]
    results = {}
    for kind, found in tables.items():
        results[kind] = scores([{"confusion": table.tolist(), "scans": 1} for table in found], classes)
    show(results, classes)
    if options.json:
        print(json.dumps({"mean_iou": results["all"]["mean_iou"], "kinds": results}))
    return 0


def with_kind(path: Path, kind: str, side: float) -> Experiment:
    """Returns a network's configuration for specimens of one kind, on square cells that the scan fills once."""
    own = experiment.load(path)
    assert own.scan.step_angstrom
    positions = int(side // max(own.scan.step_angstrom))
    return experiment.load(
        path,
        [
            f"specimen.kinds={{{kind}: 1}}",
            f"specimen.lateral_angstrom=[{side}, {side}]",
            "specimen.max_atoms=30000",
            f"scan.shape=[{positions}, {positions}]",
        ],
    )


def specimens(config: Experiment, kind: str, count: int, work: Path) -> Any:
    """Yields the manifest entry, the file with the scan, and the labels of held-out specimens."""
    materials = select_materials(config.materials)
    by_name = {material.name: material for material in materials}
    entries = [entry for entry in build_entries(config, materials) if entry.split == "test" and entry.kind == kind]
    order = np.random.default_rng(0).permutation(len(entries))
    folder = work / config.samples_hash()
    folder.mkdir(parents=True, exist_ok=True)
    made = 0
    for entry in (entries[number] for number in order):
        if made == count:
            return
        scan, labels = folder / f"{entry.id}.npy", folder / f"{entry.id}-labels.npy"
        if not labels.exists():
            try:
                simulate(config, by_name, entry, scan, labels)
            except InputError as error:  # as a dataset, which leaves out what cannot be made
                print(f"left out {entry.id}: {error}", file=sys.stderr, flush=True)
                continue
        made += 1
        yield entry, scan, np.load(labels)


def simulate(config: Experiment, materials: dict[str, Any], entry: Entry, scan: Path, labels: Path) -> None:
    """Simulates a specimen, and writes its patterns and its labels."""
    sample = simulate_entry(config, material_of(entry, materials), entry)
    assert sample.labels is not None
    np.save(scan, sample.cbed.reshape(config.pattern_shape()).astype(np.float32))
    np.save(labels, sample.labels)
    print(f"simulated {entry.id}", file=sys.stderr, flush=True)


def calibration(config: Experiment) -> CalibrationOverrides:
    """Returns what a recording's file would say."""
    assert config.detector
    return CalibrationOverrides(
        energy_ev=config.microscope.energy_ev,
        semiangle_mrad=config.microscope.semiangle_mrad,
        scan_step_angstrom=config.scan.step_angstrom,
        pixel_mrad=(config.detector.pixel_mrad,) * 2,
    )


def show(results: dict[str, Any], classes: Sequence[str]) -> None:
    """Prints the scores by kind of specimen."""
    table = Table("specimens", "scans", "mean IoU", *classes, "all matrix", box=None)
    for kind, found in results.items():
        ious = [found["iou"][name] for name in classes]
        table.add_row(
            kind,
            str(found["scans"]),
            f"{found['mean_iou']:.3f}",
            *("–" if iou is None else f"{iou:.3f}" for iou in ious),
            f"{found['baseline_mean_iou']:.3f}",
        )
    Console(width=100).print(table)


if __name__ == "__main__":
    sys.exit(main())
