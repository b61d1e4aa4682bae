"""Files in the layout of the authors' programs: written here with lmdb and h5py, and by namsa from
a dataset.
"""

import json
from dataclasses import replace

import fake_samples
import h5py
import lmdb
import numpy as np
import pytest
from scipy.ndimage import gaussian_filter
from stemdl_files import PATTERNS, POTENTIALS, numbers, write_db

from namsa import InputError
from namsa.cli.parser import main
from namsa.crystals.orient import fit_cell
from namsa.dataset import manifest
from namsa.dataset.shards import Dataset
from namsa.exchange.stemdl import open_stemdl
from namsa.exchange.stemdl_export import covered_part, standardised_patterns, standardised_potential


@pytest.mark.parametrize("output", [b"2d_potential_", b"potential_"])
def test_samples_are_counted_by_their_keys_and_read_as_they_are_stored(tmp_path, output):
    path = write_db(
        tmp_path / "batch_train_0.db", {output + b"1": None, b"other": b"x"}, output, count=12
    )
    with open_stemdl(path) as file:
        assert file.names == tuple(str(i) for i in range(12) if i != 1)  # 10 is behind 9
        assert file.notes == ("left out: 1 sample with patterns or a potential alone",)
        for name in file.names:
            sample = file.read(name)
            np.testing.assert_array_equal(sample.patterns, PATTERNS[int(name) % 3])
            np.testing.assert_array_equal(sample.potential, POTENTIALS[int(name) % 3])
            assert (sample.patterns.dtype, sample.potential.dtype) == (np.float16, np.float32)


