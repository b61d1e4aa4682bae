"""Places that differ from their equals: a vacancy of known electrons, and the documented code that
finds it.
"""

from types import SimpleNamespace

import documented
import numpy as np
import pytest

from namsa.base.errors import InputError
from namsa.base.pixels import PixelGrid
from namsa.inverse.columns import atom_density
from namsa.inverse.excess import VIBRATION, find_excess
from namsa.inverse.lattice import average_over_lattice

EDGE = 3.9
ATOMS = 5
STRONTIUM = 38
MAX_Q = 1.2
PIXELS = PixelGrid((0.39, 0.41), (10.0, 20.0))
SHAPE = (40, 44)
SITE = (1, 2)  # cell of the vacancy
BASIS = ((EDGE, 0.0), (EDGE, EDGE))


def lattice(missing: float) -> np.ndarray:
    """Columns of five atoms of strontium, one of which has lost some; e/Å²."""
    y, x = (
        axis - start for axis, start in zip(PIXELS.coordinates(SHAPE), PIXELS.origin, strict=True)
    )
    r = np.linspace(0, 8, 800)
    profile = STRONTIUM * atom_density(r, STRONTIUM, MAX_Q, VIBRATION)
    image = np.zeros(SHAPE)
    for i in np.arange(-2, 7):
        for j in np.arange(-2, 7):
            distance = np.hypot(y[:, None] - EDGE * (i + 0.5), x - EDGE * (j + 0.5))
            image += (ATOMS - missing * ((i, j) == SITE)) * np.interp(
                distance, r, profile, right=0.0
            )
    return image


@pytest.mark.parametrize(
    ("basis", "residue"), [(BASIS, 0.02), (None, 0.15)]
)  # of the translations' own error
def test_a_vacancy_is_the_largest_excess_and_has_minus_its_electrons(basis, residue):
    noise = np.random.default_rng(0).normal(scale=0.5, size=SHAPE)
    excess = find_excess(lattice(1.0) + noise, PIXELS, STRONTIUM, basis, MAX_Q)
    (y, x, electrons, spreads), *others = excess.places(beyond=3)
    assert np.hypot(y - 10 - EDGE * 1.5, x - 20 - EDGE * 2.5) < 0.3
    assert electrons == pytest.approx(-STRONTIUM, rel=0.1)
    assert spreads < -10
    for row in others:
        assert abs(row[3]) < abs(spreads) / 2
    assert (
        np.nanmax(np.abs(find_excess(lattice(0.0), PIXELS, STRONTIUM, basis, MAX_Q).amount))
        < residue * STRONTIUM
    )


def test_the_spread_of_white_noise_is_that_of_its_filter():
    """At a place and in the median over many others: 1 in 20 pixels is beyond 2 spreads."""
    excess = find_excess(
        np.random.default_rng(1).normal(size=(90, 80)), PIXELS, STRONTIUM, 4 * np.array(BASIS)
    )
    inner = excess.spreads[np.isfinite(excess.spreads)]
    assert np.mean(np.abs(inner) > 2) == pytest.approx(0.046, abs=0.01)
    assert np.isnan(excess.amount[:4]).all()
    assert np.isfinite(excess.amount[4:-4, 3:-3]).all()


def test_what_has_no_equals_is_refused():
    for image, basis, message in (
        (np.random.default_rng(0).normal(size=SHAPE), None, "no translation repeats the image"),
        (np.full(SHAPE, np.nan), BASIS, "without NaN"),
        (lattice(0.0), (BASIS[0], BASIS[0]), "not along one line"),
    ):
        with pytest.raises(InputError, match=message):
            find_excess(image, PIXELS, STRONTIUM, basis)


def test_the_mean_over_the_lattice_has_a_part_of_the_noise():
    noise = np.random.default_rng(2).normal(scale=2.0, size=SHAPE)
    mean = average_over_lattice(lattice(0.0) + noise, PIXELS)
    inner = (slice(4, -4), slice(4, -4))
    assert np.std((mean - lattice(0.0))[inner]) < 0.6 * noise.std()


def test_the_code_of_the_documentation_lists_a_vacancy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(
        documented.code("reconstruct.md", "find_excess"),
        {"result": SimpleNamespace(density=lattice(1.0).astype("float32"), pixels=PIXELS)},
    )
    largest, *_ = np.loadtxt("places.csv", delimiter=",", ndmin=2)
    assert largest[:3] == pytest.approx([10 + EDGE * 1.5, 20 + EDGE * 2.5, -STRONTIUM], rel=0.1)
