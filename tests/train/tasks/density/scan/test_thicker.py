"""Comparison of a scan's network with one that has learnt thicker specimens."""

import numpy as np
import pytest

import train
from namsa.io.calibration import CalibrationOverrides
from train.apply.weights import load_network
from train.tasks.density.scan.ensemble import Views, ensemble_predictor
from train.tasks.density.scan.thicker import pair_for
from train.tasks.density.trust.thickness import MORE, ThickerFacts, is_thicker, thicker_line

FAST = "200kv-20mrad-fast"
REALITY = "200kv-20mrad-reality"
THICK = "200kv-20mrad-thick"
CALIBRATION = CalibrationOverrides(
    energy_ev=200e3, semiangle_mrad=20.0, scan_step_angstrom=0.4, pixel_mrad=3.0
)


def made_scan(shape, seed=3):
    """Returns patterns of a bright disk whose brighter side moves along the scan, with noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:33, :33] - 16.0
    disk = np.hypot(y, x) < 20 / 3
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    slope = 0.04 * (
        np.sin(rows / 2)[..., None, None] * y + np.cos(columns / 2)[..., None, None] * x
    )
    patterns = disk * (1 + slope) + 0.02
    return rng.poisson(400 * patterns).astype(np.float32)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (FAST, THICK),
        (REALITY, THICK),
        (THICK, None),
        ("300kv-21mrad-fast", None),  # other beam
        ("80kv-25mrad", None),
    ],
)
def test_the_network_for_thicker_specimens_takes_the_same_scans(name, expected):
    model = train.load_model(name)
    pair = pair_for(model, (8, 30))
    assert (pair.thick.name if pair else None) == expected
    assert pair_for(model, (7, 30)) is None  # windows of these networks have 8 positions or more


@pytest.mark.slow
def test_the_ratio_is_that_of_both_networks_on_the_same_windows():
    patterns = made_scan((40, 24))
    beam = float(patterns.sum(axis=(2, 3)).mean())
    result = train.reconstruct(patterns, FAST, CALIBRATION, beam_intensity=beam)
    facts = result.provenance["thicker"]
    starts = (0, 8, 16)
    windows = np.stack([patterns[start : start + 24] for start in starts]) / beam
    densities = {}
    for name in (REALITY, THICK):
        model = train.load_model(name)
        predict = ensemble_predictor(load_network(model, (24, 24)), model, Views((0,), 0))
        densities[name] = predict(windows).density.astype(float)
    products = (densities[REALITY] * densities[THICK]).sum()
    squares = (densities[REALITY] ** 2).sum()
    # The patterns of the scan were resampled to the optic axis, which is measured.
    assert facts["electrons_ratio"] == pytest.approx(products / squares, rel=0.01)
    assert (facts["network"], facts["compared_with"]) == (THICK, REALITY)


def test_a_network_for_thick_specimens_is_compared_with_none():
    patterns = made_scan((16, 16))
    assert "thicker" not in train.reconstruct(patterns, THICK, CALIBRATION).provenance


def test_nothing_is_compared_where_the_thickness_is_known():
    patterns = made_scan((16, 16))
    specimen = train.KnownSpecimen(thickness_angstrom=60)
    options = train.ReconstructionOptions(trust=False)
    known = train.reconstruct(patterns, FAST, CALIBRATION, specimen=specimen, options=options)
    assert "thicker" not in known.provenance
    assert not any("times the electrons" in line for line in known.provenance["notes"])


def test_more_electrons_are_reported_with_the_remedy():
    facts = ThickerFacts(network=THICK, compared_with=REALITY, electrons_ratio=MORE + 0.1)
    assert is_thicker(facts)
    line = thicker_line(facts, FAST)
    assert f"the electrons of {REALITY}, more than" in line
    assert f"--checkpoint {THICK}" in line
    facts["electrons_ratio"] = MORE
    assert not is_thicker(facts)
    assert "Do not rely" not in thicker_line(facts, FAST)
    assert not is_thicker(None)
