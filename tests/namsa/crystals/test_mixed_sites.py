"""Mixed sites as ASE describes them: every share scatters, wherever the atoms are taken."""

import numpy as np
import pytest
from ase.build import bulk
from ase.spacegroup import crystal

import namsa
from namsa import InputError
from namsa.crystals.mixed_sites import with_occupancies


def manganite():
    """La½Sr½MnO3 as ase.io.read gives it: one atom on the mixed site."""
    atoms = crystal(
        ["La", "Mn", "O"],
        basis=[(0, 0, 0), (0.5, 0.5, 0.5), (0.5, 0.5, 0)],
        spacegroup=221,
        cellpar=[3.88] * 3 + [90] * 3,
    )
    kind = str(atoms.arrays["spacegroup_kinds"][0])
    atoms.info["occupancy"] = {kind: {"La": 0.5, "Sr": 0.5}}
    return atoms


ELECTRONS = 0.5 * (57 + 38) + 25 + 3 * 8


def electrons(atoms):
    return float(atoms.numbers @ atoms.arrays["occupancy"])


def test_a_simulation_takes_all_elements_of_a_mixed_site():
    sample = namsa.simulate(
        manganite() * (2, 1, 1),
        energy_ev=100e3,
        semiangle_mrad=15,
        positions_angstrom=[[0, 0]],
        grid_shape=(36, 64),
    )
    area = np.prod(sample.provenance["density_sampling_angstrom"])
    assert sample.density.sum() * area == pytest.approx(2 * ELECTRONS, rel=1e-5)


@pytest.mark.parametrize("repeated", [(1, 1, 1), (2, 1, 3)])
def test_repeated_atoms_keep_their_shares(repeated):
    atoms = with_occupancies(manganite() * repeated)
    assert electrons(atoms) == pytest.approx(np.prod(repeated) * ELECTRONS)


def test_supercells_and_specimens_take_them():
    size = {"zone_axis": (0, 0, 1), "lateral_angstrom": (3, 7), "thickness_angstrom": 4}
    assert electrons(namsa.make_supercell(manganite(), **size).atoms) == pytest.approx(
        2 * ELECTRONS
    )
    specimen = namsa.make_specimen(manganite(), "crystal", **size)
    assert electrons(specimen.atoms) == pytest.approx(2 * ELECTRONS)


@pytest.mark.parametrize(
    "change",
    [
        lambda atoms: atoms.arrays.pop("spacegroup_kinds"),
        lambda atoms: atoms.info.update(occupancy=0.5),
        lambda atoms: atoms.info.update(occupancy={"0": 0.5}),
        lambda atoms: atoms.info.update(occupancy={"0": {"Xx": 0.5}}),
        lambda atoms: atoms.info.update(occupancy={"0": {"La": 1.5}}),
    ],
)
def test_shares_that_cannot_be_told_are_refused(change):
    atoms = manganite()
    change(atoms)
    with pytest.raises(InputError, match=r"atoms\.info\['occupancy'\]"):
        with_occupancies(atoms)


def test_atoms_without_shares_and_with_an_array_stay_as_they_are():
    atoms = bulk("Au")
    assert with_occupancies(atoms) is atoms
    atoms.info["occupancy"] = {"0": {"Au": 0.2}}
    atoms.set_array("occupancy", np.ones(1))
    assert with_occupancies(atoms) is atoms
