"""The manifest: the same list on every rank, split by material, written once or alone, and any
change is noticed.
"""

import json
import re
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from fake_samples import MATERIALS, config

from namsa import InputError, SimulationWarning
from namsa.base.errors import DifferentError
from namsa.cli.parser import main
from namsa.config import simulation
from namsa.config.materials import Split
from namsa.config.simulation import SimulationConfig, load_config
from namsa.crystals import substitution
from namsa.dataset import factory, identity, manifest
from namsa.dataset.entries import build_entries, spread_over_thicknesses
from namsa.dataset.entry import SPLITS, Entry, split_of
from namsa.dataset.manifest import config_hash, ensure, read, read_header
from namsa.dataset.sharing import RankLayout, share
from namsa.dataset.verify import verify

UNEVEN = Split(train=0.7, dev=0.1, test=0.2)


def test_every_material_axis_and_thickness_is_listed_once_with_a_seed_of_its_own():
    entries = build_entries(config(), MATERIALS)
    assert len(entries) == 12
    assert entries[0].id == "Cu-fcc-001-20A"
    assert entries[3].id == "Cu-fcc-1-10-12.5A"
    assert entries[3].zone_axis == (1, -1, 0)
    assert entries[3].thickness_angstrom == 12.5
    assert len({entry.seed for entry in entries}) == 12
    for entry in entries:
        assert entry.skipped is None
    one = build_entries(config(), MATERIALS[:1])
    more = build_entries(config(), MATERIALS)
    assert one == more[:4]
    assert not {entry.seed for entry in build_entries(config(seed=1), MATERIALS)} & {
        entry.seed for entry in more
    }


def test_some_of_all_thicknesses_are_spread_over_the_list():
    entries = []
    for t in [20.0] * 9 + [50.0] * 2:
        entries.append(replace(build_entries(config(), MATERIALS)[0], thickness_angstrom=t))
    indices = []
    for chosen in spread_over_thicknesses(entries, 6):
        indices.append(next(i for i, entry in enumerate(entries) if entry is chosen))
    assert indices == [0, 4, 8, 9, 10]  # three per thickness; the second has only two
    assert spread_over_thicknesses([], 6) == []
    drawn = [replace(entries[0], thickness_angstrom=20.0 + index * 7 % 31) for index in range(31)]
    assert [entry.thickness_angstrom for entry in spread_over_thicknesses(drawn, 4)] == [
        20,
        30,
        40,
        50,
    ]


def test_splits_are_by_formula_however_it_is_named_and_come_in_the_wanted_proportions(monkeypatch):
    formulas = [f"X{index}" for index in range(4000)]
    splits = [split_of(formula, UNEVEN) for formula in formulas]
    for name in SPLITS:
        assert splits.count(name) / len(splits) == pytest.approx(getattr(UNEVEN, name), abs=0.02)
    assert splits == [split_of(formula, UNEVEN) for formula in formulas]
    assert {split_of(formula, Split(train=0.9, dev=0.1, test=0)) for formula in formulas} == {
        "train",
        "dev",
    }
    assert {split_of(formula, Split(train=0, dev=0, test=1)) for formula in formulas} == {"test"}
    polymorphs = [replace(material, formula="SiC") for material in MATERIALS]
    entries = build_entries(config(split=UNEVEN.model_dump()), polymorphs)
    assert len({entry.split for entry in entries}) == 1
    monkeypatch.setattr("namsa.dataset.entry._sha256", lambda text: b"\xff" * 32)
    assert split_of("X", Split(train=0.9, dev=0.1 - 1e-10, test=0)) == "dev"
    assert split_of("X", UNEVEN) == "test"


