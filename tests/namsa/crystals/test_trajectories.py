"""Trajectories: their frames, what is refused, and samples that are means over them."""

import ase
import ase.build
import ase.io
import ase.spacegroup
import ase.units
import numpy as np
import pytest

import namsa
from namsa import InputError, SimulationWarning
from namsa.config.simulation import SimulationConfig
from namsa.crystals.structure_files import read_crystal
from namsa.dataset.entries import build_entries
from namsa.dataset.manifest import _atoms_hash
from namsa.dataset.simulate_entry import prepare_samples
from namsa.dataset.workload import count_workload

CONFIG = {
    "split": {"train": 1, "dev": 0, "test": 0},
    "specimen": {"thickness_angstrom": [4], "lateral_angstrom": [8, 11]},
    "scan": {"shape": [2, 3], "step_angstrom": [0.5, 0.7]},
    "simulation": {"sampling_angstrom": 0.2, "precision": "float64"},
    "detector": {"shape": [8, 6], "pixel_mrad": 8},
}


def frames(count=3):
    """Strontium titanate in a cell of 7.8 × 3.9 × 3.9 Å, whose atoms vibrate."""
    sites = [(0, 0, 0), (0.5, 0.5, 0.5), (0.5, 0.5, 0), (0.5, 0, 0.5), (0, 0.5, 0.5)]
    cell = ase.Atoms("SrTiO3", scaled_positions=sites, cell=[3.9] * 3, pbc=True)
    snapshots = []
    for seed in range(count):
        snapshots.append(cell * (2, 1, 1))
        snapshots[-1].positions += np.random.default_rng(seed).normal(
            0, 0.1, snapshots[-1].positions.shape
        )
    return snapshots


def write_dump(
    path,
    atoms_of_frames,
    columns="id element x y z",
    scaled=False,
    origin=(0.0, 0.0, 0.0),
    units=(),
):
    """Writes a text dump as LAMMPS does."""
    lines = ["ITEM: UNITS", *units] if units else []
    for step, atoms in enumerate(atoms_of_frames):
        lines += ["ITEM: TIMESTEP", str(1_000_000 + step), "ITEM: NUMBER OF ATOMS", str(len(atoms))]
        lines += [
            "ITEM: BOX BOUNDS pp pp pp",
            *(
                f"{start!r} {start + side!r}"
                for start, side in zip(origin, atoms.cell.lengths().tolist(), strict=True)
            ),
        ]
        lines += [f"ITEM: ATOMS {columns}"]
        places = atoms.get_scaled_positions(wrap=False) if scaled else atoms.positions + origin
        for index, (symbol, place) in enumerate(zip(atoms.symbols, places.tolist(), strict=True)):
            words = [
                str(index + 1),
                *([symbol] if "element" in columns else ["1"]),
                *map(repr, place),
            ]
            lines.append(" ".join(words))
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("name", ["run.extxyz", "run.lammpstrj", "scaled.dump"])
def test_all_frames_of_a_trajectory_are_read(tmp_path, name):
    path = tmp_path / name
    written = frames()
    if name.endswith("xyz"):
        ase.io.write(path, written)
    elif name.startswith("scaled"):
        write_dump(path, written, "id element xs ys zs", scaled=True)
    else:
        write_dump(path, written)
    material = namsa.read_crystal(path)
    assert (material.name, material.formula, material.space_group) == (path.stem, "SrTiO3", "P1")
    assert len(material.snapshots) == 3
    for snapshot, expected in zip(material.snapshots, written, strict=True):
        assert snapshot.get_chemical_symbols() == expected.get_chemical_symbols()
        np.testing.assert_allclose(snapshot.positions, expected.positions, atol=1e-6)
        np.testing.assert_allclose(snapshot.cell.lengths(), [7.8, 3.9, 3.9], atol=1e-6)


@pytest.mark.parametrize("columns", ["x y z", "xu yu zu", "xs ys zs"])
def test_positions_of_a_dump_are_from_the_origin_of_its_box(tmp_path, columns):
    written = frames(1)
    path = tmp_path / "centred.dump"
    is_scaled = columns == "xs ys zs"
    write_dump(path, written, f"id element {columns}", is_scaled, origin=(-3.9, -1.5, 2.25))
    (snapshot,) = read_crystal(path).snapshots
    np.testing.assert_allclose(snapshot.positions, written[0].positions, atol=1e-6)


@pytest.mark.parametrize("style", ["metal", "nano", "electron", "si", "cgs", "micro"])
def test_lengths_of_a_dump_are_in_the_units_that_it_names(tmp_path, style):
    written = frames(1)
    expected = written[0].positions.copy()
    size = {"nano": 0.1, "electron": 1 / ase.units.Bohr, "si": 1e-10, "cgs": 1e-8, "micro": 1e-4}
    written[0].set_cell(written[0].cell * size.get(style, 1.0), scale_atoms=True)
    write_dump(tmp_path / "a.dump", written, origin=(size.get(style, 1.0), 0, 0), units=[style])
    (snapshot,) = read_crystal(tmp_path / "a.dump").snapshots
    np.testing.assert_allclose(snapshot.positions, expected, rtol=1e-6)
    np.testing.assert_allclose(snapshot.cell.lengths(), [7.8, 3.9, 3.9], rtol=1e-6)


