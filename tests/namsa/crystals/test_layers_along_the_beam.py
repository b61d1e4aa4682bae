"""Specimens that vary along the beam: what is where, against the crystals that they are made of."""

import numpy as np
import pytest
from ase.build import bulk

import namsa
from namsa.crystals.kinds.inclusions import PART
from namsa.errors import InputError

SILVER, GOLD = bulk("Ag", cubic=True), bulk("Au", cubic=True)  # 4.09 and 4.08 Å
SIZE = {"zone_axis": (0, 0, 1), "lateral_angstrom": (12, 16), "thickness_angstrom": 40}


def made(kind, crystal=SILVER, partner=GOLD, **parameters):
    partner = {} if kind in ("doped_layer", "vacuum") else {"partner": partner}
    specimen = namsa.make_specimen(crystal, kind, parameters=parameters, seed=2, **SIZE, **partner)
    return specimen, specimen.atoms.positions[:, 2] / float(specimen.atoms.cell.lengths()[2])


@pytest.mark.parametrize(
    ("kind", "given", "start", "end"),
    [
        ("stack", {"side": "exit", "part": 0.4}, 0.6, 1.0),
        ("stack", {"side": "entrance", "part": 0.4}, 0.0, 0.4),
        ("cap", {"side": "entrance", "part": 0.2}, 0.0, 0.2),
        ("buried_layer", {"top": 0.3, "part": 0.3}, 0.3, 0.6),
    ],
)
def test_a_partner_has_its_layer_and_the_crystal_the_rest(kind, given, start, end):
    specimen, depth = made(kind, **given)
    gold = specimen.atoms.numbers == 79
    inside = (depth >= start - 1e-9) & (depth < end - 1e-9)
    np.testing.assert_array_equal(gold, inside)
    np.testing.assert_array_equal(specimen.atoms.arrays[PART] == 1, gold)
    lz = float(specimen.atoms.cell.lengths()[2])
    assert specimen.parameters["planes_angstrom"] == pytest.approx([start * lz, end * lz], abs=1e-3)
    assert specimen.parameters["misfit"] == pytest.approx(4.09 / 4.08 - 1, abs=1e-5)
    # Gold keeps its own period along the beam: layers are 2.04 Å apart, and 2.045 Å in silver.
    layers = np.unique(specimen.atoms.positions[gold, 2].round(4))
    assert np.diff(layers) == pytest.approx(2.04, abs=1e-3)
    # Nearly as many atoms as the crystal had: at most a layer at each plane is free.
    assert len(specimen.atoms) >= 0.85 * len(namsa.make_specimen(SILVER, "crystal", **SIZE).atoms)


def test_dopants_are_in_their_layer_alone():
    specimen, depth = made("doped_layer", top=0.25, part=0.5, share=0.5, arrangement="random", replacement="Cu")
    dopant = specimen.atoms.numbers == 29
    inside = (depth >= 0.25) & (depth < 0.75)
    assert not dopant[~inside].any()
    assert dopant.sum() == round(0.5 * inside.sum())
    assert set(specimen.atoms.numbers[~dopant].tolist()) == {47}


def test_vacuum_is_above_and_below():
    specimen, depth = made("vacuum", above=0.3, below=0.2)
    whole = namsa.make_specimen(SILVER, "crystal", **SIZE).atoms
    kept = (whole.positions[:, 2] >= 0.3 * 40.9) & (whole.positions[:, 2] < 0.8 * 40.9)
    np.testing.assert_array_equal(specimen.atoms.positions, whole.positions[kept])
    assert (depth.min(), depth.max()) == (pytest.approx(0.3), pytest.approx(0.75))
    with pytest.raises(InputError, match="no atom"):
        made("vacuum", above=0.6, below=0.6)


def test_what_does_not_fit_is_refused():
    with pytest.raises(InputError, match="does not fit"):
        made("stack", partner=bulk("W", "sc", 5.2))
    with pytest.raises(InputError, match="without an atom"):
        made("cap", side="entrance", part=0.0)
    with pytest.raises(InputError, match="no atom lies"):
        made("doped_layer", top=0.3, part=0.0)
