"""Pictures at the head of guides: `scripts/uv run python scripts/docs_pictures.py [NAME ...]`.

They are written to docs/images. `training` and `own_script` need the run of the quickstart, in
runs/quickstart, and its samples, in data/quickstart; the pictures of `docs_scans.py` need scans.
"""

import contextlib
import io
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import docs_scans
import matplotlib
import numpy as np
import yaml
from docs_diagrams import (
    coming_from,
    division,
    exchange,
    exchange_kinds,
    install,
    sources,
    structure,
)
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from namsa.config.loading import read_yaml
from namsa.physics.grid import Grid
from namsa.physics.optics import BeamSettings, lens, probes
from train.networks import count, read_network

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs/images"
ENERGY_TOLERANCE = 0.02
SEMIANGLE_TOLERANCE = 0.05
WIDTH = 900  # of a picture at most, pixels
COLOURS = 256  # of a picture
MANY_COLOURS = (
    "simulate",
    "inspection",
    "reconstruction",
    "classify",
    "segment",
)  # pictures with several colour maps


def which_network() -> Figure:
    """Draws the energies and semiangles that the networks of the package accept."""
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    axes = figure.subplots()
    names: dict[tuple[float, float], list[str]] = {}
    for folder in sorted((ROOT / "train/models").iterdir()):
        config = folder / "config.yaml"
        if not config.exists():
            continue
        microscope = yaml.safe_load(config.read_text(encoding="utf-8"))["microscope"]
        place = (microscope["energy_ev"] / 1e3, microscope["semiangle_mrad"])
        names.setdefault(place, []).append(folder.name)
    for (energy_kev, semiangle_mrad), here in names.items():
        width = 2 * ENERGY_TOLERANCE * energy_kev
        height = 2 * SEMIANGLE_TOLERANCE * semiangle_mrad
        corner = (energy_kev - width / 2, semiangle_mrad - height / 2)
        axes.add_patch(Rectangle(corner, width, height, alpha=0.5))
        axes.text(energy_kev + width, semiangle_mrad, "\n".join(here), va="center", fontsize=8)
    axes.set(xlim=(60, 400), ylim=(0, 30))
    axes.set(xlabel="energy (keV)", ylabel="convergence semiangle (mrad)")
    return figure


def networks() -> Figure:
    """Draws the number of trained parameters of the neighbouring papers' networks."""
    parameters = {}
    for path in sorted((ROOT / "configs/neighbours").glob("*.yaml")):
        config = read_network(read_yaml(path, []), str(path))
        parameters[path.stem] = count(config).trainable_parameters
    order = sorted(parameters, key=parameters.__getitem__)
    figure = Figure(figsize=(7, 3), layout="constrained")
    axes = figure.subplots()
    axes.barh(order, [parameters[name] for name in order])
    axes.set(xscale="log", xlabel="trained parameters")
    return figure


def microscope() -> Figure:
    """Draws the probes at the ends of the ranges of configs/microscope.yaml."""
    grid = Grid(shape=(320, 320), extent_angstrom=(32.0, 32.0))
    cases = {
        "in focus": {},
        "C10 = 100 Å": {"C10": 100.0},
        "C12 = 30 Å": {"C12": 30.0},
        "C21 = 500 Å": {"C21": 500.0},
        "C30 = 2 µm": {"C30": 2e4},
    }
    figure = Figure(figsize=(10, 2.4), layout="constrained")
    for axes, (title, aberrations) in zip(figure.subplots(1, 5), cases.items(), strict=True):
        beam = BeamSettings(energy_ev=300e3, semiangle_mrad=21.4, aberrations=aberrations)
        (wave,) = np.fft.ifft2(probes(lens(grid, beam), grid, np.array([[16.0, 16.0]])))
        axes.imshow(np.abs(wave), extent=(-16, 16, 16, -16), cmap="magma")
        axes.set(title=title, xlabel="x (Å)", xlim=(-5, 5), ylim=(5, -5))
    return figure