def test_what_cannot_be_built_is_listed_with_its_reason_and_counted(tmp_path):
    few = config(specimen={"thickness_angstrom": [10, 200, 20], "max_atoms": 600})
    entries = ensure(tmp_path, few, MATERIALS)
    assert len(entries) == 9
    skipped = [entry for entry in entries if entry.skipped]
    assert {entry.thickness_angstrom for entry in skipped} >= {200}
    for entry in skipped:
        assert "max_atoms is 600" in entry.skipped
    for material in MATERIALS:  # what can be built at one thickness can be at all smaller ones
        flags = [
            bool(e.skipped)
            for e in sorted(entries, key=lambda e: e.thickness_angstrom)
            if e.material == material.name
        ]
        assert flags == sorted(flags)
    header = read_header(tmp_path)
    assert (header["entries"], header["samples"], header["skipped"]) == (
        9,
        9 - len(skipped),
        len(skipped),
    )
    assert header["splits"] == {"train": 9 - len(skipped), "dev": 0, "test": 0}
    entries = build_entries(
        config(specimen={"thickness_angstrom": [20, 19, 12.5, 21, 1, 2]}), MATERIALS[:1]
    )  # a = 3.61 Å
    assert [bool(entry.skipped) for entry in entries] == [False, False, False, True, False, True]
    assert entries[3].skipped == "21 Å is 6 × the crystal's period of 3.61 Å, and so is 20 Å"
    assert entries[5].skipped.endswith("so is 1 Å")


def test_an_empty_split_is_told_when_the_list_is_written(tmp_path):
    few = config(split={"train": 0.9, "dev": 0.05, "test": 0.05})
    with pytest.warns(
        SimulationWarning,
        match=r"in dev \(5%\) and test \(5%\): splits are by formula, and there are 3 formulas:",
    ):
        ensure(tmp_path, few, MATERIALS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ensure(tmp_path, few, MATERIALS)  # it exists already


def test_the_time_of_a_list_of_tens_of_thousands_is_linear_in_its_length():
    """A ratio, since a busy machine takes several times as long."""
    many = [replace(MATERIALS[0], name=f"m{index}") for index in range(100)]
    thick = config(specimen={"thickness_angstrom": [float(t) for t in range(10, 210)]})

    def cpu_seconds(materials):
        start = time.process_time()
        assert len(build_entries(thick, materials)) == 200 * len(materials)
        return time.process_time() - start

    cpu_seconds(many[:1])  # what is computed once
    assert cpu_seconds(many) < 10 * 3 * cpu_seconds(many[:10])


def test_what_is_written_is_read_and_not_built_again_and_the_header_names_what_was_merged(
    tmp_path, monkeypatch
):
    written = ensure(
        tmp_path, config(), (replace(MATERIALS[0], merged=("copper (cu.cif)",)), *MATERIALS[1:])
    )
    assert read_header(tmp_path)["merged"] == {"Cu-fcc": ["copper (cu.cif)"]}
    assert read(tmp_path) == written == build_entries(config(), MATERIALS)
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.jsonl"]
    monkeypatch.setattr("namsa.dataset.manifest.build_entries", None)
    assert ensure(tmp_path, config(name="renamed"), MATERIALS) == written


def test_ranks_that_start_together_agree(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        lists = list(pool.map(lambda _: ensure(tmp_path, config(), MATERIALS), range(32)))
    assert all(entries == lists[0] for entries in lists)
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.jsonl"]


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 1},
        {"split": {"train": 0.9, "dev": 0.1, "test": 0}},
        {"specimen": {"zone_axes": [[0, 0, 1]], "thickness_angstrom": [20, 12.5]}},
        {"specimen": {"zone_axes": [[0, 0, 1], [1, -1, 0]], "thickness_angstrom": [20, 12.6]}},
        {"microscope": {"energy_ev": 100e3}},
    ],
)
def test_a_directory_belongs_to_one_configuration(tmp_path, other):
    ensure(tmp_path, config(), MATERIALS)
    identity.write_settings(tmp_path, config())
    with pytest.raises(DifferentError, match="directory of its own") as error:
        ensure(tmp_path, config(**other), MATERIALS)
    assert config_hash(config(), MATERIALS) in str(error.value)
    assert config_hash(config(**other), MATERIALS) in str(error.value)
    (section,) = other
    assert f"\n  {section}" in str(error.value)
    (tmp_path / "config.yaml").unlink()  # as of earlier versions, for a list without samples
    with pytest.raises(DifferentError, match="the dataset in .*\n  config_hash: was "):
        ensure(tmp_path, config(**other), MATERIALS)


