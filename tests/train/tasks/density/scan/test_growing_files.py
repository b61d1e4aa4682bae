"""Reconstruction of files that grow while a scan is recorded."""

import threading
import time
import tracemalloc

import h5py
import numpy as np
import pytest
from live_scans import KNOWN, RAW, SCAN, assert_equal, counts
from small_network import BEAM, WINDOW, experiment, write_run

from namsa import InputError, WorkError
from namsa.view.page_overlay import read_images
from train.__main__ import main
from train.apply.models import load_model
from train.tasks.density.scan import application as reconstruct
from train.tasks.density.scan import live_session, row_sources
from train.tasks.density.scan.application import ReconstructionOptions
from train.tasks.density.scan.ensemble import Prediction
from train.tasks.density.scan.live import reconstruct_live
from train.tasks.density.scan.row_sources import ArrayStream, GrowingFile


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return load_model(write_run(tmp_path_factory.mktemp("live"), experiment()))


@pytest.fixture(scope="module")
def whole_scan(model):
    return reconstruct.reconstruct(counts(), model, BEAM, **KNOWN)


def test_a_growing_raw_file_gives_what_the_whole_scan_gives(model, whole_scan, tmp_path):
    path = tmp_path / "scan.raw"
    data = counts().tobytes()

    def write():
        with path.open("ab", buffering=0) as file:
            for start in range(0, len(data), 5000):  # parts of frames
                file.write(data[start : start + 5000])
                time.sleep(0.02)

    writer = threading.Thread(target=write)
    writer.start()
    updates = list(
        reconstruct_live(path, model, BEAM, scan_shape=SCAN, wait_s=20.0, layout=RAW, **KNOWN)
    )
    writer.join()
    assert_equal(updates[-1].result, whole_scan)


def test_a_growing_hdf5_file_is_read_while_it_is_written(tmp_path):
    rows = counts()[:6]
    with h5py.File(tmp_path / "scan.h5", "w", libver="latest") as file:
        data = file.create_dataset(
            "data", (2, *rows.shape[1:]), "u2", maxshape=rows.shape, chunks=(1, *rows.shape[1:])
        )
        data[:] = rows[:2]
        file.swmr_mode = True

        def grow(_):
            data.resize(min(6, len(data) + 3), axis=0)
            data[2:] = rows[2 : len(data)]
            data.flush()

        source = GrowingFile(tmp_path / "scan.h5", (6, 36), BEAM, sleep=grow)
        assert source.describe().shape == (6, 36, 4, 4)
        np.testing.assert_array_equal(np.concatenate(list(source.rows(1))), rows[1:])


def test_a_file_that_stops_growing_is_an_error_that_says_what_to_do(tmp_path):
    counts()[:3].tofile(tmp_path / "scan.raw")
    source = GrowingFile(tmp_path / "scan.raw", SCAN, BEAM, RAW, wait_s=1.0, sleep=lambda _: None)
    blocks = source.rows(0)
    assert next(blocks).shape == (3, 36, 4, 4)
    with pytest.raises(
        WorkError,
        match="holds 3 of 52 rows, and none was added for 1 s: run the same command again",
    ):
        next(blocks)
    missing = GrowingFile(tmp_path / "none.raw", SCAN, BEAM, RAW, wait_s=1.0, sleep=lambda _: None)
    with pytest.raises(InputError, match="there is no file"):
        missing.describe()


def test_rows_before_the_one_that_is_asked_for_are_left_out():
    stream = ArrayStream((row for row in counts()[10:]), SCAN, BEAM, first_row=10)
    assert stream.describe().shape == (*SCAN, 4, 4)
    np.testing.assert_array_equal(np.concatenate(list(stream.rows(13))), counts()[13:])


def test_command_writes_the_density_after_each_strip_and_continues(
    model, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(row_sources, "POLL_S", 0.01)
    scan = counts()
    path = tmp_path / "scan.raw"
    out = tmp_path / "density.h5"
    scan[:40].tofile(path)
    command = [
        "live",
        str(path),
        "--checkpoint",
        str(model.folder),
        "--out",
        str(out),
        "--scan-shape",
        "52x36",
    ]
    command += [
        "--dtype",
        "u2",
        "--detector-shape",
        "4x4",
        "--wait",
        "0.05",
        "--beam-intensity",
        "900",
    ]
    command += [
        "--energy-ev",
        "200e3",
        "--semiangle-mrad",
        "20",
        "--scan-step-angstrom",
        "0.4",
        "--pixel-mrad",
        "8",
    ]
    command += ["--centre-pixels", "1.5", "1.5"]
    assert main(command) == 1
    assert "holds 40 of 52 rows" in capsys.readouterr().err
    density = read_images(out)[0].image
    assert np.isfinite(density).all(axis=1).sum() == 33
    scan.tofile(path)
    assert main(command) == 0
    assert "continued after 2 of 4 strips" in capsys.readouterr().out
    expected = reconstruct.reconstruct(scan, model, BEAM, beam_intensity=900.0)
    np.testing.assert_array_equal(read_images(out)[0].image, expected.density)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "density.h5",
        "density.png",
        "scan.raw",
    ]


def test_memory_does_not_grow_with_the_rows(model, monkeypatch):
    def one(members):
        return lambda windows: Prediction(np.zeros((members, len(windows), *WINDOW), np.float32))

    monkeypatch.setattr(
        "train.tasks.density.scan.ensemble.ensemble_predictor",
        lambda network, model, views, with_maps: one(views.members),
    )

    def peak(rows):
        stream = (np.ones((24, 4, 4), np.uint16) for _ in range(rows))
        tracemalloc.start()
        for update in reconstruct_live(
            stream, model, BEAM, scan_shape=(rows, 24), options=ReconstructionOptions()
        ):
            del update
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    peak(96)  # imports
    image = 24 * 8 * 12  # bytes of a row of images: sums of two blends, and what is made of them
    assert peak(288) - peak(96) < 2 * (288 - 96) * image
    assert live_session.FIRST_ROWS == 8
