"""Which specimens a dataset has: kinds by share, partners of the same split, labels of their
parts.
"""

import json
from dataclasses import replace

import ase
import numpy as np
import pytest
from ase.build import bulk
from fake_samples import MATERIALS, config

import namsa
from namsa.base.errors import InputError
from namsa.config.simulation import SimulationConfig
from namsa.config.specimen import KINDS
from namsa.crystals.material import Material
from namsa.dataset import manifest
from namsa.dataset.entries import build_entries
from namsa.dataset.entry import Entry, material_of, materials_named
from namsa.dataset.labels import LABEL_NAMES, label_map
from namsa.dataset.sample_setup import build_supercell
from namsa.dataset.simulate_entry import simulate_entry
from namsa.dataset.strata import count_strata, table_rows
from namsa.dataset.workload import count_workload
from namsa.physics.grid import Grid


def salt(cation: str, side: float) -> Material:
    atoms = bulk(f"{cation}O", "rocksalt", side, cubic=True)
    return Material(f"{cation}O", f"{cation}O", "Fm-3m", atoms, "test")


def metal(symbol: str, side: float) -> Material:
    return Material(symbol, symbol, "Fm-3m", bulk(symbol, "fcc", side, cubic=True), "test")


SALTS = [salt("Mg", 4.21), salt("Ni", 4.18), salt("Co", 4.26), salt("Fe", 4.33)]
METALS = [metal("Au", 4.08), metal("Ag", 4.09), metal("Al", 4.05), metal("Pt", 3.92)]
BY_NAME = {material.name: material for material in SALTS + METALS}


def with_kinds(kinds: dict[str, float], **more: object) -> SimulationConfig:
    specimen = {
        "zone_axes": [[0, 0, 1]],
        "thickness_angstrom": [20],
        "kinds": kinds,
        "lateral_angstrom": [8, 9],
    }
    return config(
        specimen=specimen | more,
        split={"train": 0.1, "dev": 0, "test": 0.9, "by": "prototype"},
        scan={"shape": [2, 2]},
        simulation={"grid_shape": [32, 40]},
    )


def test_kinds_occur_by_their_shares_and_are_counted() -> None:
    entries = build_entries(
        with_kinds({"crystal": 3, "vacancies": 1}, per_zone_axis=200), SALTS[:1]
    )
    assert len({entry.id for entry in entries}) == 200
    kinds = [entry.kind for entry in entries]
    assert kinds.count("crystal") == pytest.approx(150, abs=20)
    for entry in entries:
        assert entry.specimen == entry.id.removesuffix("-20A")
    fewer = build_entries(with_kinds({"crystal": 3, "vacancies": 1}, per_zone_axis=3), SALTS[:1])
    assert [entry.id for entry in fewer] == [entry.id for entry in entries[:3]]
    strata = count_strata(build_entries(with_kinds({"twin": 1, "step": 1}, per_zone_axis=5), SALTS))
    assert set(strata["kinds"]) == {"twin", "step"}
    assert sum(sum(counts.values()) for counts in strata["kinds"].values()) == 20
    assert "twin: " in dict(table_rows(strata))["kinds"]


def test_partners_are_of_the_same_split() -> None:
    settings = with_kinds({"interface": 1}, per_zone_axis=4)
    entries = build_entries(settings, SALTS + METALS)
    splits = {entry.material: entry.split for entry in entries}
    assert set(splits.values()) == {"train", "test"}
    for entry in entries:
        assert entry.partner
        assert entry.kind == "interface"
        assert not entry.skipped
    for entry in entries:
        if entry.partner:
            assert splits[entry.partner] == entry.split
    for entry in entries:
        assert entry.id == f"{entry.specimen}-20A"
        assert f"-interface-{entry.partner}" in entry.id
    assert len(materials_named(entries[:1])) == 2


def test_a_kind_that_cannot_be_made_gives_way_to_the_next() -> None:
    entries = build_entries(with_kinds({"interface": 1000, "surface": 1}), SALTS[:1])
    assert [entry.kind for entry in entries] == ["surface"]
    (entry,) = build_entries(with_kinds({"interface": 1}), SALTS[:1])
    assert entry.kind == "interface"
    assert "no other material of the same split fits" in str(entry.skipped)
    thin = with_kinds({"amorphous": 1}, max_atoms=200)
    assert "up to" in str(build_entries(thin, METALS[:1])[0].skipped)


