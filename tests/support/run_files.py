"""The files of a run directory with one held-out sample, for tests of reports."""

import json
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, cast

import numpy as np

from train.tasks.density.report.pictures import (
    ARRAYS,
    PictureFacts,
    SamplePicture,
    write_predictions,
)

RIVAL = {"huber": 0.4, "mae": 2.0, "psnr": 14.0, "ssim": 0.25, "pearson": 0.3, "r_factor": 0.8}
NETWORK = {"huber": 0.1, "mae": 0.5, "psnr": 24.0, "ssim": 0.75, "pearson": 0.9, "r_factor": 0.2}
FACTS = {
    "id": "MgO<b>-110-20A",
    "material": "MgO<b>",
    "formula": "MgO",
    "space_group": "P4_2/m-3",
    "split": "test",
    "zone_axis": [1, -1, 0],
    "thickness_angstrom": 20.4,
    "wanted_thickness_angstrom": 20.0,
}
STEP = {
    "epoch": 0,
    "loss": 2.0,
    "huber": 1.5,
    "lr": 1e-4,
    "delta": 10.0,
    "step_s": 0.1,
    "data_s": 0.01,
    "comm_s": 0.02,
}
TIMES = dict.fromkeys(("t_comp_s", "t_comm_s", "t_misc_s", "waiting_for_data_s"), 0.5)
SPREAD = {"median": 2.0, "low": 1.0, "high": 3.0}


class Page(HTMLParser):
    """Text, tags and attributes of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()
        self.text = " ".join(" ".join(self.words).split())

    @property
    def addresses(self) -> list[str | None]:
        return [value for name, value in self.attributes if name in ("src", "href", "action")]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "img", "br", "input"):
            self.open.append(tag)

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def evaluation(
    network: dict[str, float] = NETWORK,
    rival: dict[str, float] = RIVAL,
    facts: dict[str, Any] = FACTS,
) -> dict[str, Any]:
    numbers = network | {"mean_predictor": rival}
    split = facts["split"]
    return {
        "split": split,
        "mean": network,
        "mean_predictor": rival,
        "by_split": [{"split": split, "samples": 1} | numbers],
        "by_material": [
            {key: facts[key] for key in ("material", "formula", "space_group", "split")}
            | {"samples": 1}
            | numbers
        ],
        "by_thickness": [{"wanted_thickness_angstrom": 20.0, "samples": 1} | numbers],
        "run": {"ranks": 4, "parameters": 1234567, "versions": {"namsa": "0.1.0"}},
        "samples": [facts | numbers],
    }


def write_metrics(run_dir: Path, steps: Iterable[int], **more: Any) -> None:
    rows = []
    for step in steps:
        rows.append({"step": step} | STEP | {"loss": 2.0 / step, "huber": 1.5 / step} | more)
    (run_dir / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_picture(run_dir: Path, facts: dict[str, Any] = FACTS) -> None:
    rng = np.random.default_rng(0)
    shapes = {
        "truth": (8, 12),
        "prediction": (8, 12),
        "position_averaged": (6, 6),
        "patterns": (2, 6, 6),
    }
    arrays = {name: rng.random(shapes[name]).astype("f4") for name in ARRAYS}
    frames = {
        "density_frame": [[1.0, 1.0], [0.0, 0.0]],
        "pattern_frame": [[2.0, 2.0], [-5.0, -5.0]],
    }
    where = {
        "extent_angstrom": [8.0, 12.0],
        "probes_angstrom": [[1.0, 2.0], [3.0, 4.0]],
        "semiangle_mrad": 4.0,
    }
    where |= {"energy_ev": 200e3}
    facts = facts | NETWORK | {"mean_predictor": RIVAL} | frames | where
    picture = SamplePicture(cast(PictureFacts, facts), **arrays)
    write_predictions(run_dir / "predictions.npz", [picture], np.ones((8, 12)))
