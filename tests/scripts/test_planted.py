"""The benchmark of planted defects: its specimens, and what it measures of an image."""

import numpy as np
import planted
import planted_cases
import pytest

from namsa.inverse.columns import atom_density
from namsa.pixels import PixelGrid

EDGE, ATOMS, STRONTIUM = 3.9, 5, 38
PIXELS = PixelGrid((0.39, 0.41), (0.0, 0.0))
SHAPE = (30, 34)
SITE = (3 * EDGE / 2, 3 * EDGE / 2)


def lattice(missing: float) -> np.ndarray:
    """Columns of five atoms of strontium, one of which has lost some; e/Å²."""
    y, x = PIXELS.coordinates(SHAPE)
    r = np.linspace(0, 8, 800)
    profile = STRONTIUM * atom_density(r, STRONTIUM, planted.OPTICS.max_q, planted.VIBRATION)
    image = np.zeros(SHAPE)
    for i in np.arange(-2, 6):
        for j in np.arange(-2, 6):
            distance = np.hypot(y[:, None] - EDGE * (i + 0.5), x - EDGE * (j + 0.5))
            atoms = ATOMS - missing * ((i, j) == (1, 1))
            image += atoms * np.interp(distance, r, profile, right=0.0)
    return image


def test_the_excess_of_a_vacancy_is_minus_its_electrons_at_its_place():
    vectors = [(EDGE * i, EDGE * j) for i in range(-3, 4) for j in range(-3, 4) if (i, j) != (0, 0)]
    error = np.full(SHAPE, 20.0)
    found = planted.excess(lattice(1.0), error, PIXELS, vectors, STRONTIUM)
    row = planted.scores(found, PIXELS, SITE)
    assert row["electrons"] == pytest.approx(-STRONTIUM, rel=0.1)
    assert row["spread"]["near"]
    assert row["error"]["near"]
    twice = planted.scores(planted.excess(lattice(1.0), 2 * error, PIXELS, vectors, STRONTIUM), PIXELS, SITE)
    assert twice["error"]["score"] == pytest.approx(row["error"]["score"] / 2)
    none = planted.excess(lattice(0.0), None, PIXELS, vectors, STRONTIUM)
    assert np.nanmax(np.abs(none.electrons)) < 0.02 * STRONTIUM


def test_the_area_counts_a_find_at_the_wrong_place_as_missed():
    def rows(scores, near=True):
        return [{"spread": {"score": score, "near": near}} for score in scores]

    without = rows([1.0, 2.0, 3.0, 4.0])
    assert planted.curve(rows([5.0, 5.0]), without, "spread") == {"area": 1.0, "found": 1.0}
    assert planted.curve(rows([5.0, 5.0], near=False), without, "spread") == {"area": 0.0, "found": 0.0}
    assert planted.curve(rows([5.0, 2.5]), without, "spread") == {"area": 0.75, "found": 0.5}


def test_a_defect_changes_one_atom_of_the_same_thermal_snapshot():
    made = planted_cases.specimens(planted_cases.CRYSTALS[0], 0)
    (perfect, *_), sums = made.snapshots[None], {}
    for kind in planted_cases.KINDS:
        snapshot = made.snapshots[kind][0]
        sums[kind] = snapshot.numbers.sum() - perfect.numbers.sum()
        kept = np.delete(perfect.positions, 0, axis=0)[-5:]
        assert np.isin(kept, snapshot.positions).all()
    assert sums == made.electrons == {"vacancy": -38, "dopant": 18, "adatom": 78, "adatom on a column": 78}
