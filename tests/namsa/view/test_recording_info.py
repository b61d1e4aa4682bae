"""`namsa info` and `show` of files of microscopes."""

import json
import re
import zipfile

import pytest
from measured_files import patterns, write_blo, write_mib

from namsa.cli.parser import main


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
    said = capsys.readouterr().out
    assert "1 × 12 of 6 × 8 pixels, uint16" in said
    assert "the scan's shape is not known: 12 frames, of which 3x4 or 4x3" in said
    assert "the scan's shape (--scan-shape)" in said
    assert main(["show", str(tmp_path / "a.mib")]) == 2
    assert "holds 12 frames and does not state the scan's shape: give --scan-shape SYxSX" in capsys.readouterr().err
    assert main(["info", str(tmp_path / "a.mib"), "--scan-shape", "3x4"]) == 0
    assert "3 × 4 of 6 × 8 pixels" in capsys.readouterr().out
    assert main(["info", str(tmp_path / "a.mib"), "--scan-shape", "2x4", "--flyback", "2"]) == 0
    assert main(["info", str(tmp_path / "a.mib"), "--scan-shape", "3x4", "--ids"]) == 2
    raw = ["--dtype", ">u2", "--detector-shape", "6x8", "--offset-bytes", "384", "--scan-shape", "7x8"]
    assert main(["info", str(tmp_path / "a.mib"), *raw]) == 0  # a header is as long as four frames
    assert "format    raw" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["a.mib", "a.zarr"])
def test_a_page_shows_any_file(tmp_path, capsys, name):
    if name == "a.zarr":
        import zarr

        zarr.open_group(str(tmp_path / name), mode="w").create_array("scan", data=patterns())
    else:
        write_mib(tmp_path / name, patterns())
    words = ["--scan-shape", "3x4", "--energy-ev", "2e5", "--scan-step-angstrom", "1", "--pixel-mrad", "1"]
    assert main(["show", str(tmp_path / name), "--out", str(tmp_path / "p.html"), *words]) == 0
    assert "<html" in (tmp_path / "p.html").read_text()[:500]


def test_an_archive_of_other_files_is_no_store(tmp_path, capsys):
    write_mib(tmp_path / "a.mib", patterns())
    with zipfile.ZipFile(tmp_path / "scan.zip", "w") as archive:
        archive.write(tmp_path / "a.mib", "a.mib")
    assert main(["info", str(tmp_path / "scan.zip")]) == 2
    assert "scan.zip is a zip archive without a Zarr store: unpack it" in capsys.readouterr().err
