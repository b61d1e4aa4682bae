"""Which specimens a dataset has: kinds by share, partners of the same split, and nothing new without kinds."""

import json
from dataclasses import replace

import ase
import numpy as np
import pytest
from ase.build import bulk
from fake_samples import MATERIALS, config

from namsa.config.instrument import KINDS
from namsa.config.simulation import SimulationConfig
from namsa.crystals.material import Material
from namsa.dataset import manifest
from namsa.dataset.entries import build_entries
from namsa.dataset.entry import Entry, material_of, materials_named
from namsa.dataset.sample_setup import build_supercell
from namsa.dataset.simulate_entry import simulate_entry
from namsa.dataset.strata import count_strata, table_rows
from namsa.dataset.workload import count_workload
from namsa.errors import InputError


def salt(cation: str, side: float) -> Material:
    atoms = bulk(f"{cation}O", "rocksalt", side, cubic=True)
    return Material(f"{cation}O", f"{cation}O", "Fm-3m", atoms, "test")


def metal(symbol: str, side: float) -> Material:
    return Material(symbol, symbol, "Fm-3m", bulk(symbol, "fcc", side, cubic=True), "test")


SALTS = [salt("Mg", 4.21), salt("Ni", 4.18), salt("Co", 4.26), salt("Fe", 4.33)]
METALS = [metal("Au", 4.08), metal("Ag", 4.09), metal("Al", 4.05), metal("Pt", 3.92)]
BY_NAME = {material.name: material for material in SALTS + METALS}


def with_kinds(kinds: dict[str, float], **more: object) -> SimulationConfig:
    specimen = {"zone_axes": [[0, 0, 1]], "thickness_angstrom": [20], "kinds": kinds, "lateral_angstrom": [8, 9]}
    return config(
        specimen=specimen | more,
        split={"train": 0.1, "dev": 0, "test": 0.9, "by": "prototype"},
        scan={"shape": [2, 2]},
        simulation={"grid_shape": [32, 40]},
    )


def test_kinds_occur_by_their_shares_and_are_counted() -> None:
    entries = build_entries(with_kinds({"crystal": 3, "vacancies": 1}, per_zone_axis=200), SALTS[:1])
    assert len({entry.id for entry in entries}) == 200
    assert sum(entry.kind == "crystal" for entry in entries) == pytest.approx(150, abs=20)
    assert {entry.specimen for entry in entries} == {entry.id.removesuffix("-20A") for entry in entries}
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
    assert all(entry.partner and entry.kind == "interface" and not entry.skipped for entry in entries)
    assert all(splits[entry.partner] == entry.split for entry in entries if entry.partner)
    assert all(entry.id == f"{entry.specimen}-20A" and f"-interface-{entry.partner}" in entry.id for entry in entries)
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
    assert not any({"kind", "partner", "specimen"} & line.keys() for line in lines)
    # Written by the version before kinds.
    assert (plain[0].id, plain[0].seed) == ("Cu-fcc-001-20A", FIRST_SEED)
    assert config().samples_hash() == SAMPLES_HASH
    assert manifest.config_hash(config(), MATERIALS) == CONFIG_HASH
    assert "kinds" not in count_strata(plain)


FIRST_SEED, SAMPLES_HASH, CONFIG_HASH = 41990927391533, "8e7a582ad1c087c8", "6d8634a0166df3b9"


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
    # On this coarse grid part is scattered beyond it, and the band-limited transmission may exceed 1: 1.0050 for a
    # precipitate, and 0.9984 with half the pixels.
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
    assert simulate_entry(cif, shaken(0.05), entry).provenance["frozen_phonons"]["rms_angstrom"] == "cif"
    with pytest.raises(InputError, match="no thermal displacement"):
        simulate_entry(cif, SALTS[0], entry)
