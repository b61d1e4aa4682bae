"""CIF files whose cell or size no crystal has: refused at once, in one line."""

import time

import numpy as np
import pytest
from cif_files import HM, cif, cubic
from pymatgen.symmetry.groups import SpaceGroup

from namsa import InputError, SimulationWarning
from namsa.crystals.cif import read_cif

CIF = cif(cubic(5.0), f"{HM} 'P 1'", "Si1 Si 0 0 0")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("length_a 5.0", "length_a 0.05", r"sides \[0.05, 5.0, 5.0\] Å must lie within"),
        ("length_b 5.0", "length_b 1e9", "sides .* must lie within 0.99 to 1000 Å"),
        ("length_a 5.0", "length_a nan", "_cell_length_a nan is no number"),
        ("length_a 5.0", "length_a 1e400", "_cell_length_a 1e400 is no number"),
        ("length_a 5.0", "length_a ?", r"_cell_length_a \? is no number"),
        ("alpha 90", "alpha 0", "angles"),
        ("alpha 90", "alpha nan", "_cell_angle_alpha nan is no number"),
        ("alpha 90", "alpha 179.99", "too flat"),
        (
            "Si1 Si 0 0 0\n",
            "".join(f"Si{i} Si 0.{i:06} 0 0\n" for i in range(100_001)),
            "100001 atoms; give a cell of 1 to 100000 atoms, which the specimen repeats",
        ),
        ("Si1 Si 0 0 0\n", "".join(f"Si{i} Si 0.{i:04} 0 0\n" for i in range(500)), "less than 0.5 Å³ for each"),
        ("data_made", "#" * 2**24, "more than 16 MiB"),
        ("Si1 Si", "Q1 " + "Q" * 5000, "names no element"),
    ],
    ids=range(12),
)
def test_hostile_cells_are_refused_at_once(tmp_path, old, new, message):
    path = tmp_path / "x.cif"
    path.write_text(CIF)
    assert read_cif(path).formula == "Si"
    path.write_text(CIF.replace(old, new))
    started = time.monotonic()
    with pytest.raises(InputError, match=message) as caught:
        read_cif(path)
    assert time.monotonic() - started < 10
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def symmetric(sites: int, symbol: str, side: float) -> str:
    """Returns a CIF with sites in general positions of a space group."""
    operations = "".join(f"\n'{operation.as_xyz_str()}'" for operation in SpaceGroup(symbol).symmetry_ops)
    coordinates = np.random.default_rng(1).uniform(0, 0.5, (sites, 3))
    rows = "\n".join(f"Si{i} Si {x:.5f} {y:.5f} {z:.5f}" for i, (x, y, z) in enumerate(coordinates))
    return cif(cubic(side), f"{HM} 'P 1'\nloop_\n_symmetry_equiv_pos_as_xyz{operations}", rows)


def test_symmetry_that_makes_too_many_atoms_is_refused_before_they_are_compared(tmp_path):
    path = tmp_path / "x.cif"
    for sites, message in ((1000, "192 symmetry operations make more than 100000 atoms"), (9000, "are too many")):
        path.write_text(symmetric(sites, "Fm-3m", 900.0))
        started = time.process_time()
        with pytest.raises(InputError, match=message):
            read_cif(path)
        assert time.process_time() - started < 5


def test_large_crystals_are_read_with_and_without_the_files_symmetry(tmp_path):
    path = tmp_path / "x.cif"
    path.write_text(symmetric(40, "Fm-3m", 900.0))
    with pytest.warns(SimulationWarning, match="symmetry is searched for in cells of up to 600"):
        crystal = read_cif(path)
    assert (len(crystal.atoms), crystal.space_group) == (40 * 192, "Fm-3m")
    path.write_text(symmetric(75, "P222", 60.0))
    started = time.process_time()
    crystal = read_cif(path)
    assert (len(crystal.atoms), crystal.space_group) == (300, "P222")
    assert time.process_time() - started < 10


def test_a_site_of_nearly_nothing_has_an_order(tmp_path):
    path, keys = tmp_path / "x.cif", "_atom_site_fract_z\n"
    sites = CIF.replace(keys, f"{keys}_atom_site_occupancy\n").replace("Si1 Si 0 0 0\n", "Si1 Si 0 0 0 1\n")
    path.write_text(f"{sites}O1 O 0.5 0.5 0.5 1e-9\nO2 O 0.5 0 0.5 1e-9\n")
    assert len(read_cif(path).atoms) == 3
