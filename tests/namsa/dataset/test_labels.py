"""The part of a specimen that each position belongs to agrees with the geometry of its kind."""

import numpy as np
import pytest
from ase.build import bulk
from fake_samples import config

import namsa
from namsa.crystals.material import Material
from namsa.dataset.entries import build_entries
from namsa.dataset.labels import LABEL_NAMES, label_map
from namsa.dataset.simulate_entry import simulate_entry
from namsa.physics.grid import Grid

GOLD = bulk("Au", cubic=True)
OXIDE = bulk("MgO", "rocksalt", 4.21, cubic=True)
BORDER = 2.5  # Å: a layer of atoms, and the width of the labels


def labelled(kind, **parameters):
    partner = {"partner": OXIDE} if kind == "precipitate" else {}
    made = namsa.make_specimen(
        GOLD,
        kind,
        zone_axis=(0, 0, 1),
        lateral_angstrom=(28, 36),
        thickness_angstrom=12,
        parameters=parameters,
        seed=4,
        **partner,
    )
    lx, ly, _ = made.atoms.cell.lengths()
    grid = Grid((160, 200), (float(ly), float(lx)))
    y, x = np.linspace(0, ly, 57), np.linspace(-3, lx, 61)  # beyond the periodic cell, too
    return made, label_map(made.atoms, grid, y, x), y[:, None], x[None]


@pytest.mark.parametrize("kind", ["grain", "precipitate"])
def test_an_inclusion_is_where_its_cylinder_is(kind):
    made, labels, y, x = labelled(kind, diameter=0.5, place_y=0.3, place_x=0.9)
    lx, ly, _ = made.atoms.cell.lengths()
    dy, dx = (y - 0.3 * ly + ly / 2) % ly - ly / 2, (x - 0.9 * lx + lx / 2) % lx - lx / 2
    distance, radius = np.hypot(dy, dx), 0.25 * min(lx, ly)
    assert (labels[distance < radius - BORDER] == 1).all()
    assert (labels[distance > radius + BORDER] == 0).all()
    assert labels.mean() == pytest.approx((distance < radius).mean(), rel=0.25)
    numbers = set(made.atoms.numbers[made.atoms.arrays["part"] == 1].tolist())
    assert numbers == ({79} if kind == "grain" else {8, 12})


def test_a_grain_has_its_own_direction_along_the_beam():
    made, *_ = labelled("grain", zone_axis=[1, 1, 0], diameter=0.8)
    inside = made.atoms[made.atoms.arrays["part"] == 1]
    z = np.sort(inside.positions[:, 2])
    period = 4.08 / np.sqrt(2) / 2  # distance of the (220) planes, which are across the beam
    phases = np.exp(2j * np.pi * z / period)
    assert abs(phases.mean()) == pytest.approx(1, abs=1e-6)
    with pytest.raises(namsa.InputError, match="zone_axis"):
        labelled("grain", zone_axis=[0, 0, 1])  # the matrix's own


def test_a_boundary_divides_the_cell_at_its_planes():
    made, labels, _, x = labelled("boundary", plane=0)
    first, second = made.parameters["planes_angstrom"]
    lx = float(made.atoms.cell.lengths()[0])
    from_planes = np.minimum(*(abs((x - plane + lx / 2) % lx - lx / 2) for plane in (first, second)))
    between = (x % lx > first) & (x % lx < second)
    far = np.broadcast_to(from_planes > BORDER, labels.shape)
    inner, outer = labels[far & between], labels[far & ~between]
    assert len({*inner.tolist()}) == len({*outer.tolist()}) == 1
    assert inner[0] != outer[0]


def test_a_simulated_sample_has_the_labels_of_its_positions():
    gold = Material("Au", "Au", "Fm-3m", GOLD, "test")
    settings = config(
        specimen={"kinds": {"boundary": 1}, "thickness_angstrom": [4], "lateral_angstrom": [8, 9]},
        scan={"shape": [3, 14]},
        simulation={"grid_shape": [32, 64]},
        target={"at": "scan"},
    )
    (entry,) = build_entries(settings, [gold])
    sample = simulate_entry(settings, gold, entry)
    assert sample.labels.shape == sample.density.shape == (3, 14)
    assert set(np.unique(sample.labels)) == {0, 1}
    assert sample.provenance["label_names"] == list(LABEL_NAMES["boundary"])
    assert (sample.labels == sample.labels[0]).all()  # the planes are across x