def test_info_describes_a_file_and_names_its_samples(tmp_path, capsys):
    path = str(write_db(tmp_path / "batch.db", {b"cbed_1": None}))
    assert main(["info", path]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "  samples   2",
        "  patterns  [4, 6, 5] float16",
        "  potential [1, 7, 9] float32",
        "  notes     left out: 1 sample with patterns or a potential alone",
    ]
    assert main(["info", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == 2
    assert main(["info", path, "--ids"]) == 0
    assert capsys.readouterr().out == "0\n2\n"
    write_db(tmp_path / "bad.db", {b"input_dtype": b"object"})
    assert main(["info", str(tmp_path / "bad.db")]) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({b"input_name": None}, "no header record input_name"),
        ({b"input_dtype": b"object"}, "input_dtype is 'object'"),
        ({b"output_dtype": b"\xff" * 9}, "output_dtype is"),
        ({b"input_shape": numbers(2**62, 2**62, 2**62)}, "cbed_0 has 240 bytes"),
        ({b"input_shape": numbers(4, -6, -5)}, "input_shape is"),
        ({b"input_shape": bytes(11)}, "input_shape is"),
        ({b"input_shape": b""}, "input_shape is"),
        ({b"output_shape": bytes(800)}, "output_shape has 800 bytes"),
        ({b"cbed_1": b"short"}, "cbed_1 has 5 bytes"),
        ({b"input_name": b""}, "input_name is"),
        ({b"output_name": b"other_"}, "holds no sample"),
    ],
)
def test_a_header_that_does_not_fit_is_one_line(tmp_path, monkeypatch, capsys, changes, message):
    monkeypatch.chdir(tmp_path)
    write_db(tmp_path / "batch.db", changes)
    assert main(["export", "batch.db", "--to", "npz", "--out", "arrays"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert message in lines[0]
    assert [path.name for path in tmp_path.iterdir()] == ["batch.db"]


def test_a_damaged_file_is_bad_input_wherever_the_damage_is(tmp_path, capsys):
    path = write_db(tmp_path / "batch.db", count=300)
    intact = (path / "data.mdb").read_bytes()
    rng = np.random.default_rng(3)
    damaged = [b"", b"nothing of LMDB", intact[:5000], intact[: len(intact) // 2], rng.bytes(40000)]
    for start in range(0, 40960, 1024):  # the metas and the first pages of the tree
        damaged.append(intact[:start] + rng.bytes(64) + intact[start + 64 :])
    refused = []
    for data in damaged:
        (path / "data.mdb").write_bytes(data)
        try:
            with open_stemdl(path) as file:
                for name in file.names:
                    assert file.read(name).patterns.shape == (4, 6, 5)
        except InputError as error:
            refused.append(str(error))
    assert len(refused) >= 10
    assert "repair" not in "".join(refused)  # which is for datasets of namsa
    (path / "data.mdb").write_bytes(intact[:5000])
    assert main(["export", str(path), "--to", "npz", "--out", str(tmp_path / "arrays")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_both_layouts_of_hdf5_are_read_with_their_attributes(tmp_path):
    with h5py.File(tmp_path / "batch_train_0.h5", "w") as file:
        group = file.create_group("Fe")
        group.attrs["space_group"] = "229"
        sample = group.create_group("sample_0")
        sample["CBED"], sample["potential"] = PATTERNS[0], POTENTIALS[0, 0]
        sample.attrs["aberrations"] = [1.0, 2.0, 3.0]
        group.create_group("sample_1")["CBED"] = PATTERNS[0]  # without a potential
        stack = file.create_group("sample_2_5")
        stack["cbed_stack"], stack.attrs["space_group"] = PATTERNS[1, :3], 62
    with open_stemdl(tmp_path / "batch_train_0.h5") as opened:
        assert opened.names == ("Fe/sample_0", "sample_2_5")
        pair, pattern = map(opened.read, opened.names)
    np.testing.assert_array_equal(pair.patterns, PATTERNS[0])
    np.testing.assert_array_equal(pair.potential, POTENTIALS[0, 0])
    assert pair.attributes == {"space_group": "229", "aberrations": [1.0, 2.0, 3.0]}
    np.testing.assert_array_equal(pattern.patterns, PATTERNS[1, :3])
    assert pattern.potential is None
    assert pattern.attributes == {"space_group": 62}


def test_an_array_of_another_shape_is_refused(tmp_path):
    with h5py.File(tmp_path / "wrong.h5", "w") as file:
        file["a/cbed_stack"] = PATTERNS[0, 0]
        file["b/other"] = PATTERNS
    with (
        open_stemdl(tmp_path / "wrong.h5") as opened,
        pytest.raises(InputError, match=r"shape \(6, 5\)"),
    ):
        opened.read("a")
    with h5py.File(tmp_path / "wrong.h5", "w") as file:
        file["b/other"] = PATTERNS
    with pytest.raises(InputError, match="neither CBED with potential nor cbed_stack"):
        open_stemdl(tmp_path / "wrong.h5").__enter__()
    with pytest.raises(InputError, match=r"without data\.mdb"):
        open_stemdl(tmp_path).__enter__()


def test_potential_and_patterns_are_standardised_as_the_authors_do_it():
    sample = fake_samples.sample()
    y, x = np.mgrid[:16, :24]
    wave = 5 + np.cos(2 * np.pi * (y / 16 + 2 * x / 24))  # a blur of a periodic grid only scales it
    centre = wave[4:12, 6:18]
    scan = [
        [y, x] for y in (3.5, 11.5) for x in (4.625, 8.625, 12.625)
    ]  # about the cell's middle, of 16 × 18 Å
    sample = replace(sample, provenance=sample.provenance | {"positions_angstrom": scan})
    potential = standardised_potential(replace(sample, projected_potential=wave))
    assert (potential.shape, potential.dtype) == ((1, 8, 12), np.float16)
    np.testing.assert_allclose(potential[0], (centre - centre.mean()) / centre.std(), atol=2e-3)
    assert not standardised_potential(replace(sample, projected_potential=np.ones((8, 10)))).any()
    resized = standardised_potential(replace(sample, projected_potential=wave), (6, 11))
    # pixels cover the same area
    ys = (np.arange(6) + 0.5) * 8 / 6 + 3.5
    xs = (np.arange(11) + 0.5) * 12 / 11 + 5.5
    expected = np.cos(2 * np.pi * (ys[:, None] / 16 + 2 * xs / 24))
    inner = np.s_[1:-1, 1:-1]  # a spline does not know what is beyond the edge
    assert (
        np.corrcoef(resized[0][inner].ravel().astype(float), expected[inner].ravel())[0, 1] > 0.999
    )
    pair = np.array([[[0, 0, 0], [0, 0, 6]], [[1, 2, 1], [2, 1, 2]]], np.float32)
    standardised = standardised_patterns(replace(sample, cbed=pair), "a")
    np.testing.assert_allclose(
        standardised[0], [[-(0.2**0.5)] * 3, [-(0.2**0.5), -(0.2**0.5), 5**0.5]], atol=1e-3
    )
    np.testing.assert_array_equal(standardised[1], [[-1, 1, -1], [1, -1, 1]])
    with pytest.raises(InputError, match="a: pattern 1 is the same"):
        standardised_patterns(replace(sample, cbed=np.stack([pair[0], np.ones((2, 3))])), "a")


def test_the_split_of_a_dataset_is_written_as_lmdb_and_comes_back(tmp_path, capsys):
    def simulate(config, material, entry):
        sample = fake_samples.simulate(config, material, entry)
        if entry.thickness_angstrom < 20:  # of a grid of other size
            sample = replace(sample, projected_potential=sample.projected_potential[:, :8])
        return replace(
            sample, provenance=sample.provenance | {"split": "dev" if "Cu" in entry.id else "train"}
        )

    settings = fake_samples.config(materials={"builtin": ["Cu-225-cF4", "Si-227-cF8"]})
    fake_samples.produce(tmp_path / "data", settings=settings, simulate=simulate)
    out = tmp_path / "batch_eval_0.db"
    assert main(["export", str(tmp_path / "data"), "--to", "stemdl", "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{out}: 4 samples\n"
    assert printed.err.startswith(
        "warning: 2 potentials resized to the smallest, 4×4: pixels differ in Å\n"
    )
    assert [path.name for path in out.iterdir()] == ["data.mdb"]
    with lmdb.open(str(out), readonly=True, lock=False) as env, env.begin() as transaction:
        assert (env.stat()["entries"] - 6) // 2 == 4  # as their reader counts
        assert bytes(transaction.get(b"input_dtype")) == b"float16"
        assert np.frombuffer(transaction.get(b"input_shape"), np.int64).tolist() == [6, 5, 7]
        assert np.frombuffer(transaction.get(b"output_shape"), np.int64).tolist() == [1, 4, 4]
        stored = np.frombuffer(transaction.get(b"cbed_3"), np.float16).reshape(6, 5, 7)
    np.testing.assert_allclose(stored.astype(float).mean((1, 2)), 0, atol=1e-3)
    np.testing.assert_allclose(stored.astype(float).std((1, 2)), 1, atol=1e-3)
    assert main(["export", str(out), "--to", "npz", "--out", str(tmp_path / "arrays")]) == 0
    with np.load(tmp_path / "arrays" / "sample_00003.npz", allow_pickle=False) as back:
        np.testing.assert_array_equal(back["patterns"], stored)
        assert back["potential"].shape == (1, 4, 4)
        assert str(back["name"]) == "3"
        assert json.loads(str(back["attributes"])) == {}
    for name, message in (
        ("mine.db", "name it batch_"),
        ("batch_test_0.db", "no sample of the split test"),
    ):
        assert (
            main(
                ["export", str(tmp_path / "data"), "--to", "stemdl", "--out", str(tmp_path / name)]
            )
            == 2
        )
        assert message in capsys.readouterr().err


def test_the_half_of_the_potential_lies_about_the_scan_wherever_that_is_and_a_smaller_scan_is_said(
    tmp_path, capsys
):
    rng = np.random.default_rng(2)
    there = fake_samples.sample()
    potential = rng.normal(size=(16, 18))  # pixels of 1 Å
    raster = np.stack(np.meshgrid([0.0, 2.0], [0.0, 3.0, 6.0], indexing="ij"), -1).reshape(-1, 2)

    def at(y, x):
        moved = there.provenance | {"positions_angstrom": (raster + np.array([y, x])).tolist()}
        return replace(there, projected_potential=potential, provenance=moved)

    blurred = gaussian_filter(potential, 1.2, mode="wrap")
    for y, x in (
        (6.5, 5.0),
        (14.5, -2.0),
    ):  # in the middle, and across two edges of the periodic cell
        rows = (round(y + 1 - 3.5) + np.arange(8)) % 16
        columns = (round(x + 3 - 4) + np.arange(9)) % 18
        half = blurred[np.ix_(rows, columns)]
        standardised = standardised_potential(at(y, x))[0]
        np.testing.assert_allclose(standardised, (half - half.mean()) / half.std(), atol=2e-3)
    assert covered_part(at(0, 0)) == pytest.approx((2 * 2 / 8) * (9 / 9))
    fake_samples.produce(
        tmp_path / "data",
        settings=fake_samples.config(materials={"builtin": ["Cu-225-cF4"]}),
        simulate=lambda config, material, entry: replace(
            at(0, 0),
            provenance=at(0, 0).provenance
            | {"split": "train", "config_hash": config.samples_hash()},
        ),
    )
    out = tmp_path / "batch_train_0.db"
    assert main(["export", str(tmp_path / "data"), "--to", "stemdl", "--out", str(out)]) == 0
    assert "4 samples whose scan covers less than the half of the cell" in capsys.readouterr().err


def test_three_zone_axes_of_a_specimen_are_a_stack_with_its_space_group(tmp_path, capsys):
    axes = [[0, 0, 1], [1, 1, 0], [1, 1, 1]]
    builtin = {"builtin": ["Cu-225-cF4", "Fe-229-cI2", "Si-227-cF8"]}
    settings = fake_samples.config(
        specimen={"zone_axes": axes, "thickness_angstrom": [20, 12.5]}, materials=builtin
    )
    fake_samples.produce(tmp_path / "data", settings=settings)
    out = tmp_path / "batch_train_0.h5"
    assert main(["export", str(tmp_path / "data"), "--to", "stemdl", "--out", str(out)]) == 0
    with Dataset(tmp_path / "data") as dataset:
        entries = manifest.present(tmp_path / "data", dataset.ids)
        records = {entry.id: dataset.read_sample(entry.id).cbed for entry in entries}
    specimens = {}
    for entry in entries:
        specimens.setdefault((entry.material, entry.thickness_angstrom), []).append(entry)
    with h5py.File(out) as file:
        assert len(file) == 6 * len(specimens)  # positions of each specimen
        for i, of_one in enumerate(specimens.values()):
            assert [list(entry.zone_axis) for entry in of_one] == axes
            for j in (0, 5):
                stored = file[f"sample_{i}_{j}"]
                expected = np.stack([records[entry.id][j] for entry in of_one])
                np.testing.assert_array_equal(stored["cbed_stack"], expected)
                group = {"Fm-3m": 225, "Im-3m": 229, "Fd-3m": 227}[of_one[0].space_group]
                assert int(stored.attrs["space_group"]) == group  # as their reader takes it
                assert (stored.attrs["energy"], stored.attrs["material"]) == (
                    200,
                    of_one[0].material,
                )
    with open_stemdl(out) as back:
        attributes = back.attributes("sample_0_0")
    assert attributes["space_group"] == 225
    side = attributes["abc_angstrom"][0]
    assert attributes["abc_angstrom"] == pytest.approx([side] * 3)
    assert attributes["angles_degree"] == pytest.approx([90] * 3)
    spacings = [side, side / np.sqrt(2), side / np.sqrt(3)]
    assert attributes["d_hkls_angstrom"] == pytest.approx(spacings)
    assert attributes["semi_angles_rad"] == pytest.approx([attributes["semi_angles"] / 1e3] * 3)
    # fake samples state another extent than that of the crystal's cell
    assert "y_dirs" not in attributes
    few = tmp_path / "few"
    fake_samples.produce(few, settings=fake_samples.config(materials=builtin))
    assert (
        main(["export", str(few), "--to", "stemdl", "--out", str(tmp_path / "batch_test_1.h5")])
        == 2
    )
    assert "no specimen along 3 zone axes in the split test" in capsys.readouterr().err


def test_attributes_of_the_authors_program_are_read_and_shown(tmp_path, capsys):
    path = tmp_path / "batch_train_0.h5"
    stated = {"energy_keV": 120.0, "semi_angles_rad": [0.01] * 3, "slab_t": 180.0}
    stated |= {"abc_angstrom": [3.9, 3.9, 3.9], "z_dirs": [0, 0, 1] * 3}
    with h5py.File(path, "w") as file:
        group = file.create_group("sample_0_0")
        group["cbed_stack"] = np.ones((3, 4, 5), np.float32)
        group.attrs.update({"space_group": "221", **stated})
    with open_stemdl(path) as file:
        attributes = file.read("sample_0_0").attributes
    assert {name: attributes[name] for name in stated} == stated
    assert main(["info", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "energy_keV = 120" in printed
    assert "slab_t = 180" in printed


def test_directions_across_the_beam_are_those_of_the_simulated_cell(tmp_path):
    axes = [(0, 0, 1), (1, 1, 0), (1, 1, 1)]

    def simulate(config, material, entry):
        fit = fit_cell(
            material.atoms,
            zone_axis=entry.zone_axis,
            lateral_angstrom=config.specimen.lateral_angstrom,
            thickness_angstrom=entry.thickness_angstrom,
            max_strain=config.specimen.max_strain,
            max_atoms=config.specimen.max_atoms,
        )
        x_angstrom, y_angstrom, _ = fit.lengths_angstrom
        return fake_samples.sample(
            extent_angstrom=[y_angstrom, x_angstrom],
            split="train",
            config_hash=config.samples_hash(),
        )

    settings = fake_samples.config(
        specimen={"zone_axes": axes, "thickness_angstrom": [20]},
        materials={"builtin": ["Cu-225-cF4"]},
    )
    fake_samples.produce(tmp_path / "data", settings=settings, simulate=simulate)
    out = tmp_path / "batch_train_0.h5"
    assert main(["export", str(tmp_path / "data"), "--to", "stemdl", "--out", str(out)]) == 0
    with h5py.File(out) as file:
        directions = file["sample_0_0"].attrs["y_dirs"]
        beams = file["sample_0_0"].attrs["z_dirs"]
    assert directions.shape == beams.shape == (1, 3, 3)
    np.testing.assert_array_equal(beams[0].T, axes)
    assert ((directions * beams).sum(axis=1) == 0).all()  # across the beam, of a cubic crystal
    assert np.abs(directions).sum() > 0


def test_cells_of_crystals_that_cannot_be_built_are_left_out(tmp_path, capsys):
    axes = [[0, 0, 1], [1, 1, 0], [1, 1, 1]]
    settings = fake_samples.config(
        specimen={"zone_axes": axes, "thickness_angstrom": [20]},
        materials={"builtin": ["Cu-225-cF4"]},
    )
    fake_samples.produce(tmp_path / "data", settings=settings)
    stored = (tmp_path / "data" / "config.yaml").read_text()
    (tmp_path / "data" / "config.yaml").write_text(stored.replace("Cu-225-cF4", "Si-227-cF8"))
    out = tmp_path / "batch_train_0.h5"
    assert main(["export", str(tmp_path / "data"), "--to", "stemdl", "--out", str(out)]) == 0
    assert "abc_angstrom, angles_degree" in capsys.readouterr().err
    with open_stemdl(out) as back:
        attributes = back.attributes("sample_0_0")
    assert "abc_angstrom" not in attributes
    assert attributes["slab_t"] > 0


def test_info_describes_both_layouts_of_hdf5(tmp_path, capsys):
    with h5py.File(tmp_path / "batch_train_0.h5", "w") as file:
        sample = file.create_group("Fe").create_group("sample_0")
        sample["CBED"], sample["potential"] = PATTERNS[0], POTENTIALS[0, 0]
        sample.attrs["slab_t"] = 180
    with h5py.File(tmp_path / "batch_train_1.h5", "w") as file:
        file["sample_0_0/cbed_stack"] = PATTERNS[1, :3]
        file["sample_0_0"].attrs["energy_keV"] = 125
    assert main(["info", str(tmp_path / "batch_train_0.h5")]) == 0
    printed = capsys.readouterr().out
    assert "potential [7, 9] float32" in printed
    assert "slab_t = 180" in printed
    assert main(["info", str(tmp_path / "batch_train_1.h5"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["attributes"] == {"energy_keV": 125}