def test_without_kinds_all_is_as_before() -> None:
    plain = build_entries(config(), MATERIALS)
    lines = [json.loads(entry.to_json()) for entry in plain]
    for line in lines:
        assert not {"kind", "partner", "specimen"} & line.keys()
    # Written by the version before kinds.
    assert (plain[0].id, plain[0].seed) == ("Cu-fcc-001-20A", FIRST_SEED)
    assert config().settings_hash() == SETTINGS_HASH
    assert manifest.config_hash(config(), MATERIALS) == CONFIG_HASH
    assert "kinds" not in count_strata(plain)


FIRST_SEED = 41990927391533
SETTINGS_HASH = "8e7a582ad1c087c8"
CONFIG_HASH = "6d8634a0166df3b9"


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_says_what_its_specimen_is(kind: str) -> None:
    settings = with_kinds({kind: 1})
    (entry, *_) = build_entries(settings, SALTS)
    assert entry.kind == kind
    assert Entry.from_json(entry.to_json()) == entry
    material = material_of(entry, BY_NAME)
    sample = simulate_entry(settings, material, entry)
    provenance = json.loads(json.dumps(sample.provenance))
    atoms = build_supercell(settings, material, entry).atoms
    if kind == "crystal":
        assert "kind" not in provenance
    else:
        assert (provenance["kind"], provenance["atoms"]) == (kind, len(atoms))
        assert provenance["kind_parameters"]
    assert provenance.get("partner") == entry.partner
    # The density is that of the atoms: its mean is the number of electrons over the area.
    area = float(np.prod(atoms.cell.lengths()[:2]))
    assert sample.density.mean() == pytest.approx(atoms.numbers.sum() / area, rel=1e-3)
    # On this coarse grid part is scattered beyond it, and the band-limited transmission may exceed
    # 1: 1.0050 for a precipitate, and 0.9984 with half the pixels.
    intensity = sample.cbed.sum(axis=(1, 2))
    assert np.all((intensity > 0.8) & (intensity <= (1.01 if kind == "precipitate" else 1.0001)))
    workload = count_workload(settings, material, entry)
    assert workload.atoms >= 0.9 * len(atoms)
    assert workload.elements >= len(set(atoms.numbers))
    assert workload.distinct_slices == workload.work.slices or kind == "crystal"


def test_amplitudes_of_a_file_change_the_dataset() -> None:
    def shaken(amplitude: float) -> Material:
        atoms: ase.Atoms = SALTS[0].atoms.copy()
        atoms.set_array("rms_displacement_angstrom", np.full(len(atoms), amplitude))
        return replace(SALTS[0], atoms=atoms)

    cif = with_kinds({"amorphous_layer": 1}, frozen_phonons={"rms_angstrom": "cif"})
    hashes = {manifest.config_hash(cif, [shaken(amplitude)]) for amplitude in (0.05, 0.06)}
    assert len(hashes) == 2
    plain = with_kinds({"crystal": 1})
    assert manifest.config_hash(plain, [shaken(0.05)]) == manifest.config_hash(plain, SALTS[:1])
    (entry,) = build_entries(cif, SALTS[:1])
    assert (
        simulate_entry(cif, shaken(0.05), entry).provenance["frozen_phonons"]["rms_angstrom"]
        == "cif"
    )
    with pytest.raises(InputError, match="no thermal displacement"):
        simulate_entry(cif, SALTS[0], entry)


# ---- Labels

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
    # beyond the periodic cell, too
    y = np.linspace(0, ly, 57)
    x = np.linspace(-3, lx, 61)
    return made, label_map(made.atoms, grid, y, x), y[:, None], x[None]


@pytest.mark.parametrize("kind", ["grain", "precipitate"])
def test_an_inclusion_is_where_its_cylinder_is(kind):
    made, labels, y, x = labelled(kind, diameter=0.5, place_y=0.3, place_x=0.9)
    lx, ly, _ = made.atoms.cell.lengths()
    dy = (y - 0.3 * ly + ly / 2) % ly - ly / 2
    dx = (x - 0.9 * lx + lx / 2) % lx - lx / 2
    distance = np.hypot(dy, dx)
    radius = 0.25 * min(lx, ly)
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
    from_planes = np.minimum(
        *(abs((x - plane + lx / 2) % lx - lx / 2) for plane in (first, second))
    )
    between = (x % lx > first) & (x % lx < second)
    far = np.broadcast_to(from_planes > BORDER, labels.shape)
    inner = labels[far & between]
    outer = labels[far & ~between]
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
