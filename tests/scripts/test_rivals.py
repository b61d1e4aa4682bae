"""The rivals' judge: images are compared at the right places, and the search keeps what is best."""

import argparse
import json
from dataclasses import replace
from types import SimpleNamespace

import ase
import learned_rival
import numpy as np
import pytest
import reality_rivals
import reconstruct_vs_rivals
from rivals import folders, methods, results, search, stacks

import namsa
from namsa.dataset.entry import Entry
from namsa.errors import WorkError
from namsa.pixels import PixelGrid
from train.measure.atomic_columns import AtomicColumns

SHAPE, STEP, ORIGIN = (20, 24), (0.4, 0.5), (7.3, -2.1)
NO_COLUMNS = AtomicColumns(np.empty((0, 2)), np.empty(0), np.empty(0, bool))
OPTIONS = argparse.Namespace(axes=None, begin={})


def field(y, x):
    """Periodic over 12 × 15 Å, and far from the window's end at 1.25 /Å."""
    return np.cos(2 * np.pi * y[:, None] / 6) + np.sin(2 * np.pi * x[None, :] / 5) * np.sin(2 * np.pi * y[:, None] / 4)


def stack(name="one", scale=3.0):
    y, x = (o + s * np.arange(n) for o, s, n in zip(ORIGIN, STEP, SHAPE, strict=True))
    truth = {wanted: scale * field(y - ORIGIN[0], x - ORIGIN[1]) + 5 for wanted in stacks.TARGETS}
    return stacks.Stack(
        name, np.empty(0), {"thickness_angstrom": 50.0}, PixelGrid(STEP, ORIGIN), truth, NO_COLUMNS, max_q=1.25
    )


def noisy(monkeypatch, noise_of, **axes):
    """Images of a new method are the truth with noise of a size that settings say; returns the settings asked for."""
    asked = []

    def images(method, one, settings, options):
        asked.append(settings)
        noise = np.random.default_rng(1).normal(size=SHAPE) * noise_of(settings)
        return {"images": [[one.truth["density"] + noise] * 2], "cpu_seconds": [1], "losses": []}

    monkeypatch.setattr(search, "images", images)
    monkeypatch.setitem(search.SEARCH, "new", axes)
    return asked


def test_an_object_is_sampled_where_the_target_is(monkeypatch):
    step, first = np.array([0.25, 0.3]), np.array([1.1, 2.3])
    y, x = (s * np.arange(n) - f for s, n, f in zip(step, (48, 50), first, strict=True))
    answer = {"phases": [field(y, x)], "step": step, "first": first, "cpu_seconds": [1.0], "losses": [2.0]}
    monkeypatch.setattr(methods, "reconstruct", lambda *arguments: answer)
    one = stack()
    plain, windowed = methods.images("quantem, single slice", one, {}, OPTIONS)["images"][0]
    assert np.allclose(3 * plain + 5, one.truth["density"], atol=1e-9)
    assert np.corrcoef(windowed.ravel(), plain.ravel())[0, 1] > 0.97
    assert windowed.std() < plain.std()


def test_the_search_finds_settings_iterations_window_and_line(monkeypatch):
    asked = []

    def images(method, one, settings, options):
        asked.append(settings)
        wrong = abs(settings["rate"] - 3) + (settings["object"] != "b")
        noise = np.random.default_rng(len(one.id)).normal(size=(3, 2, *SHAPE)) * (wrong + 0.01)
        noise *= np.array([[2, 3], [2, 1], [4, 4]])[:, :, None, None]  # the second leg, windowed, is best
        return {"images": (one.truth["density"] - 5) / 6 + noise, "cpu_seconds": [1, 2, 3], "losses": []}

    monkeypatch.setattr(search, "images", images)
    monkeypatch.setitem(search.SEARCH, "new", {"rate": (1, 2, 3), "object": ("a", "b")})
    best = search.search("new", [stack(), stack("another", scale=2.0)], "density", OPTIONS)
    assert best.settings == {"rate": 3, "object": "b"}
    assert (best.leg, best.windowed) == (1, True)
    assert best.line == pytest.approx((6, 5), rel=0.05)
    assert best.ssim > 0.95
    assert {(s["rate"], s["object"]) for s in asked} == {(1, "a"), (2, "a"), (3, "a"), (3, "b")}


def test_a_search_that_diverges_is_no_choice(monkeypatch):
    noisy(monkeypatch, lambda settings: np.nan if settings["rate"] == 1 else 0, rate=(1, 2))
    assert search.search("new", [stack()], "density", OPTIONS).settings == {"rate": 2}


