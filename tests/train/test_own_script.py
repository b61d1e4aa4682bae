"""The scripts of docs/own_script.md train on a dataset and export their networks."""

import re
from pathlib import Path

import fake_samples
import keras
import numpy as np
import pytest
from paths import ROOT

from namsa.dataset import listing

PAGE = (ROOT / "docs/own_script.md").read_text(encoding="utf-8")
SCRIPTS = dict(re.findall(r"^## (\w+)\n.*?^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own_script")
    settings = fake_samples.config(split={"train": 0.6, "dev": 0.4, "test": 0})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listing, "select_materials", lambda *_, **__: fake_samples.MATERIALS)
        fake_samples.produce(folder / "data/quickstart", 0, 1, settings=settings)
    return folder


def run(name, folder, monkeypatch):
    """Returns what a script has left, and closes its files."""
    monkeypatch.chdir(folder)
    left = {"__name__": "__main__"}
    exec(compile(SCRIPTS[name], name, "exec"), left)
    return left


@pytest.mark.slow
def test_the_script_for_keras_trains_and_saves(folder, monkeypatch):
    left = run("Keras", folder, monkeypatch)
    try:
        losses = left["history"].history
        assert losses["loss"][-1] < losses["loss"][0]
        assert np.isfinite(losses["val_loss"]).all()
        channels = left["training"][0][0]
        loaded = keras.saving.load_model("own.keras")
        expected = left["network"].predict(channels, verbose=0)
        np.testing.assert_allclose(loaded.predict(channels, verbose=0), expected, rtol=1e-5)
    finally:
        left["training"].samples.close()
        left["held_out"].samples.close()


@pytest.mark.slow
def test_the_script_for_jax_trains_and_exports(folder, monkeypatch):
    jax = pytest.importorskip("jax")
    left = run("JAX", folder, monkeypatch)
    try:
        losses = left["losses"]
        per_epoch = len(losses) // 2
        assert np.mean(losses[per_epoch:]) < np.mean(losses[:per_epoch])
        channels = left["batch"](left["samples"][:1])[0]
        exported = jax.export.deserialize(bytearray(Path("own.jax").read_bytes()))
        outputs = exported.call(left["kernels"], channels)
        np.testing.assert_allclose(outputs, left["network"](left["kernels"], channels), rtol=1e-4)
    finally:
        left["samples"].close()


@pytest.mark.slow
def test_every_script_is_short():
    assert set(SCRIPTS) == {"Keras", "PyTorch", "JAX"} | set(SCRIPTS)
    for name in ("Keras", "PyTorch", "JAX"):
        lines = []
        for line in SCRIPTS[name].splitlines():
            if line.strip():
                lines.append(line)
        assert len(lines) <= 45, name
        compile(SCRIPTS[name], name, "exec")