def training() -> Figure:
    """Draws the losses of the quickstart, and a held-out density beside its prediction: that with
    the median SSIM of the samples whose pictures the run keeps.
    """
    run = ROOT / "runs/quickstart"
    losses: dict[int, list[float]] = {}
    for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if "huber" in row:
            losses.setdefault(row["epoch"] + 1, []).append(row["huber"])
    lines = (run / "validation.jsonl").read_text(encoding="utf-8").splitlines()
    validations = [json.loads(line) for line in lines]
    with np.load(run / "predictions.npz") as stored:
        samples = json.loads(str(stored["metadata"]))
        sample = sorted(samples, key=lambda sample: sample["ssim"])[len(samples) // 2]
        truth = stored[f"{sample['id']}/truth"]
        prediction = stored[f"{sample['id']}/prediction"]
    figure = Figure(figsize=(10, 2.9), layout="constrained")
    loss, left, right = figure.subplots(1, 3)
    loss.semilogy([*losses], [np.mean(values) for values in losses.values()], label="training")
    validated = [(row["epoch"], row["huber"]) for row in validations]
    loss.semilogy(*zip(*validated, strict=True), "o--", label="materials of the dev split")
    loss.set(xlabel="epoch", ylabel="Huber loss")
    loss.legend(fontsize=8)
    words = f"{sample['formula']}, {sample['thickness_angstrom']:.1f} Å thick, details of 0.8 Å"
    titles = (f"{words}:\ndensity", f"prediction\n(SSIM {sample['ssim']:.2f})")
    for axes, image, title in zip((left, right), (truth, prediction), titles, strict=True):
        drawn = axes.imshow(image, vmin=truth.min(), vmax=truth.max())
        axes.set(title=title, xticks=[], yticks=[])
        figure.colorbar(drawn, ax=axes, label="e/Å²")
    return figure


def own_script() -> Figure:
    """Draws the losses of the scripts of docs/own_script.md for Keras and JAX, trained longer."""
    page = (ROOT / "docs/own_script.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## (\w+)\n.*?^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    scripts = dict(sections)
    left: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("data").symlink_to(ROOT / "data")
        for name in ("Keras", "JAX"):
            left[name] = {"__name__": "__main__"}
            script = scripts[name].replace("epochs=2", "epochs=8").replace("range(2)", "range(8)")
            exec(script, left[name])
    history = left["Keras"]["history"].history
    losses = np.reshape(left["JAX"]["losses"], (8, -1)).mean(axis=1)
    epochs = np.arange(1, 9)
    figure = Figure(figsize=(6, 2.6), layout="constrained")
    axes = figure.subplots()
    axes.plot(epochs, history["loss"], "C0o-", label="Keras, training")
    axes.plot(epochs, history["val_loss"], "C0o--", label="Keras, held-out materials")
    axes.plot(epochs, losses, "C1s-", label="JAX, training")
    axes.set(xlabel="epoch", ylabel="Huber loss of the density", ylim=(0, None))
    axes.legend(fontsize=8)
    return figure


PICTURES = {
    "simulate": docs_scans.simulate,
    "view": docs_scans.view,
    "reading": docs_scans.reading,
    "inspection": docs_scans.inspection,
    "reconstruction": docs_scans.reconstruction,
    "classify": docs_scans.classify,
    "segment": docs_scans.segment,
    "estimate": docs_scans.estimate,
    "live": docs_scans.live,
    "parallax": docs_scans.parallax,
    "which_network": which_network,
    "networks": networks,
    "microscope": microscope,
    "training": training,
    "own_script": own_script,
    "exchange": exchange,
    "division": division,
    "exchange_kinds": exchange_kinds,
    "sources": sources,
    "install": install,
    "coming_from": coming_from,
    "structure": structure,
}


def main(names: list[str]) -> None:
    """Draws the pictures of some names; all without a name."""
    matplotlib.rcParams["font.size"] = 9
    for name in names or PICTURES:
        drawn = io.BytesIO()
        PICTURES[name]().savefig(drawn, dpi=90)
        picture = Image.open(drawn).convert("RGB")
        if picture.width > WIDTH:
            height = round(picture.height * WIDTH / picture.width)
            picture = picture.resize((WIDTH, height), Image.Resampling.LANCZOS)
        if name in MANY_COLOURS:
            picture.save(IMAGES / f"{name}.jpg", quality=80, optimize=True)
        else:
            picture.quantize(COLOURS).save(IMAGES / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main(sys.argv[1:])
