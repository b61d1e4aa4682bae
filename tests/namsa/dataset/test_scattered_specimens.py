"""Samples of one specimen from one scattering: the same bits in any run, and what a simulation of
each would give.
"""

import numpy as np
import pytest
from ase.build import bulk
from fake_samples import contents

import namsa
from namsa.base import memory
from namsa.base.errors import InputError, OutOfMemoryError
from namsa.config.simulation import SimulationConfig
from namsa.crystals.material import Material
from namsa.dataset import factory, listing, sample_setup, simulate_entry
from namsa.dataset.entries import build_entries
from namsa.dataset.failures import read_failures
from namsa.dataset.sample_setup import build_supercell
from namsa.dataset.sharing import RankLayout, by_specimen, share

MATERIALS = tuple(
    Material(f"{symbol}-{structure}", symbol, group, bulk(symbol, structure, a, cubic=True), "test")
    for symbol, structure, group, a in (("Cu", "fcc", "Fm-3m", 3.61), ("Fe", "bcc", "Im-3m", 2.87))
)
TREE = {
    "split": {"train": 1, "dev": 0, "test": 0},
    "specimen": {
        "zone_axes": [[0, 0, 1], [1, 1, 0]],
        "thickness_angstrom": [17],
        "lateral_angstrom": [10, 7],
        "frozen_phonons": {"rms_angstrom": 0.05},
    },
    "microscope": {"semiangle_mrad": 18},
    "simulation": {"sampling_angstrom": 0.25, "method": "scatter", "backend": "cpu"},
    "scan": {"shape": [3, 4], "step_angstrom": [0.5, 0.4], "origin_angstrom": "random"},
    "detector": {"shape": [10, 14], "pixel_mrad": 4},
    "target": {"at": "scan"},
    "data": {"dtype": "float32"},
}
VARIATION = {
    "rule": "random",
    "configurations": 3,
    "thickness_angstrom": [4, 16],
    "defocus_angstrom": [-100, 100],
    "beam_tilt_mrad": [0, 3],
    "source_size_angstrom": [0, 1],
    "specimen_tilt_mrad": [0, 10],
    "rms_displacement_angstrom": [0.04, 0.08],
}


def settings(variation=VARIATION, **sections) -> SimulationConfig:
    return SimulationConfig.model_validate(TREE | {"variation": variation} | sections)


@pytest.fixture(autouse=True)
def _materials(monkeypatch):
    monkeypatch.setattr(listing, "select_materials", lambda *_, **__: MATERIALS)


def produce(directory, rank=0, size=1, *, config=None, limit=None, **options):
    layout = RankLayout(rank, size, 1)
    return factory.produce(
        config or settings(), directory, layout, factory.RunLimits(limit), **options
    )


@pytest.fixture(scope="module")
def stored_dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listing, "select_materials", lambda *_, **__: MATERIALS)
        assert produce(folder)["written"] == 12
    return folder


@pytest.mark.slow
def test_samples_have_the_same_bits_in_a_resumed_run_and_on_two_ranks(tmp_path, stored_dataset):
    expected = contents(stored_dataset)
    assert produce(tmp_path / "resumed", limit=4)["remaining"] == 8
    assert contents(tmp_path / "resumed").items() < expected.items()
    assert produce(tmp_path / "resumed")["present"] == 4
    assert contents(tmp_path / "resumed") == expected
    counts = [produce(tmp_path / "two", rank, 2)["written"] for rank in (0, 1)]
    assert counts == [6, 6]
    assert contents(tmp_path / "two") == expected


def test_a_specimen_is_of_one_rank_and_its_samples_differ_in_all_but_itself():
    entries = build_entries(settings(), MATERIALS)
    groups = by_specimen(entries)
    assert sorted(len(group) for group in groups) == [3, 3, 3, 3]
    tilts = set()
    for group in groups:
        first_entry = group[0]
        tilts.add(str(first_entry.varied["specimen_tilt_mrad"]))
        for entry in group:
            assert entry.specimen == first_entry.specimen
            assert entry.split == first_entry.split
            assert 4 <= entry.thickness_angstrom <= 16
            for name in ("specimen_tilt_mrad", "rms_displacement_angstrom"):
                assert str(entry.varied[name]) == str(first_entry.varied[name])
        for name in ("defocus_angstrom", "beam_tilt_mrad", "source_size_angstrom"):
            assert len({str(entry.varied[name]) for entry in group}) == 3
        assert len({entry.thickness_angstrom for entry in group}) == 3
    assert len(tilts) == 4
    shared = []
    specimens = set()
    for rank in range(3):
        rank_entries = share(entries, rank, 3)
        shared += rank_entries
        names = [entry.specimen for entry in rank_entries]
        assert names == sorted(names, key=names.index)  # one specimen after the other
        for name in names:
            assert names.count(name) == 3
        assert not specimens & set(names)  # a specimen is of one rank
        specimens.update(names)
    assert len(specimens) == 4
    assert sorted(entry.id for entry in shared) == sorted(entry.id for entry in entries)


