"""One command for many scans: a result for each, a table, failures and what is skipped."""

import json

import numpy as np
import pytest

from namsa.cli.many_scans import RECORD, files_of
from namsa.cli.parser import main
from namsa.io.calibration_file import read_calibration


@pytest.fixture
def scans(tmp_path):
    """Returns three files of a bright disk, of which the second is damaged."""
    y, x = np.mgrid[:20, :20]
    disk = 300.0 * (np.hypot(y - 9.4, x - 10.1) < 6)
    paths = []
    for seed in range(3):
        path = tmp_path / f"scan_{seed}.npy"
        patterns = np.random.default_rng(seed).poisson(disk, (4, 5, 20, 20))
        np.save(path, patterns.astype(np.uint16))
        paths.append(path)
    paths[1].write_bytes(paths[1].read_bytes()[:5000])
    return paths


def run(scans, out, *options):
    return main(["inspect", *map(str, scans), "--out", str(out), *options])


@pytest.mark.slow
def test_a_failing_scan_does_not_stop_the_others_and_the_rest_is_skipped_then(
    tmp_path, scans, capsys
):
    out = tmp_path / "calibrations"
    assert run(scans, out, "--semiangle-mrad", "20") == 1
    printed = capsys.readouterr().out
    assert "[3/3]" in printed
    assert "1 scan failed" in printed
    assert sorted(path.name for path in out.iterdir()) == [
        "scan_0.json",
        "scan_2.json",
        RECORD,
    ]
    assert read_calibration(out / "scan_2.json").value("semiangle_mrad") == 20
    # again: the two that are done are skipped and named
    assert run(scans[::2], out, "--semiangle-mrad", "20") == 0
    assert "2 scans skipped" in capsys.readouterr().out
    # other options, other data and another result are no reason to skip
    assert run(scans[:1], out, "--semiangle-mrad", "21", "--json") == 0
    assert '"state": "done"' in capsys.readouterr().out
    np.save(scans[2], np.load(scans[2])[:, ::-1])
    (out / "scan_0.json").write_text("{}")
    assert run(scans[::2], out, "--semiangle-mrad", "21", "--json") == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [state["state"] for state in last] == ["done", "done"]


def test_what_many_scans_cannot_be_written_to_is_said(tmp_path, scans, capsys):
    file = tmp_path / "out.json"
    file.write_text("kept")
    assert run(scans, file) == 2
    assert "is a file, and 3 scans take a folder" in capsys.readouterr().err
    assert file.read_text() == "kept"
    assert main(["inspect", *map(str, scans)]) == 2
    assert "name a folder for their results with --out" in capsys.readouterr().err
    (tmp_path / "other").mkdir()
    same = tmp_path / "other" / scans[0].name
    assert run([scans[0], same], tmp_path / "out") == 2
    assert "would both be written" in capsys.readouterr().err
    assert run(scans, tmp_path / "out", "--png", "a.png") == 2
    assert "--png is for one scan" in capsys.readouterr().err


def test_several_scans_are_exported_to_a_folder_each(tmp_path, scans, capsys):
    numbers = ["--energy-ev", "2e5", "--semiangle-mrad", "20", "--pixel-mrad", "3"]
    numbers += ["--scan-step-angstrom", "0.4", "--rotation-deg", "0"]
    command = ["export", str(scans[0]), str(scans[2]), "--to", "ptyrad"]
    command += ["--out", str(tmp_path / "ptyrad"), *numbers]
    assert main(command) == 0
    for name in ("scan_0", "scan_2"):
        assert (tmp_path / "ptyrad" / name / "patterns.h5").is_file()
    capsys.readouterr()
    assert main(command) == 0
    assert "2 scans skipped" in capsys.readouterr().out
    assert main(["export", str(scans[0]), str(scans[2]), "--out", str(tmp_path / "a.h5")]) == 2


def test_files_beside_a_scan_belong_to_it(tmp_path):
    for name in ("a.mib", "a.hdr", "ab.hdr", "a_info.txt", "b_master.h5", "b_data_000001.h5"):
        (tmp_path / name).touch()
    names = [path.name for path in files_of(tmp_path / "a.mib", tmp_path)]
    assert names == ["a.mib", "a.hdr", "a_info.txt"]
    names = [path.name for path in files_of(tmp_path / "b_master.h5", tmp_path)]
    assert names == ["b_master.h5", "b_data_000001.h5"]
    assert len(files_of(tmp_path, tmp_path)) == 6
    assert [path.name for path in files_of(tmp_path / "a*.hdr", tmp_path)] == ["a.hdr", "ab.hdr"]