def test_the_border_does_not_count():
    one = stack()
    image = one.truth["density"].copy()
    image[: search.BORDER] = image[:, -search.BORDER :] = 1e6
    numbers = search.judge(image, one, "density", (1, 0))
    assert numbers["ssim"] == pytest.approx(1)
    assert numbers["own_ssim"] == pytest.approx(1)
    assert search.judge(2 * image - 7, one, "density", (1, 0))["ssim"] < 0.9
    assert search.judge(2 * image - 7, one, "density", (1, 0))["own_ssim"] == pytest.approx(1)


def test_a_search_begins_where_it_is_told_to_and_leaves_other_settings(monkeypatch):
    asked = noisy(monkeypatch, lambda settings: settings["rate"] != 2, rate=(1, 2, 3), object=("a", "b"))
    options, begin = argparse.Namespace(axes=["rate"]), {"rate": 3, "object": "b"}
    assert search.search("new", [stack()], "density", options, begin).settings == {"rate": 2, "object": "b"}
    assert {settings["object"] for settings in asked} == {"b"}
    assert sorted(settings["rate"] for settings in asked) == [1, 2, 3]
    named = argparse.Namespace(axes=[], begin={"rate": 3})
    assert search.search("new", [stack()], "density", named).settings == {"rate": 3, "object": "a"}


def test_test_samples_are_of_different_materials_and_the_same_at_every_thickness():
    names = [f"M{i}" for i in range(9)] + list(stacks.SEEN_BEFORE)
    entries = [
        Entry(f"{name}-{split}-{axis}-{thickness}", name, name, "P1", axis, thickness, 1, split, skipped)
        for name in names
        for axis in ((0, 0, 1), (1, 1, 0))
        for thickness in (20.0, 100.0)
        for split, skipped in (("test", None), ("dev", None), ("test", "too large"))
    ]
    thin, thick = (stacks.choose(entries, "test", thickness, 9) for thickness in (20.0, 100.0))
    assert {entry.material for entry in thin} == {*names} - stacks.SEEN_BEFORE
    assert [(e.material, e.zone_axis) for e in thick] == [(e.material, e.zone_axis) for e in thin]
    assert stacks.choose(entries, "test", 20.0, 3) == thin[:3]
    everything = stacks.choose(entries, "test", 20.0, 1000)
    assert len(everything) == 18
    assert {(e.split, e.skipped) for e in everything} == {("test", None)}


def test_what_diverges_is_judged_by_its_last_image_before():
    good, bad = np.ones(SHAPE), np.full(SHAPE, np.nan)
    choice = search.Choice({}, 2, True, (1, 0), 1)
    assert reconstruct_vs_rivals.at(choice, {"images": [[bad, good], [bad, 2 * good], [good, bad]]}).mean() == 2
    assert reconstruct_vs_rivals.at(choice, {"images": [[good, bad]] * 3}).mean() == 0


def test_a_case_tells_what_a_microscope_knows_and_no_more(tmp_path):
    positions = np.stack(np.meshgrid(np.arange(4.0), 0.5 * np.arange(5.0), indexing="ij"), -1).reshape(-1, 2)
    beam = {"energy_ev": 80e3, "semiangle_mrad": 15.0, "aberrations": {"C10": 70.0}, "scan_shape": (4, 5)}
    atoms = ase.Atoms("C", [(3, 4, 1)], cell=(8, 10, 2))
    sample = namsa.simulate(atoms, **beam, grid_shape=(40, 32), positions_angstrom=positions)
    density = np.arange(20, dtype=np.float32).reshape(4, 5)
    added = {"density_sampling_angstrom": [1.0, 0.5], "density_origin_angstrom": [0.0, 0.0]}
    known = sample.provenance | added | {"density_max_q_per_angstrom": 1.25, "id": "one"}
    replace(sample, density=density, provenance=known).save(tmp_path / "one.h5")
    one = stacks.case(tmp_path / "one.h5")
    assert set(one.provenance) == set(stacks.TOLD)
    assert not {"aberrations", "thickness_angstrom"} & set(one.provenance)
    assert np.array_equal(one.truth["density"], density)
    assert np.array_equal(one.patterns, sample.cbed)
    assert one.frame.step == [1.0, 0.5]
    assert "thickness_angstrom" in stacks.case(tmp_path / "one.h5", (*stacks.TOLD, "thickness_angstrom")).provenance