def test_a_dump_in_reduced_units_is_refused_and_one_of_nanometres_without_units_warns(tmp_path):
    write_dump(tmp_path / "a.dump", frames(1), units=["lj"])
    with pytest.raises(InputError, match=r"a\.dump: its units are lj, whose unit of length"):
        read_crystal(tmp_path / "a.dump")
    small = frames(1)
    small[0].set_cell(small[0].cell * 0.1, scale_atoms=True)
    write_dump(tmp_path / "b.dump", small)
    with pytest.warns(SimulationWarning, match=r"b\.dump: its nearest atoms are 0\.2.* apart"):
        read_crystal(tmp_path / "b.dump")


def test_trajectories_that_would_have_to_be_guessed_at_are_refused(tmp_path):
    write_dump(tmp_path / "types.dump", frames(), "id type x y z")
    with pytest.raises(
        InputError, match=r"types\.dump: a dump of LAMMPS must name the elements.*dump_modify"
    ):
        read_crystal(tmp_path / "types.dump")
    strained = frames(2)
    strained[1].set_cell([7.9, 3.9, 3.9])
    write_dump(tmp_path / "npt.dump", strained)
    with pytest.raises(
        InputError, match=r"npt\.dump: frame 1: its cell differs from that of frame 0 by 0\.1 Å"
    ):
        read_crystal(tmp_path / "npt.dump")
    write_dump(tmp_path / "lost.dump", [frames()[0], frames()[1][:-1]])
    with pytest.raises(InputError, match="frame 1: it has other elements than frame 0"):
        read_crystal(tmp_path / "lost.dump")
    text = (tmp_path / "npt.dump").read_text()
    (tmp_path / "cut.dump").write_text(text[: len(text) - 60])
    with pytest.raises(InputError, match="cut.dump: it cannot be read as lammps-dump-text"):
        read_crystal(tmp_path / "cut.dump")
    (tmp_path / "empty.dump").write_text("")
    with pytest.raises(InputError, match="its columns are missing"):
        read_crystal(tmp_path / "empty.dump")


def sample_of(material, **specimen):
    config = SimulationConfig.model_validate(CONFIG | {"specimen": CONFIG["specimen"] | specimen})
    entry = build_entries(config, (material,))[0]
    return prepare_samples(config, material, [entry])(entry), config, entry


def test_a_sample_is_the_mean_over_the_frames(tmp_path):
    ase.io.write(tmp_path / "run.extxyz", frames())
    material = read_crystal(tmp_path / "run.extxyz")
    sample, config, entry = sample_of(material)
    assert sample.provenance["snapshots"] == 3
    assert sorted(sample.provenance["extent_angstrom"]) == pytest.approx(
        [11.7, 15.6]
    )  # frames, repeated
    single = []
    for frame in material.snapshots:
        single.append(sample_of(material.__class__("a", "SrTiO3", "P1", frame, "test"))[0])
    np.testing.assert_allclose(
        sample.cbed, np.mean([frame_sample.cbed for frame_sample in single], 0), atol=1e-12
    )
    np.testing.assert_allclose(
        sample.density, np.mean([frame_sample.density for frame_sample in single], 0), atol=1e-9
    )
    workload = count_workload(config, material, entry)
    assert (workload.configurations, workload.distinct_slices) == (3, sample.provenance["slices"])


def test_the_hash_of_a_trajectory_depends_on_every_frame(tmp_path):
    hashes = []
    for last in (2, 3):
        ase.io.write(tmp_path / "run.extxyz", [frames()[0], frames(4)[last]])
        hashes.append(_atoms_hash(read_crystal(tmp_path / "run.extxyz"), False))
    assert hashes[0] != hashes[1]


def test_a_trajectory_is_simulated_as_it_is(tmp_path):
    ase.io.write(tmp_path / "run.extxyz", frames())
    with pytest.raises(
        InputError, match="whose snapshots are simulated as they are: leave specimen.kinds twin out"
    ):
        sample_of(read_crystal(tmp_path / "run.extxyz"), kinds={"twin": 1})


def test_random_occupations_of_a_configuration_are_drawn_for_each_sample(tmp_path):
    alloy = ase.build.bulk("Au", cubic=True) + ase.build.bulk("Cu", a=4.08, cubic=True)
    alloy.set_array("occupancy", np.repeat([0.25, 0.75], 4))
    material = namsa.Material("AuCu3", "AuCu3", "Fm-3m", alloy, "test")
    virtual = sample_of(material)[0]
    drawn, config, entry = sample_of(material, random_occupations=6)
    again = sample_of(material, random_occupations=6)[0]
    assert drawn.provenance["snapshots"] == 6
    assert "snapshots" not in virtual.provenance
    np.testing.assert_array_equal(drawn.cbed, again.cbed)
    assert count_workload(config, material, entry).configurations == 6
    assert drawn.density.mean() == pytest.approx(
        virtual.density.mean(), rel=0.13
    )  # three standard deviations
    assert np.abs(drawn.cbed - virtual.cbed).max() > 1e-3 * virtual.cbed.max()
    gold = namsa.Material("Au", "Au", "Fm-3m", ase.build.bulk("Au", cubic=True), "test")
    assert "snapshots" not in sample_of(gold, random_occupations=6)[0].provenance  # no site to draw
