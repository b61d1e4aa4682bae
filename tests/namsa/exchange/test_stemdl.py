"""Files in the layout of the authors' programs: written here with lmdb and h5py, and by namsa from a dataset."""

import json
from dataclasses import replace

import fake_samples
import h5py
import lmdb
import numpy as np
import pytest

from namsa import InputError
from namsa.cli.parser import main
from namsa.exchange.stemdl import open_stemdl
from namsa.exchange.stemdl_export import standardised_patterns, standardised_potential

PATTERNS = np.arange(3 * 4 * 6 * 5).reshape(3, 4, 6, 5).astype(np.float16)  # samples of 4 patterns
POTENTIALS = np.arange(3 * 7 * 9).reshape(3, 1, 7, 9).astype(np.float32)


def numbers(*values: int) -> bytes:
    return np.array(values, np.int64).tobytes()


def write_db(folder, changes=(), output=b"2d_potential_", count=3):
    """Writes a file with lmdb alone; a change to None leaves a record out."""
    records = {
        b"input_dtype": b"float16",
        b"input_shape": numbers(4, 6, 5),
        b"output_shape": numbers(1, 7, 9),
        b"output_dtype": b"float32",
        b"output_name": output,
        b"input_name": b"cbed_",
        b"header_entries": bytes(6),
    }
    for i in range(count):
        source = i % 3
        records |= {b"cbed_%d" % i: PATTERNS[source].tobytes(), output + b"%d" % i: POTENTIALS[source].tobytes()}
    records |= dict(changes)
    with lmdb.open(str(folder), map_size=2**24) as env, env.begin(write=True) as transaction:
        for key, value in records.items():
            if value is not None:
                transaction.put(key, value)
    return folder


@pytest.mark.parametrize("output", [b"2d_potential_", b"potential_"])
def test_samples_are_counted_by_their_keys_and_read_as_they_are_stored(tmp_path, output):
    path = write_db(tmp_path / "batch_train_0.db", {output + b"1": None, b"other": b"x"}, output, count=12)
    with open_stemdl(path) as file:
        assert file.names == tuple(str(i) for i in range(12) if i != 1)  # 10 is behind 9
        assert file.notes == ("1 samples have patterns or a potential alone and are left out",)
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
        "  notes     1 samples have patterns or a potential alone and are left out",
    ]
    assert main(["info", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == 2
    assert main(["info", path, "--ids"]) == 0
    assert capsys.readouterr().out == "0\n2\n"
    write_db(tmp_path / "bad.db", {b"input_dtype": b"object"})
    assert main(["info", str(tmp_path / "bad.db")]) == 2


@pytest.mark.parametrize(
    ("changes", "said"),
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
def test_a_header_that_does_not_fit_is_one_line(tmp_path, monkeypatch, capsys, changes, said):
    monkeypatch.chdir(tmp_path)
    write_db(tmp_path / "batch.db", changes)
    assert main(["export", "batch.db", "--to", "npz", "--out", "arrays"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert said in lines[0]
    assert [path.name for path in tmp_path.iterdir()] == ["batch.db"]


def test_a_damaged_file_is_bad_input_wherever_the_damage_is(tmp_path, capsys):
    path = write_db(tmp_path / "batch.db", count=300)
    whole = (path / "data.mdb").read_bytes()
    rng = np.random.default_rng(3)
    damaged = [b"", b"nothing of LMDB", whole[:5000], whole[: len(whole) // 2], rng.bytes(40000)]
    for start in range(0, 40960, 1024):  # the metas and the first pages of the tree
        damaged.append(whole[:start] + rng.bytes(64) + whole[start + 64 :])
    refused = []
    for data in damaged:
        (path / "data.mdb").write_bytes(data)
        try:
            with open_stemdl(path) as file:
                assert all(file.read(name).patterns.shape == (4, 6, 5) for name in file.names)
        except InputError as error:
            refused.append(str(error))
    assert len(refused) >= 10
    assert "repair" not in "".join(refused)  # which is for datasets of namsa
    (path / "data.mdb").write_bytes(whole[:5000])
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
    with open_stemdl(tmp_path / "wrong.h5") as opened, pytest.raises(InputError, match=r"shape \(6, 5\)"):
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
    potential = standardised_potential(replace(sample, projected_potential=wave))
    assert (potential.shape, potential.dtype) == ((1, 8, 12), np.float16)
    np.testing.assert_allclose(potential[0], (centre - centre.mean()) / centre.std(), atol=2e-3)
    assert not standardised_potential(replace(sample, projected_potential=np.ones((8, 10)))).any()
    resized = standardised_potential(replace(sample, projected_potential=wave), (6, 11))
    ys, xs = (np.arange(6) + 0.5) * 8 / 6 + 3.5, (np.arange(11) + 0.5) * 12 / 11 + 5.5  # pixels cover the same area
    expected = np.cos(2 * np.pi * (ys[:, None] / 16 + 2 * xs / 24))
    inner = np.s_[1:-1, 1:-1]  # a spline does not know what is beyond the edge
    assert np.corrcoef(resized[0][inner].ravel().astype(float), expected[inner].ravel())[0, 1] > 0.999
    pair = np.array([[[0, 0, 0], [0, 0, 6]], [[1, 2, 1], [2, 1, 2]]], np.float32)
    found = standardised_patterns(replace(sample, cbed=pair), "a")
    np.testing.assert_allclose(found[0], [[-(0.2**0.5)] * 3, [-(0.2**0.5), -(0.2**0.5), 5**0.5]], atol=1e-3)
    np.testing.assert_array_equal(found[1], [[-1, 1, -1], [1, -1, 1]])
    with pytest.raises(InputError, match="a: pattern 1 is the same"):
        standardised_patterns(replace(sample, cbed=np.stack([pair[0], np.ones((2, 3))])), "a")


def test_the_split_of_a_dataset_is_written_as_lmdb_and_comes_back(tmp_path, capsys):
    def simulate(config, material, entry):
        sample = fake_samples.simulate(config, material, entry)
        if entry.thickness_angstrom < 20:  # of a grid of other size
            sample = replace(sample, projected_potential=sample.projected_potential[:, :8])
        return replace(sample, provenance=sample.provenance | {"split": "dev" if "Cu" in entry.id else "train"})

    settings = fake_samples.config(materials={"builtin": ["Cu-225-cF4", "Si-227-cF8"]})
    fake_samples.produce(tmp_path / "data", settings=settings, simulate=simulate)
    out = tmp_path / "batch_eval_0.db"
    assert main(["export", str(tmp_path / "data"), "--to", "stemdl", "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert said.out == f"{out}: 4 samples\n"
    assert said.err.startswith("warning: 2 potentials resized to the smallest, 4×4: pixels differ in Å\n")
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
    for name, said in (("mine.db", "name it batch_"), ("batch_test_0.db", "no sample of the split test")):
        assert main(["export", str(tmp_path / "data"), "--to", "stemdl", "--out", str(tmp_path / name)]) == 2
        assert said in capsys.readouterr().err
