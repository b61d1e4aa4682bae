"""The rivals' judge: images are compared at the right places, and the search keeps what is best."""

import argparse
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from namsa.frame import Frame
from train.columns import Columns

PATH = Path(__file__).parents[2] / "scripts/bench/rivals.py"
SHAPE, STEP, ORIGIN = (20, 24), (0.4, 0.5), (7.3, -2.1)
NO_COLUMNS = Columns(np.empty((0, 2)), np.empty(0), np.empty(0, bool))
OPTIONS = argparse.Namespace(axes=99)


@pytest.fixture(scope="module")
def rivals():
    spec = importlib.util.spec_from_file_location("rivals", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules["rivals"] = module  # where dataclasses look for their module
    spec.loader.exec_module(module)
    return module


def field(y, x):
    """Periodic over 12 × 15 Å, and far from the window's end at 1.25 /Å."""
    return np.cos(2 * np.pi * y[:, None] / 6) + np.sin(2 * np.pi * x[None, :] / 5) * np.sin(2 * np.pi * y[:, None] / 4)


def stack(rivals, name="one", scale=3.0):
    y, x = (o + s * np.arange(n) for o, s, n in zip(ORIGIN, STEP, SHAPE, strict=True))
    truth = {wanted: scale * field(y - ORIGIN[0], x - ORIGIN[1]) + 5 for wanted in rivals.TARGETS}
    return rivals.Stack(name, np.empty(0), {}, Frame(STEP, ORIGIN), truth, NO_COLUMNS, max_q=1.25)


def test_an_object_is_sampled_where_the_target_is(rivals, monkeypatch):
    step, first = np.array([0.25, 0.3]), np.array([1.1, 2.3])
    y, x = (s * np.arange(n) - f for s, n, f in zip(step, (48, 50), first, strict=True))
    answer = {"phases": [field(y, x)], "step": step, "first": first, "seconds": [1.0], "losses": [2.0]}
    monkeypatch.setattr(rivals, "reconstruct", lambda *arguments: answer)
    one = stack(rivals)
    plain, windowed = rivals.images("quantem, single slice", one, {}, OPTIONS)["images"][0]
    assert np.allclose(3 * plain + 5, one.truth["density"], atol=1e-9)
    assert np.corrcoef(windowed.ravel(), plain.ravel())[0, 1] > 0.97
    assert windowed.std() < plain.std()


def test_the_search_finds_settings_iterations_window_and_line(rivals, monkeypatch):
    asked = []

    def images(method, one, settings, options):
        asked.append(settings)
        wrong = abs(settings["rate"] - 3) + (settings["object"] != "b")
        noise = np.random.default_rng(len(one.id)).normal(size=(3, 2, *SHAPE)) * (wrong + 0.01)
        noise *= np.array([[2, 3], [2, 1], [4, 4]])[:, :, None, None]  # the second leg, windowed, is best
        return {"images": (one.truth["density"] - 5) / 6 + noise, "seconds": [1, 2, 3], "losses": []}

    monkeypatch.setattr(rivals, "images", images)
    monkeypatch.setitem(rivals.SEARCH, "new", {"rate": (1, 2, 3), "object": ("a", "b")})
    best = rivals.search("new", [stack(rivals), stack(rivals, "another", scale=2.0)], "density", OPTIONS)
    assert best.settings == {"rate": 3, "object": "b"}
    assert (best.leg, best.windowed) == (1, True)
    assert best.line == pytest.approx((6, 5), rel=0.05)
    assert best.ssim > 0.95
    assert {(s["rate"], s["object"]) for s in asked} == {(1, "a"), (2, "a"), (3, "a"), (3, "b")}


def test_a_search_that_diverges_is_no_choice(rivals, monkeypatch):
    def images(method, one, settings, options):
        image = one.truth["density"] * (np.nan if settings["rate"] == 1 else 1)
        return {"images": [[image, image]], "seconds": [1], "losses": []}

    monkeypatch.setattr(rivals, "images", images)
    monkeypatch.setitem(rivals.SEARCH, "new", {"rate": (1, 2)})
    assert rivals.search("new", [stack(rivals)], "density", OPTIONS).settings == {"rate": 2}


def test_the_border_does_not_count(rivals):
    one = stack(rivals)
    image = one.truth["density"].copy()
    image[: rivals.BORDER] = image[:, -rivals.BORDER :] = 1e6
    numbers = rivals.judge(image, one, "density", (1, 0))
    assert numbers["ssim"] == pytest.approx(1)
    assert numbers["own_ssim"] == pytest.approx(1)
    assert rivals.judge(2 * image - 7, one, "density", (1, 0))["ssim"] < 0.9
    assert rivals.judge(2 * image - 7, one, "density", (1, 0))["own_ssim"] == pytest.approx(1)
