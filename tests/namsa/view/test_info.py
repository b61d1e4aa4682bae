"""`namsa info`: what a file or a dataset holds, with units and axes that are those of the arrays."""

import json
from dataclasses import replace

import ase.build
import fake_samples
import numpy as np
import pytest

from namsa import Detector, InputError, WorkError, simulate
from namsa.cli.parser import main
from namsa.io import hdf5
from namsa.view import info_text
from namsa.view.info import describe_dataset, describe_file


@pytest.fixture(scope="module")
def sample():
    y, x = np.meshgrid([1.0, 1.5], [0.5, 1.25, 2.0], indexing="ij")
    return simulate(
        ase.build.bulk("MgO", "rocksalt", a=4.212, cubic=True) * (3, 4, 2),
        energy_ev=200e3,
        semiangle_mrad=20.0,
        grid_shape=(80, 64),
        positions_angstrom=np.stack([y, x], -1).reshape(-1, 2),
        scan_shape=(2, 3),
        aberrations={"C10": -80.0},
        detector=Detector(shape=(10, 12), pixel_mrad=3.0, electrons_per_pattern=5000),
    )


def test_a_file_is_described_by_its_arrays(tmp_path, sample):
    path = tmp_path / "file.h5"
    hdf5.write_samples(path, [("a", sample), ("b", sample)])
    found = describe_file(path)
    assert (found.samples, found.ids) == (2, ["a", "b"])
    cbed = found.as_json()["contents"][0]["arrays"]["cbed"]
    assert (cbed["shape"], cbed["dtype"], cbed["units"]) == ([2, 3, 10, 12], "float32", "fraction of the beam")
    assert cbed["axes"] == [
        {"name": "y", "units": "Å", "origin": 1.0, "sampling": 0.5},
        {"name": "x", "units": "Å", "origin": 0.5, "sampling": 0.75},
        {"name": "ky", "units": "mrad", "origin": -13.5, "sampling": 3.0},
        {"name": "kx", "units": "mrad", "origin": -16.5, "sampling": 3.0},
    ]


def test_words_have_units_and_only_what_was_set(tmp_path, sample):
    path = tmp_path / "file.h5"
    hdf5.write_samples(path, [("a", sample)])
    text = info_text.describe(describe_file(path))
    for words in (
        "16.85 × 12.64 Å (y, x), 8.42 Å thick, 192 atoms",
        "200 keV, semiangle 20 mrad, C10 -80",
        "pixels of 3 mrad, 5000 electrons per pattern",
        "cbed: 2 × 3 × 10 × 12 float32, fraction of the beam",
        "ky  -13.5 to 13.5 mrad, step 3",
        "density: 80 × 64 float32, e/Å²",
    ):
        assert words in text
    for unset in ("tilt", "binning", "None", "source"):
        assert unset not in text
    assert max(map(len, text.splitlines())) <= 120


def test_a_dataset_is_described_by_its_manifest_and_first_sample(tmp_path, sample, fake_materials, capsys):
    def simulated(config, material, entry):
        own = {"id": entry.id, "formula": material.formula, "zone_axis": list(entry.zone_axis), "split": "train"}
        described = sample.provenance | own | {"config_hash": config.samples_hash()}
        return replace(sample, provenance=described)

    fake_samples.produce(tmp_path, limit=5, simulate=simulated)
    assert main(["info", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["entries"], found["samples"], found["shards"]) == (12, 5, 1)
    assert found["splits"]["train"] == 5
    assert found["first"]["arrays"]["cbed"]["dtype"] == "float16"
    assert main(["info", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "samples          5 of 12 in the manifest" in text
    assert "by split         5/0/0 (train/dev/test)" in text
    assert main(["info", str(tmp_path), "--ids"]) == 0
    ids = capsys.readouterr().out.splitlines()
    assert (len(ids), ids[0]) == (5, found["first"]["id"])
    assert main(["info", str(tmp_path), "--ids", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == ids
    assert "cbed: 2 × 3 × 10 × 12 float16" in text


def test_an_empty_dataset_is_one_without_a_first_sample(tmp_path, fake_materials):
    fake_samples.produce(tmp_path, limit=0)
    described = describe_dataset(tmp_path)
    assert (described.samples, described.first) == (0, None)
    assert "0 of 12" in info_text.describe(described)


def test_a_place_that_is_no_dataset_is_said_to_be_none(tmp_path):
    with pytest.raises(InputError, match="namsa dataset"):
        describe_dataset(tmp_path)
    with pytest.raises(InputError, match="none.h5"):
        describe_file(tmp_path / "none.h5")


def test_what_could_not_be_made_is_counted_and_listed(tmp_path, fake_materials, capsys):
    def nothing_works(config, material, entry):
        raise WorkError(f"no {material.formula} along {entry.zone_axis}")

    fake_samples.produce(tmp_path, simulate=nothing_works)
    assert main(["info", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["failed"] == len(found["failures"]) == 12
    assert found["failures"]["Fe-bcc-001-20A"] == "no Fe along (0, 0, 1)"
    lines = info_text.describe(describe_dataset(tmp_path)).splitlines()
    listed = [line for line in lines if line.split()[0] == "failed"]
    assert len(listed) == 5
    assert all(" along (" in line for line in listed)
