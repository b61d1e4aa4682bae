"""Runs that are packed as models, and what all packed models have in common."""

import hashlib
from pathlib import Path

import numpy as np

from train.__main__ import main
from train.apply.models import Model, load_model
from train.measure import rows
from train.optimization import checkpoint


def pack_run(run_dir: Path, out: Path, error: str) -> tuple[Model, str, Path]:
    """Packs a run of a task other than the density, checks its parts, and returns model, card and
    the run's weights.

    `error` is the key of validation.jsonl by which the weights were chosen.
    """
    assert main(["pack", str(run_dir), "--out", str(out)]) == 0
    assert sorted(path.name for path in out.iterdir()) == [
        "CARD.md",
        "calibration.json",
        "config.yaml",
        "digests.json",
        "learnt.json",
        "weights.npz",
    ]
    model = load_model(out)
    card = (out / "CARD.md").read_text(encoding="utf-8")
    assert str(run_dir.parent) not in (out / "config.yaml").read_text(encoding="utf-8")
    header, arrays = checkpoint.read(model.weights)
    errors = {row["step"]: row[error] for row in rows.read(run_dir / rows.VALIDATIONS)}
    newest = load_model(run_dir).weights
    best = run_dir / "best.npz"
    last = checkpoint.read(newest)[0]["step"]  # which these jobs validate
    is_best = min(errors.values()) < errors[last]
    expected, expected_arrays = checkpoint.read(best if is_best else newest)
    assert header["step"] == expected["step"]
    of_run = dict(zip(expected["variables"], expected_arrays, strict=True))
    for name, array in zip(header["variables"], arrays, strict=True):
        np.testing.assert_allclose(array, of_run[name], rtol=1e-3, atol=1e-6)
    assert f"{header['epoch']} epochs, {header['step']} steps" in card
    assert ("the lowest error on the dev split in a run of" in card) == is_best
    assert hashlib.sha256(model.weights.read_bytes()).hexdigest() in card
    assert header["digest"] in card
    assert 0.5 < (model.calibration.transmitted_fraction or 0) <= 1
    return model, card, best if is_best else newest