def test_a_sample_is_that_of_its_atoms_alone(stored_dataset):
    """Without thermal displacements, which the specimen draws for all its atoms."""
    no_phonons = {}
    for name, value in VARIATION.items():
        if name != "rms_displacement_angstrom":
            no_phonons[name] = value
    specimen = TREE["specimen"] | {"frozen_phonons": None}
    config = settings(no_phonons | {"source_size_angstrom": None}, specimen=specimen)
    entries = build_entries(config, MATERIALS)[:3]
    simulate = simulate_entry.prepare_samples(config, MATERIALS[0], entries)
    for entry in entries:
        sample = simulate(entry)
        p = sample.provenance
        drawn = entry.varied
        atoms = build_supercell(config, MATERIALS[0], entry).atoms
        assert p["grid_shape"][0] != p["grid_shape"][1]
        assert p["wanted_thickness_angstrom"] == entry.thickness_angstrom
        assert atoms.cell.lengths()[2] == p["thickness_angstrom"]
        assert (
            abs(p["thickness_angstrom"] - entry.thickness_angstrom)
            <= 0.51 * p["slice_thickness_angstrom"]
        )
        assert p["scattering"]["specimen"] == entry.specimen == "Cu-fcc-001"
        assert p["slices"] in p["scattering"]["depths"]
        expected = namsa.simulate(
            atoms,
            energy_ev=200e3,
            semiangle_mrad=18,
            grid_shape=tuple(p["grid_shape"]),
            positions_angstrom=p["positions_angstrom"],
            scan_shape=(3, 4),
            slice_thickness_angstrom=p["slice_thickness_angstrom"],
            aberrations={"C10": -drawn["defocus_angstrom"]},
            beam_tilt_mrad=tuple(drawn["beam_tilt_mrad"]),
            specimen_tilt_mrad=tuple(drawn["specimen_tilt_mrad"]),
            detector=config.detector,
            method="multislice",
            backend="cpu",
        )
        assert np.linalg.norm(sample.cbed - expected.cbed) < 3e-6 * np.linalg.norm(expected.cbed)
        np.testing.assert_allclose(
            sample.projected_potential,
            expected.projected_potential,
            rtol=1e-5,
            atol=1e-5 * expected.projected_potential.max(),
        )
        alone = simulate_entry.simulate_entry(config, MATERIALS[0], entry)
        assert np.linalg.norm(alone.cbed - sample.cbed) < 3e-6 * np.linalg.norm(sample.cbed)
        np.testing.assert_allclose(alone.density, sample.density, rtol=1e-5)


def test_listed_thicknesses_are_cut_from_the_largest(tmp_path):
    specimen = TREE["specimen"] | {"thickness_angstrom": [6, 6.3, 17], "zone_axes": [[0, 0, 1]]}
    config = settings(None, specimen=specimen)
    entries = build_entries(config, MATERIALS[:1])
    assert [entry.id for entry in entries] == ["Cu-fcc-001-6A", "Cu-fcc-001-6.3A", "Cu-fcc-001-17A"]
    assert entries[1].skipped == "6.3 Å is 3 slices of the specimen, and so is 6 Å"
    assert {entry.specimen for entry in entries} == {"Cu-fcc-001"}
    simulate = simulate_entry.prepare_samples(config, MATERIALS[0], [entries[0], entries[2]])
    assert simulate(entries[2]).provenance["thickness_angstrom"] == pytest.approx(
        5 * 3.61
    )  # whole periods


def test_what_fails_for_the_specimen_fails_its_samples_and_one_sample_only_itself(
    tmp_path, monkeypatch
):
    prepare = simulate_entry.prepare_samples
    specimens = by_specimen(build_entries(settings(), MATERIALS))

    def failing(config, material, entries):
        if entries[0].specimen == specimens[0][0].specimen:
            raise InputError("no such tilt")
        simulate = prepare(config, material, entries)

        def fail_for_one(entry):
            if entry.id == specimens[1][1].id:
                raise InputError("too tilted")
            return simulate(entry)

        return fail_for_one

    summary = produce(tmp_path, prepare=failing)
    assert (summary["written"], summary["failed"], summary["remaining"]) == (8, 4, 0)
    failures = read_failures(tmp_path, settings().samples_hash())
    assert set(failures) == {entry.id for entry in specimens[0]} | {specimens[1][1].id}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"simulation": TREE["simulation"] | {"method": "auto"}},
            "simulation.method must be scatter",
        ),
        ({"target": {"depth_bins": 2}}, r"target.depth_bins is 2.*method to auto"),
        (
            {"specimen": TREE["specimen"] | {"thickness_angstrom": [12]}},
            "up to 16 Å, so give specimen.thickness",
        ),
        ({"specimen": TREE["specimen"] | {"thickness_angstrom": [12, 17]}}, "a larger one, alone"),
        (
            {"variation": {"rule": "grid", "specimen_tilt_mrad": [[0, 0], [0, 5]]}},
            "lists values of specimen_tilt_mrad, of which a specimen has one",
        ),
    ],
)
def test_contradictions_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        SimulationConfig.model_validate(TREE | {"variation": VARIATION} | change)


def test_the_hash_follows_the_thickness_that_samples_are_cut_from():
    thicker = settings(specimen=TREE["specimen"] | {"thickness_angstrom": [18]})
    assert thicker.samples_hash() != settings().samples_hash()


def test_what_does_not_fit_into_memory_says_what_to_change(tmp_path, monkeypatch):
    with pytest.raises(OutOfMemoryError, match="use fewer thicknesses or samples of a specimen"):
        factory.produce(settings(), tmp_path, limits=factory.RunLimits(memory_bytes=1000))
    entries = build_entries(settings(), MATERIALS)[:3]
    monkeypatch.setattr(memory, "available_memory_bytes", lambda: 10**5)
    monkeypatch.setattr(sample_setup, "check_memory_for", lambda *_: None)
    monkeypatch.setattr("namsa.crystals.supercell.check_memory_for", lambda *_: None)
    with pytest.raises(
        OutOfMemoryError, match="3 depths .* use a smaller max_detected_mrad, fewer thicknesses"
    ):
        simulate_entry.prepare_samples(settings(), MATERIALS[0], entries)