def test_a_dataset_whose_samples_would_get_other_values_is_not_continued(tmp_path, monkeypatch):
    """Its list is the same one. Where pixels and slices are given, values are those of all
    revisions.
    """
    chosen = config(simulation={"sampling_angstrom": "auto"})
    given = config()
    before = config_hash(chosen, MATERIALS)
    for name, settings in (("chosen", chosen), ("given", given)):
        (tmp_path / name).mkdir()
        ensure(tmp_path / name, settings, MATERIALS)
    raised = simulation.REVISIONS | {"chosen": simulation.REVISIONS["chosen"] + 1}
    monkeypatch.setattr(simulation, "REVISIONS", raised)
    assert config_hash(chosen, MATERIALS) == before
    ensure(tmp_path / "given", given, MATERIALS)
    with pytest.raises(
        InputError, match="another version of namsa, which gives its samples other values"
    ):
        ensure(tmp_path / "chosen", chosen, MATERIALS)


def test_a_crystal_whose_atoms_changed_is_another_configuration(tmp_path):
    ensure(tmp_path, config(), MATERIALS)
    moved = MATERIALS[2].atoms.copy()
    moved.positions[0, 1] += 0.01
    with pytest.raises(InputError, match="directory of its own"):
        ensure(tmp_path, config(), (*MATERIALS[:2], replace(MATERIALS[2], atoms=moved)))
    with pytest.raises(InputError, match="directory of its own"):
        ensure(tmp_path, config(), MATERIALS[:2])


def test_without_a_manifest_the_remedy_is_told(tmp_path):
    for use in (read, verify):
        with pytest.raises(InputError, match=r"no .*manifest\.jsonl.*namsa dataset CONFIG"):
            use(tmp_path)


@pytest.mark.filterwarnings("ignore:no sample is in train:namsa.SimulationWarning")
def test_lists_that_cannot_be_trained_on_and_samples_of_one_name_are_refused(tmp_path):
    held_out = next(f"X{n}" for n in range(1000) if split_of(f"X{n}", UNEVEN) != "train")
    materials = [replace(MATERIALS[0], formula=held_out)]
    with pytest.raises(InputError, match=r"held out.*add materials"):
        ensure(tmp_path, config(split=UNEVEN.model_dump()), materials)
    with pytest.raises(
        InputError, match=r"none of the 3 samples can be built; Cu-fcc-001-20A: .*max_atoms is 1;"
    ):
        ensure(tmp_path, config(specimen={"max_atoms": 1}), MATERIALS)
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match="2 samples would be named Cu-fcc-001-20A"):
        build_entries(config(specimen={"thickness_angstrom": [20, 30, 20]}), MATERIALS)
    with pytest.raises(InputError, match="2 samples would be named"):
        build_entries(config(specimen={"thickness_angstrom": [20.0000001, 20.0000002]}), MATERIALS)


def test_an_entry_leaves_out_what_only_some_specimens_have():
    entry = build_entries(config(), MATERIALS)[0]
    written = json.loads(entry.to_json())
    assert list(written)[-2:] == [
        "source",
        "cost",
    ]  # the lines of all manifests before specimens had kinds
    of_interface = replace(entry, specimen="Cu-fcc-001-s1", kind="interface", partner="NaCl")
    assert set(json.loads(of_interface.to_json())) - set(written) == {"specimen", "kind", "partner"}
    assert Entry.from_json(entry.to_json()) == entry
    assert Entry.from_json(of_interface.to_json()) == of_interface


# ---- The manifest alone
# ---------------------------------------------------------------------------------------------