def test_without_a_thickness_the_search_assumes_one(monkeypatch):
    noisy(monkeypatch, lambda settings: settings["thickness_angstrom"] != 25, rate=(1,))
    untold = replace(stack(), provenance={})
    best = search.search("new", [untold], "density", OPTIONS).settings
    assert best == {"thickness_angstrom": 25, "rate": 1}


def test_a_defocus_is_estimated_by_the_fit_to_the_patterns(monkeypatch):
    asked = []

    def images(method, one, settings, options):
        asked.append((method, options.iterations, settings["slice_angstrom"]))
        return {"losses": [9.0, {-50: 3.0, 0: 2.0, 50: np.nan}[one.c10]], "cpu_seconds": [2.0]}

    monkeypatch.setattr(search, "images", images)
    options = argparse.Namespace(axes=None, begin={"slice_angstrom": 10.0}, iterations=[3, 6])
    begun, seconds = search.focused(stack(), [-50, 0, 50], options)
    assert (begun.c10, seconds) == (0, 6.0)
    assert asked == [(search.FOCUS_BY, [3], 20.0)] * 3  # `begin` is for the settings of the method that is searched
    assert options.iterations == [3, 6]


def test_a_reconstruction_serves_fewer_iterations_and_is_made_anew_for_more(tmp_path):
    asked = []

    def ask(program, text):
        job = json.loads(text)
        asked.append((job["iterations"], job["settings"]))
        phases = np.array([np.full((3, 4), count) for count in job["iterations"]])
        np.savez(job["result"], phases=phases, step=[0.1, 0.1], first=[0, 0])
        seconds, losses = [10 * count for count in job["iterations"]], list(range(job["iterations"][-1]))
        return {"cpu_seconds": seconds, "losses": losses}

    names = {"energy_ev": 1.0, "semiangle_mrad": 1.0, "detector_sampling_mrad": [1, 1], "scan_shape": [2, 2]}
    one = replace(stack(), patterns=np.ones((4, 3, 3)), provenance=names)

    def phases(iterations, stack, **settings):
        options = argparse.Namespace(
            work=tmp_path, threads=1, programs=SimpleNamespace(ask=ask), iterations=list(iterations)
        )
        found = methods.reconstruct("quantem, multislice", stack, settings | {"thickness_angstrom": 50}, options)
        assert found["cpu_seconds"] == [10 * count for count in iterations]
        assert len(found["losses"]) == iterations[-1]
        return found["phases"][:, 0, 0].tolist()

    assert phases([3, 6, 12], one) == [3, 6, 12]
    assert phases([6], one) == [6]
    assert phases([3, 12], one) == [3, 12]
    assert len(asked) == 1
    assert phases([3, 24], one) == [3, 24]
    assert phases([3], replace(one, c10=50.0)) == [3]
    assert phases([3], one, rate=2) == [3]
    assert asked[1:] == [([3, 24], {}), ([3], {"C10": 50.0}), ([3], {"rate": 2})]


def test_counted_electrons_are_seen_in_the_patterns():
    mean = np.random.default_rng(0).random((32, 9, 9)) / 81
    assert folders.counted_electrons(np.random.default_rng(1).poisson(mean * 1600) / np.float32(1600)) == 1600
    assert folders.counted_electrons(mean) is None


def test_a_reconstruction_that_is_wrong_or_not_finite_has_failed():
    one, noise = stack(), np.random.default_rng(0).normal(size=SHAPE)
    images = [one.truth["density"] / 3, noise, np.full(SHAPE, np.nan)]
    rows = [reality_rivals.judged("quantem, multislice", one, image, 2.0, (3.0, 0.0)) for image in images]
    assert [row["failed"] for row in rows] == [False, True, True]
    assert rows[0]["ssim"] == pytest.approx(1)


