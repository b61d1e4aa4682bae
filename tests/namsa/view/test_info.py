"""`namsa info`: what a file or a dataset holds, with units and axes; and `show` of files of
microscopes.
"""

import json
import re
import zipfile
from dataclasses import replace

import ase.build
import fake_samples
import numpy as np
import pytest
import zarr
from measured_files import patterns, write_blo, write_mib

from namsa import Detector, WorkError, simulate
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
    described = describe_file(path)
    assert (described.samples, described.ids) == (2, ["a", "b"])
    cbed = described.as_json()["contents"][0]["arrays"]["cbed"]
    assert (cbed["shape"], cbed["dtype"], cbed["units"]) == (
        [2, 3, 10, 12],
        "float32",
        "fraction of the beam",
    )
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


def test_a_dataset_is_described_by_its_manifest_and_first_sample(
    tmp_path, sample, fake_materials, capsys
):
    def simulated(config, material, entry):
        facts = {
            "id": entry.id,
            "formula": material.formula,
            "zone_axis": list(entry.zone_axis),
            "split": "train",
        }
        described = sample.provenance | facts | {"config_hash": config.samples_hash()}
        return replace(sample, provenance=described)

    fake_samples.produce(tmp_path, limit=5, simulate=simulated)
    assert main(["info", str(tmp_path), "--json"]) == 0
    info = json.loads(capsys.readouterr().out)
    assert (info["entries"], info["samples"], info["shards"]) == (12, 5, 1)
    assert info["splits"]["train"] == 5
    assert info["first"]["arrays"]["cbed"]["dtype"] == "float16"
    assert main(["info", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "samples          5 of 12 in the manifest" in text
    assert "by split         5/0/0 (train/dev/test)" in text
    assert main(["info", str(tmp_path), "--ids"]) == 0
    ids = capsys.readouterr().out.splitlines()
    assert (len(ids), ids[0]) == (5, info["first"]["id"])
    assert main(["info", str(tmp_path), "--ids", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == ids
    assert "cbed: 2 × 3 × 10 × 12 float16" in text


def test_an_empty_dataset_is_one_without_a_first_sample(tmp_path, fake_materials):
    fake_samples.produce(tmp_path, limit=0)
    described = describe_dataset(tmp_path)
    assert (described.samples, described.first) == (0, None)
    assert "0 of 12" in info_text.describe(described)


def test_what_could_not_be_made_is_counted_and_listed(tmp_path, fake_materials, capsys):
    def nothing_works(config, material, entry):
        raise WorkError(f"no {material.formula} along {entry.zone_axis}")

    fake_samples.produce(tmp_path, simulate=nothing_works)
    assert main(["info", str(tmp_path), "--json"]) == 0
    info = json.loads(capsys.readouterr().out)
    assert info["failed"] == len(info["failures"]) == 12
    assert info["failures"]["Fe-bcc-001-20A"] == "no Fe along (0, 0, 1)"
    lines = info_text.describe(describe_dataset(tmp_path)).splitlines()
    listed = []
    for line in lines:
        if line.split()[0] == "failed":
            listed.append(line)
    assert len(listed) == 5
    for line in listed:
        assert " along (" in line


# ---- Files of microscopes
# ------------------------------------------------------------------------------------------------


def test_info_says_what_a_file_holds_and_what_it_does_not(tmp_path, capsys):
    write_blo(tmp_path / "a.blo", patterns("u1", detector=(6, 6)))
    assert main(["info", str(tmp_path / "a.blo")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == str(tmp_path / "a.blo")
    rows = dict(re.split("  +", line.strip(), maxsplit=1) for line in lines[1:])
    assert rows["format"].startswith("NanoMEGAS blockfile")
    assert rows["patterns"] == "3 × 4 of 6 × 6 pixels, uint8"
    assert (rows["energy"], rows["scan step"]) == ("200 keV", "25 × 15 Å (y, x)")
    assert rows["missing"] == "the probe's semiangle (--semiangle-mrad)"
    assert main(["info", str(tmp_path / "a.blo"), "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert described["shape"] == [3, 4, 6, 6]
    assert described["missing"] == {"semiangle_mrad": "--semiangle-mrad"}
    assert described["metadata"]["scan_rotation_deg"] == 25


def test_the_layout_is_given_by_options(tmp_path, capsys):
    write_mib(tmp_path / "a.mib", patterns())
    assert main(["info", str(tmp_path / "a.mib")]) == 0  # frames are described without it
    printed = capsys.readouterr().out
    assert "1 × 12 of 6 × 8 pixels, uint16" in printed
    assert "the scan's shape is not known: 12 frames, of which 3x4 or 4x3" in printed
    assert "the scan's shape (--scan-shape)" in printed
    assert main(["show", str(tmp_path / "a.mib")]) == 2
    assert (
        "holds 12 frames and does not state the scan's shape: give --scan-shape SYxSX"
        in capsys.readouterr().err
    )
    assert main(["info", str(tmp_path / "a.mib"), "--scan-shape", "3x4"]) == 0
    assert "3 × 4 of 6 × 8 pixels" in capsys.readouterr().out
    zarr.open_group(str(tmp_path / "a.zarr"), mode="w").create_array("scan", data=patterns())
    for name in ("a.mib", "a.zarr"):  # a file and a folder
        assert (
            main(
                [
                    "show",
                    str(tmp_path / name),
                    "--scan-shape",
                    "3x4",
                    "--out",
                    str(tmp_path / "p.html"),
                ]
            )
            == 0
        )
        assert "<html" in (tmp_path / "p.html").read_text()[:500]
    assert main(["info", str(tmp_path / "a.mib"), "--scan-shape", "2x4", "--flyback", "2"]) == 0
    assert main(["info", str(tmp_path / "a.mib"), "--scan-shape", "3x4", "--ids"]) == 2
    raw = [
        "--dtype",
        ">u2",
        "--detector-shape",
        "6x8",
        "--offset-bytes",
        "384",
        "--scan-shape",
        "7x8",
    ]
    assert main(["info", str(tmp_path / "a.mib"), *raw]) == 0  # a header is as long as four frames
    assert "format    raw" in capsys.readouterr().out


def test_an_archive_of_other_files_is_no_store(tmp_path, capsys):
    write_mib(tmp_path / "a.mib", patterns())
    with zipfile.ZipFile(tmp_path / "scan.zip", "w") as archive:
        archive.write(tmp_path / "a.mib", "a.mib")
    assert main(["info", str(tmp_path / "scan.zip")]) == 2
    assert "scan.zip is a zip archive without a Zarr store: unpack it" in capsys.readouterr().err