CONFIG = """
name: many
seed: 3
materials:
  builtin: [NaCl-225-cF8, CaTiO3-221-cP5, MgCu2-227-cF24, Cu-225-cF4]
  substitute: {limit: 60, max_ions: 2, mixing_steps: 2, alloys: true}
split: {train: 0.7, dev: 0.15, test: 0.15, by: elements}
specimen: {simplest_zone_axes: 3, thickness_angstrom: [20], lateral_angstrom: [10, 12]}
scan: {shape: [2, 3]}
simulation: {grid_shape: [32, 40]}
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SimulationConfig]:
    """A folder with many.yaml and, in `first`, its manifest."""
    folder = tmp_path_factory.mktemp("many")
    (folder / "many.yaml").write_text(CONFIG)
    assert (
        main(
            [
                "dataset",
                str(folder / "many.yaml"),
                "--out",
                str(folder / "first"),
                "--manifest-only",
            ]
        )
        == 0
    )
    return folder, load_config(folder / "many.yaml")


def test_the_last_line_counts_the_manifest(written, capsys) -> None:
    folder, config = written
    assert (
        main(
            [
                "dataset",
                str(folder / "many.yaml"),
                "--out",
                str(folder / "first"),
                "--manifest-only",
            ]
        )
        == 0
    )
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    header = manifest.read_header(folder / "first")
    entries = manifest.read(folder / "first")
    assert list(summary) == ["materials", "configurations", "train", "dev", "test", "seconds"]
    assert summary["materials"] == header["materials"] == 64
    assert (
        summary["configurations"]
        == len(entries)
        == 3 * 64
        == sum(summary[split] for split in SPLITS)
    )
    counts = json.loads((folder / "first" / "strata.json").read_text())
    assert sum(sum(by_split.values()) for by_split in counts["crystal_systems"].values()) == len(
        entries
    )
    assert not list((folder / "first").glob("*.lmdb"))
    assert config.samples_hash() == header["samples_hash"]


def test_the_same_configuration_gives_the_same_bytes(written) -> None:
    folder, _ = written
    assert (
        main(
            [
                "dataset",
                str(folder / "many.yaml"),
                "--out",
                str(folder / "second"),
                "--manifest-only",
            ]
        )
        == 0
    )
    first, second = (folder / name / "manifest.jsonl" for name in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()


def test_no_material_no_formula_and_no_set_of_elements_is_in_two_splits(written) -> None:
    folder, _ = written
    entries = manifest.read(folder / "first")
    assert {entry.split for entry in entries} == set(SPLITS)
    for label in (
        lambda entry: entry.material,
        lambda entry: entry.formula,
        lambda entry: frozenset(re.findall("[A-Z][a-z]?", entry.formula)),
    ):
        sets = []
        for split in SPLITS:
            sets.append({label(entry) for entry in entries if entry.split == split})
        assert sum(map(len, sets)) == len(set.union(*sets))


def test_a_rank_derives_only_the_crystals_of_its_share(written, monkeypatch, tmp_path) -> None:
    folder, config = written
    derived: list[str] = []
    crystal = substitution._crystal

    def count(derivation):
        derived.append(derivation.prototype.name)
        return crystal(derivation)

    monkeypatch.setattr(substitution, "_crystal", count)
    simulated = []

    def prepare(config, material, entries):
        simulated.extend((material.name, entry.material) for entry in entries)
        raise InputError("not simulated")

    settings = config.model_copy(
        update={"data": config.data.model_copy(update={"manifest_from": folder / "first"})}
    )
    factory.produce(settings, tmp_path, RankLayout(5, 40, 1), prepare=prepare)
    entries = share(manifest.read(folder / "first"), 5, 40)
    assert {name for name, _ in simulated} == {entry.material for entry in entries}
    for name, of_entry in simulated:
        assert name == of_entry
    substituted = {entry.material for entry in entries if entry.source == "substituted"}
    assert len(derived) == len(substituted)
    listed = (folder / "first" / "manifest.jsonl").read_bytes()
    assert (tmp_path / "manifest.jsonl").read_bytes() == listed


def test_a_manifest_of_other_sources_is_compared_crystal_by_crystal(written, monkeypatch) -> None:
    folder, config = written
    assert manifest.read_if_current(folder / "first", config) is not None
    monkeypatch.setattr(substitution, "VERSION", substitution.VERSION + 1)
    assert manifest.read_if_current(folder / "first", config) is None
    other = config.model_copy(update={"seed": 4})
    with pytest.raises(InputError, match="was made differently:\n  seed: was 3, is 4\n"):
        manifest.ensure(folder / "first", other, ())


def test_present_reads_the_requested_entries_only(written) -> None:
    folder, _ = written
    entries = manifest.read(folder / "first")
    ids = [entries[3].id, entries[-1].id, "absent"]
    assert manifest.present(folder / "first", ids) == [entries[3], entries[-1]]