def test_a_comparison_goes_on_where_it_was_stopped(tmp_path, monkeypatch, capsys):
    asked = []

    def images(method, one, settings, options):
        asked.append((one.id, method, list(options.iterations)))
        if one.id == "b" and method == "two" and "b is well" not in known:
            raise WorkError("two failed on b")
        picture = one.truth["density"] - 5
        legs = [[picture * 0, picture * 0], [picture, picture], [picture * np.nan] * 2][: len(options.iterations)]
        return {"images": legs, "cpu_seconds": [1.0, 2.0, 3.0][: len(options.iterations)], "losses": [1.0]}

    known: set[str] = set()
    for name in ("one", "two"):
        monkeypatch.setitem(reality_rivals.SEARCH, name, {"rate": (1,)})
    monkeypatch.setitem(reality_rivals.SEARCH, reality_rivals.FOCUS_BY, {"rate": (1,)})
    monkeypatch.setattr(reality_rivals, "install", lambda *_: None)
    monkeypatch.setattr(reality_rivals, "case", lambda path, *_: stack(path.stem))
    for module in (reality_rivals, search):
        monkeypatch.setattr(module, "images", images)
    options = argparse.Namespace(
        keep_out=False,
        work=tmp_path,
        dev=[tmp_path / "d.h5"],
        axes=None,
        begin={},
        told=[],
        focuses=[0.0],
        iterations=[3, 6, 12],
    )
    cases = [stack(name) for name in ("a", "b")]

    def run():
        asked.clear()
        found = reality_rivals.Results(tmp_path / "results.json")
        reality_rivals.through_ptychography(["one", "two"], cases, options, found)
        reality_rivals.show(found.of(["one", "two"], ["a", "b"]))
        return [(name, method) for name, method, legs in asked if name != "d" and legs == [3, 6]]

    assert run() == [("a", "one"), ("a", "two"), ("b", "one"), ("b", "two")]  # to the second leg, which is best
    said = capsys.readouterr()
    assert "not measured: two on b" in said.out
    assert "two failed on b" in said.err
    known.add("b is well")
    assert run() == [("b", "two")]
    assert "not measured" not in capsys.readouterr().out
    assert run() == []
    options.begin = {"rate": 2}
    assert len(run()) == 4
    row = reality_rivals.Results(tmp_path / "results.json").row("b", "two")
    assert row["ssim"] == pytest.approx(1)
    assert list(row["own_ssim_by_iterations"]) == ["3", "6"]


def test_means_are_of_the_cases_that_all_methods_have(capsys):
    rows = [
        {"case": case, "method": method, "ssim": ssim, "own_ssim": ssim, "cpu_seconds": 1.0, "failed": ssim < 0.5}
        for case, method, ssim in (
            ("a", "network", 0.9),
            ("a", "quantem, multislice", 0.6),
            ("b", "network", 0.1),
            ("c", "network", 0.8),
            ("c", "quantem, multislice", 0.4),
        )
    ]
    results.show(rows)
    shown = capsys.readouterr().out
    (means,) = (line.split() for line in shown.splitlines() if "mean of 2" in line)
    assert means[3:] == ["0.850", "(0.850)", "0.500", "(0.500)"]
    assert "not measured: quantem, multislice on b" in shown
    assert results.ratio(rows) == pytest.approx(0.5 / 0.85)
    assert results.ratio(rows[:1]) is None


def test_patches_of_a_learned_rival_are_stitched_to_the_density():
    density = np.random.default_rng(0).random((2, 9, 7)).astype(np.float32) * 30
    patterns = np.random.default_rng(1).random((2, 9, 7, 5, 6)).astype(np.float32)
    inputs = SimpleNamespace(density_scale_e_per_angstrom2=10.0, power=0.5, gain=1.0)
    experiment = SimpleNamespace(
        training=SimpleNamespace(inputs=inputs, loss=SimpleNamespace(relative=False, least_contrast=(0.0, 0.01)))
    )
    everywhere = np.stack([np.ones(63, int), *np.divmod(np.arange(63), 7)], axis=1)
    found = learned_rival.patches(patterns, density, everywhere, 4, experiment)
    assert np.array_equal(found.patterns[:, 0, 0, 0], np.sqrt(30 * patterns[1, ..., 0, 0]).ravel())
    assert found.weight[0].sum() == 4  # of 16 pixels, a quarter lies on the scan's first corner
    known = SimpleNamespace(numpy=lambda: found.density)
    for image in learned_rival.stitched(lambda x, training: known, found.patterns, (9, 7), [2, 4]):
        assert np.allclose(10 * image, density[1], atol=1e-5)
    inner = learned_rival.patches(patterns, density, everywhere, 4, experiment, patch=2)
    assert np.array_equal(np.flatnonzero(inner.weight[30, ..., 0].any(axis=0)), [1, 2])
    assert np.array_equal(inner.weight[30, 1:3, 1:3], found.weight[30, 1:3, 1:3])
    network = learned_rival.build((33, 33), channels=16)
    assert network.output_shape == (None, 20, 20, 1)
