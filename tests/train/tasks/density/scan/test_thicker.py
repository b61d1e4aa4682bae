"""Comparison of a scan's network with one that has learnt thicker specimens."""

import numpy as np
import pytest

import train
from namsa.io.calibration import CalibrationOverrides
from train.tasks.density.scan.thicker import network_for_thicker
from train.tasks.density.trust.thickness import MORE, ThickerFacts, is_thicker, thicker_line

FAST = "200kv-20mrad-fast"
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
        ("200kv-20mrad-reality", THICK),
        (THICK, None),
        ("300kv-21mrad-fast", None),  # other beam
        ("80kv-25mrad", None),
    ],
)
def test_the_network_for_thicker_specimens_takes_the_same_scans(name, expected):
    other = network_for_thicker(train.load_model(name))
    assert (other.name if other else None) == expected


def test_the_ratio_is_that_of_both_networks_on_the_same_windows():
    patterns = made_scan((40, 24))
    beam = float(patterns.sum(axis=(2, 3)).mean())
    own = train.reconstruct(patterns, FAST, CALIBRATION, beam_intensity=beam)
    facts = own.provenance["thicker"]
    products = 0.0
    squares = 0.0
    for rows in (slice(0, 24), slice(8, 32), slice(16, 40)):
        other = train.reconstruct(patterns[rows], THICK, CALIBRATION, beam_intensity=beam)
        density = np.asarray(own.density)[rows].astype(float)
        products += (density * np.asarray(other.density)).sum()
        squares += (density**2).sum()
        assert "thicker" not in other.provenance
    assert facts["electrons_ratio"] == pytest.approx(products / squares, rel=5e-3)
    assert (facts["network"], facts["learnt_angstrom"]) == (THICK, [15.0, 330.0])


def test_nothing_is_compared_where_the_thickness_is_known():
    patterns = made_scan((16, 16))
    specimen = train.KnownSpecimen(thickness_angstrom=60)
    options = train.ReconstructionOptions(trust=False)
    known = train.reconstruct(patterns, FAST, CALIBRATION, specimen=specimen, options=options)
    assert "thicker" not in known.provenance
    assert not any("times the electrons" in line for line in known.provenance["notes"])


def test_more_electrons_are_reported_with_the_remedy():
    facts = ThickerFacts(network=THICK, learnt_angstrom=[15.0, 330.0], electrons_ratio=MORE + 0.1)
    assert is_thicker(facts)
    line = thicker_line(facts, FAST)
    assert "15 to 330 Å" in line
    assert f"--checkpoint {THICK}" in line
    facts["electrons_ratio"] = MORE
    assert not is_thicker(facts)
    assert "Do not rely" not in thicker_line(facts, FAST)
    assert not is_thicker(None)
