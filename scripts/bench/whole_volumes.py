"""Whole scans against parts of them at equally many voxels: the hypothesis of Oyama et al. 2020, on a density by depth.

    scripts/uv run python scripts/bench/whole_volumes.py configs/depth.yaml --run-dir runs/volumes [--ways 2] \
        [--set KEY=VALUE ...] [--json]

Two networks learn from the same samples in the same number of steps, each of which sees the same number of voxels: one
from whole scans, the other from windows of 1/ways of each side, drawn anew each epoch, ways² times as many in a batch
and in the epochs. Schedules are stretched to the same steps. Both are then scored on the same voxels, those of all
positions of the test samples: the first takes a scan at once, the second its ways² parts one by one. "middle" is the
error on the positions that are at least a quarter of a part's side from a border of parts, "border" on the others.

"ratio" is the error of the parts, Σ|p − t| / Σ|t| in the mean over samples, divided by that of whole scans.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from namsa.dataset import manifest
from namsa.dataset.shards import Dataset
from train.apply.models import load_model
from train.apply.weights import load_network
from train.experiment.experiment import Experiment, load
from train.input import windows
from train.tasks.density.evaluate import Predict, predictor

Array = npt.NDArray[Any]


def main() -> int:
    options = parse()
    whole = load(options.config, options.set)
    runs = {"whole": options.set, "parts": [*options.set, *settings_of_parts(whole, options.ways)]}
    for name, settings in runs.items():
        command = [sys.executable, "-m", "train", str(options.config), "--run-dir", str(options.run_dir / name)]
        subprocess.run([*command, *itertools.chain(*(("--set", each) for each in settings))], check=True)
    scores = score({name: options.run_dir / name for name in runs}, options.ways)
    table = Table("", "whole scans", f"parts, 1/{options.ways} a side", title="Σ|p − t| / Σ|t|")
    for place in ("all", "middle", "border"):
        table.add_row(place, *(f"{scores[name][place]:.4f}" for name in runs))
    Console().print(table)
    if options.json:
        print(json.dumps({"ratio": scores["parts"]["all"] / scores["whole"]["all"], **scores}))
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path, help="an experiment with layout scan or depth")
    parser.add_argument("--run-dir", type=Path, required=True, help="folder for both runs, which resume")
    parser.add_argument("--ways", type=int, default=2, help="parts along each side of a scan")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def settings_of_parts(whole: Experiment, ways: int) -> list[str]:
    """Returns the settings by which the job sees parts, with as many steps and voxels per step."""
    training, parts = whole.training, ways**2
    shape = [*whole.network.input_shape[:-2], *(side // ways for side in whole.network.input_shape[-2:])]
    schedule = training.schedule
    return [
        f"network.input_shape={shape}",
        f"training.batch_size={parts * training.batch_size}",
        f"training.epochs={parts * training.epochs}",
        f"training.schedule.warmup_epochs={parts * schedule.warmup_epochs}",
        f"training.schedule.decay_every_epochs={parts * schedule.decay_every_epochs}",
        f"training.loss.huber_delta_decay={training.loss.huber_delta_decay ** (1 / parts):.8f}",
    ]


def score(run_dirs: dict[str, Path], ways: int) -> dict[str, dict[str, float]]:
    """Returns the errors of both networks on all positions of the test samples, by place."""
    experiments = {name: load_model(path).experiment for name, path in run_dirs.items()}
    predict = {name: _predictor(path) for name, path in run_dirs.items()}
    scan = experiments["whole"].window_shapes()[1]
    side = experiments["parts"].window_shapes()[1]
    border = _near_borders(scan, side)
    errors: dict[str, list[list[float]]] = {name: [] for name in run_dirs}
    directory = experiments["whole"].data.directory
    with Dataset(directory) as dataset:
        for entry in manifest.present(directory, dataset.ids):
            if entry.split != "test":
                continue
            record = windows.middle(dataset.read(entry.id), scan)
            truth = record.density_by_depth if record.density_by_depth is not None else record.density[None]
            estimates = {"whole": predict["whole"]([record])[0].reshape(truth.shape), "parts": np.empty(truth.shape)}
            for row, column in itertools.product(range(ways), repeat=2):
                corner = row * side[0], column * side[1]
                place = (..., slice(corner[0], corner[0] + side[0]), slice(corner[1], corner[1] + side[1]))
                part = predict["parts"]([windows.cut(record, corner, side)])[0]
                estimates["parts"][place] = part.reshape(estimates["parts"][place].shape)
            for name, estimate in estimates.items():
                error = abs(estimate - truth)
                places = (np.ones_like(border), ~border, border)
                errors[name].append(
                    [float(error[:, place].sum() / abs(truth[:, place]).sum()) for place in places if place.any()]
                )
    means = {name: np.mean(rows, axis=0).tolist() for name, rows in errors.items()}
    return {name: dict(zip(("all", "middle", "border"), values, strict=True)) for name, values in means.items()}


def _predictor(run_dir: Path) -> Predict:
    """Returns the network of a run as a function of records."""
    model = load_model(run_dir)
    experiment = model.experiment
    network = load_network(model, experiment.window_shapes()[1])
    inputs, data_format = experiment.training.inputs, experiment.network.data_format
    return predictor(network, inputs, data_format, experiment.channels(), depth_bins=experiment.target.depth_bins)


def _near_borders(scan: tuple[int, int], side: tuple[int, int]) -> npt.NDArray[np.bool_]:
    """Returns which positions are nearer than a quarter of a part's side to a border of parts, `scan`."""
    near = []
    for count, part in zip(scan, side, strict=True):
        place = np.arange(count) % part + 0.5
        near.append(np.minimum(place, part - place) < part / 4)
    return near[0][:, None] | near[1][None, :]


if __name__ == "__main__":
    sys.exit(main())
