"""Reliability of the consistency score on materials that training never saw.

    scripts/uv run python scripts/bench/trust.py runs/quickstart [--every 5] [--json]

Each density is simulated and compared with the patterns of the sample (`namsa.inverse.consistency`). The densities are
the true one, whose score is the lower limit that band limit, elements and the order along the beam set; that of the
network; and wrong ones, derived from the true one:

    shifted    by 2 and 1 scan steps                mirrored  in x
    stronger   times 1.5                            weaker    divided by 1.5
    sharper    to the power of 1.5, the same mean   another   of another material, the same mean

"fitted" is without the elements, with a fitted scale of the potential; "elements" is with them. A wrong density counts
as detected if its score is above that of the true one ("truth") or of the network's ("network"). Rank correlations are
over samples, between the score of the network's density and its true error.

"ratio" is the lowest score of the shifted, mirrored and other densities divided by that of the true one: the median
over samples.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
from ase.formula import Formula
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.ndimage import uniform_filter
from scipy.stats import spearmanr

from namsa.dataset import manifest
from namsa.dataset.shards import Dataset
from namsa.inverse import consistency, mott_bethe
from train.apply import ensemble, weights
from train.apply.models import load_model
from train.measure.metrics import image_metrics

WRONG_PLACE = ("shifted", "mirrored", "another")
WRONG_SIZE = ("stronger", "weaker", "sharper")


def main() -> int:
    options = parse()
    samples = list(measure(options))
    thicknesses = sorted({s["wanted"] for s in samples})
    summary = [summarise([s for s in samples if s["wanted"] == t], f"{t:g} Å") for t in thicknesses]
    summary.append(summarise(samples, "all"))
    show(summary)
    if options.json:
        ratio = float(np.median([min(s["fitted"][n] for n in WRONG_PLACE) / s["fitted"]["truth"] for s in samples]))
        print(json.dumps({"ratio": ratio, "summary": summary, "samples": samples}))
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=Path, help="a trained run whose target is on the scan")
    parser.add_argument("--every", type=int, default=5, help="every n-th held-out sample")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def measure(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    model = load_model(options.run_dir)
    experiment = model.experiment
    scan = experiment.scan.shape
    predict = ensemble.ensemble_predictor(weights.load_network(model, scan), model, ensemble.Views([0], 0))
    with Dataset(experiment.data.directory) as dataset:
        present = manifest.present(experiment.data.directory, dataset.ids)
        transfer = mott_bethe.fit(dataset.read(entry.id) for entry in present if entry.split == "train")
        every = [entry for entry in present if entry.split != "train"]
        held_out = every[:: options.every]
        for index, entry in enumerate(track(held_out, "samples", console=Console(stderr=True))):
            record = dataset.read(entry.id)
            p = record.provenance
            truth, thickness = record.density.astype(np.float64), p["thickness_angstrom"]
            patterns = record.patterns()
            network = predict(patterns.reshape(1, *scan, *patterns.shape[1:])).density[0, 0].astype(np.float64)
            alike = [
                e for e in every if e.thickness_angstrom == entry.thickness_angstrom and e.formula != entry.formula
            ]
            other = alike[index % len(alike)]
            candidates = {"truth": truth, "network": network} | false(truth, dataset.read(other.id).density)
            extent = tuple(p["extent_angstrom"])
            simulation = consistency.scan_simulation(experiment, thickness, scan, None, extent)
            elements = mott_bethe.from_elements(
                Formula(entry.formula).count(), transfer.max_q_per_angstrom, experiment.simulation.form_factors
            )
            found: dict[str, Any] = {"id": entry.id, "wanted": entry.thickness_angstrom}
            found["error"] = numbers(network, truth, experiment)
            for name, way in (("fitted", transfer), ("elements", elements)):
                checks = {
                    key: consistency.check(density, patterns, simulation, way) for key, density in candidates.items()
                }
                found[name] = {key: check.score for key, check in checks.items()} | {"empty": checks["truth"].empty}
                if name == "fitted":
                    error = uniform_filter(abs(network - truth), 3).ravel()[simulation.inside]
                    found["local"] = float(spearmanr(checks["network"].map.ravel()[simulation.inside], error)[0])
            yield found


def false(truth: Any, other: Any) -> dict[str, Any]:
    sharp = np.clip(truth, 0, None) ** 1.5
    return {
        "shifted": np.roll(truth, (2, 1), (0, 1)),
        "mirrored": truth[:, ::-1],
        "another": other * (truth.mean() / other.mean()),
        "stronger": 1.5 * truth,
        "weaker": truth / 1.5,
        "sharper": sharp * (truth.mean() / sharp.mean()),
    }


def numbers(density: Any, truth: Any, experiment: Any) -> dict[str, Any]:
    delta, scale = experiment.training.loss.huber_delta, experiment.training.inputs.density_scale_e_per_angstrom2
    return image_metrics(density, truth, huber_delta=delta, density_scale=scale)


def summarise(samples: list[dict[str, Any]], name: str) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "samples": len(samples)}
    for way in ("fitted", "elements"):
        scores = {key: np.array([s[way][key] for s in samples]) for key in samples[0][way]}
        row[way] = {
            "median": {key: float(np.median(values)) for key, values in scores.items()},
            "truth": {key: float(np.mean(scores["truth"] < scores[key])) for key in (*WRONG_PLACE, *WRONG_SIZE)},
            "network": {key: float(np.mean(scores["network"] < scores[key])) for key in (*WRONG_PLACE, *WRONG_SIZE)},
            "correlation": {
                key: float(spearmanr(scores["network"], [s["error"][key] for s in samples])[0])
                for key in ("mae", "r_factor")
            },
        }
    row["local"] = float(np.median([s["local"] for s in samples]))
    return row


def show(summary: list[dict[str, Any]]) -> None:
    console = Console(width=160)
    columns = ("empty", "truth", "network", *WRONG_PLACE, *WRONG_SIZE)
    table = Table(title="Median R (found against truth / against the network's)")
    for head in ("samples", "transfer", *columns, "ρ(MAE)", "ρ(R factor)"):
        table.add_column(head)
    for row in summary:
        for way in ("fitted", "elements"):
            part = row[way]
            cells = [f"{part['median'][column]:.3f}" for column in columns]
            for at, column in enumerate(columns[3:], start=3):
                cells[at] += f" ({part['truth'][column]:.0%}/{part['network'][column]:.0%})"
            ranks = [f"{part['correlation'][key]:+.2f}" for key in ("mae", "r_factor")]
            table.add_row(f"{row['name']}, {row['samples']}", way, *cells, *ranks)
    console.print(table)
    local = summary[-1]["local"]
    console.print(f"Rank correlation of the map with the local error, within a sample: {local:.2f} (median)")


if __name__ == "__main__":
    sys.exit(main())
