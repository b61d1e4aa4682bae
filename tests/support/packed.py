"""Runs that are packed as models, and what all packed models have in common."""

import hashlib
from pathlib import Path

import numpy as np

from train.__main__ import main
from train.optimization import checkpoint
from train.reconstruction.models import Model, load_model


def pack_run(run_dir: Path, out: Path) -> tuple[Model, str]:
    """Packs a run of a task other than the density by the command, checks its parts, and returns model and card."""
    assert main(["pack", str(run_dir), "--out", str(out)]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["CARD.md", "calibration.json", "config.yaml", "weights.npz"]
    model, card = load_model(out), (out / "CARD.md").read_text(encoding="utf-8")
    assert str(run_dir.parent) not in (out / "config.yaml").read_text(encoding="utf-8")
    best, best_arrays = checkpoint.read(run_dir / "best.npz")
    header, arrays = checkpoint.read(model.weights)
    assert header["step"] == best["step"]
    of_best = dict(zip(best["variables"], best_arrays, strict=True))
    for name, array in zip(header["variables"], arrays, strict=True):
        np.testing.assert_allclose(array, of_best[name], rtol=1e-3, atol=1e-6)
    assert f"{best['epoch']} epochs, {best['step']} steps" in card
    newest = checkpoint.read(load_model(run_dir).weights)[0]
    assert ("the lowest error on the dev split in a run of" in card) == (newest["step"] != best["step"])
    assert hashlib.sha256(model.weights.read_bytes()).hexdigest() in card
    assert header["digest"] in card
    assert 0.5 < (model.calibration.transmitted_fraction or 0) <= 1
    return model, card
