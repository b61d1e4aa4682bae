"""Reconstruction while a scan is recorded: the same result as of the whole scan, from streams and
growing files.
"""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from live_scans import KNOWN, RAW, SCAN, assert_equal, counts
from small_network import BEAM, experiment, write_run

from namsa import InputError, WorkError
from namsa.io.calibration import CalibrationOverrides
from train.apply.models import load_model
from train.optimization import checkpoint
from train.tasks.density.scan import application as reconstruct
from train.tasks.density.scan.application import ReconstructionOptions
from train.tasks.density.scan.live import next_row, reconstruct_live


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return load_model(write_run(tmp_path_factory.mktemp("live"), experiment()))


@pytest.fixture(scope="module")
def whole_scan(model):
    return reconstruct.reconstruct(counts(), model, BEAM, **KNOWN)


# ---- Streams
# --------------------------------------------------------------------------------------------------


def test_a_stream_gives_what_the_whole_scan_gives_whatever_its_arrays(model, whole_scan):
    frames = counts().reshape(-1, 4, 4)
    arrays = [frames[:1], *(frames[start : start + 7] for start in range(1, 500, 7)), frames[505:]]
    assert sum(map(len, arrays)) == len(frames)
    updates = list(reconstruct_live(iter(arrays), model, BEAM, scan_shape=SCAN, **KNOWN))
    assert_equal(updates[-1].result, whole_scan)
    assert [update.is_last for update in updates] == [False, False, False, True]
    assert [update.rows_read for update in updates] == [
        24,
        36,
        48,
        52,
    ]  # windows of 24 that begin at 0, 12, 24, 28
    assert [update.rows_done for update in updates] == [
        15,
        27,
        31,
        52,
    ]  # where the next one begins, and 3 of margin
    for update in updates[:-1]:
        done = update.rows_done
        np.testing.assert_array_equal(update.result.density[:done], whole_scan.density[:done])
        np.testing.assert_array_equal(
            update.result.uncertainty[:done], whole_scan.uncertainty[:done]
        )
        known = np.isfinite(update.result.density).all(axis=1)
        assert known.sum() == update.rows_read - 3
        assert np.isnan(update.result.bright_field[update.rows_read :]).all()


def test_the_weights_are_read_once_whatever_the_number_of_strips(model, monkeypatch):
    read = checkpoint.read
    opened = []
    monkeypatch.setattr(checkpoint, "read", lambda path: opened.append(path) or read(path))
    updates = list(
        reconstruct_live(iter(counts()), model, BEAM, scan_shape=SCAN, beam_intensity=900.0)
    )
    assert len(updates) == 4
    assert opened == [model.weights]
    digest = read(model.weights)[0]["digest"]
    for update in updates:
        assert update.result.provenance["weights_digest"] == digest


def test_an_unknown_axis_and_beam_come_from_the_first_rows_and_it_is_said(model):
    scan = counts()
    scan[:8, :, :, 2:] += 30
    unknown = replace(BEAM, centre_pixels=None)
    *_, last = reconstruct_live(iter(scan), model, unknown, scan_shape=SCAN)
    mean_pattern = scan[:8].mean(axis=(0, 1))
    centre = [
        float(mean_pattern.sum(axis=1 - axis) @ np.arange(4) / mean_pattern.sum())
        for axis in (0, 1)
    ]
    known = replace(BEAM, centre_pixels=tuple(centre))
    expected = reconstruct.reconstruct(scan, model, known, beam_intensity=float(mean_pattern.sum()))
    np.testing.assert_allclose(last.result.density, expected.density, rtol=1e-5)
    assert "the mean pattern of the above is that of the first 8 rows" in last.result.notes


def test_corrections_that_depend_on_the_place_and_lost_patterns_are_those_of_the_whole_scan(
    model, whole_scan
):
    scan = counts()
    scan[30, 11] = 0
    corrections = replace(BEAM, bad_pixels=((1, 2),), centre_slope=((0.01, 0.0), (0.0, -0.005)))
    expected = reconstruct.reconstruct(scan, model, corrections, beam_intensity=900.0)
    *_, last = reconstruct_live(
        iter(scan), model, corrections, scan_shape=SCAN, beam_intensity=900.0
    )
    np.testing.assert_array_equal(last.result.density, expected.density)
    assert np.argwhere(np.isnan(last.result.density)).tolist() == [[30, 11]]
    assert last.result.provenance["lost_patterns"] == [[30, 11]]
    assert (
        np.nanmedian(np.abs(expected.density - whole_scan.density)) > 0
    )  # the corrections have an effect


def test_a_stream_that_ends_early_or_is_no_stream_of_patterns_is_an_error(model):
    with pytest.raises(
        WorkError, match="the stream ended within row 30 of 52: continue with row 30"
    ):
        list(reconstruct_live(iter(counts()[:30]), model, BEAM, scan_shape=SCAN))
    with pytest.raises(WorkError, match="ended before its first pattern"):
        list(reconstruct_live(iter([]), model, BEAM, scan_shape=SCAN))
    with pytest.raises(
        InputError,
        match=r"an array of shape \(36, 4, 5\) and type uint16: give numbers \(..., 4, 4\)",
    ):
        list(
            reconstruct_live(
                iter([counts()[0], np.zeros((36, 4, 5), "u2")]), model, BEAM, scan_shape=SCAN
            )
        )
    options = ReconstructionOptions(refine_steps=2, halves=True)
    with pytest.raises(InputError, match="the whole scan is needed for refine_steps and halves"):
        list(reconstruct_live(iter(counts()), model, BEAM, scan_shape=SCAN, options=options))
    with pytest.raises(InputError, match="does not state the beam's energy|energy_ev"):
        list(reconstruct_live(iter(counts()), model, CalibrationOverrides(), scan_shape=SCAN))


# ---- Interruption
# --------------------------------------------------------------------------------------------------


def test_an_interrupted_stream_continues_to_the_same_result(model, whole_scan, tmp_path):
    state = tmp_path / "state.npz"
    for stop in (1, 2):
        row = next_row(state) if state.exists() else 0
        updates = reconstruct_live(
            iter(counts()[row:]), model, BEAM, scan_shape=SCAN, first_row=row, state=state, **KNOWN
        )
        for _ in range(stop):
            next(updates)
        updates.close()
    row = next_row(state)
    assert row == 28  # the fourth of four strips is left
    stream = iter(counts()[row:])
    *_, last = reconstruct_live(
        stream, model, BEAM, scan_shape=SCAN, first_row=row, state=state, **KNOWN
    )
    assert_equal(last.result, whole_scan)
    assert not state.exists()


def test_a_state_of_other_data_or_arguments_is_refused(model, tmp_path):
    state = tmp_path / "state.npz"
    next(reconstruct_live(iter(counts()), model, BEAM, scan_shape=SCAN, state=state, **KNOWN))
    with pytest.raises(
        InputError,
        match=r"made differently:\n(.*\n)*"
        r"  specimen.thickness_angstrom: was 20.0, .*\n(.*\n)*remove",
    ):
        next(reconstruct_live(iter(counts()), model, BEAM, scan_shape=SCAN, state=state))
    with pytest.raises(InputError, match="the stream begins with row 20: begin with row 12"):
        next(
            reconstruct_live(
                iter(counts()), model, BEAM, scan_shape=SCAN, state=state, first_row=20, **KNOWN
            )
        )
    state.write_bytes(state.read_bytes()[:300])
    with pytest.raises(InputError, match="is no archive of arrays"):
        next(reconstruct_live(iter(counts()), model, BEAM, scan_shape=SCAN, state=state, **KNOWN))


def test_another_scan_in_the_place_of_an_interrupted_one_is_refused(model, tmp_path):
    state = tmp_path / "state.npz"
    path = tmp_path / "scan.raw"
    given = {"scan_shape": SCAN, "state": state, "layout": RAW, "wait_s": 0.0, **KNOWN}
    path.write_bytes(counts().tobytes())
    next(reconstruct_live(path, model, BEAM, **given))
    for row in (0, 5, 14):  # two that are final, and one of those that the next strip takes
        other = counts()
        other[row] += 1
        path.write_bytes(other.tobytes())
        with pytest.raises(
            InputError, match=f"row {row} of .* is another one than when this reconstruction began"
        ):
            next(reconstruct_live(path, model, BEAM, **given))
    path.write_bytes(counts().tobytes())
    *_, last = reconstruct_live(path, model, BEAM, **given)
    assert last.is_last


def other_network(folder, seed):
    """Writes the network of `model` with other weights into a folder; returns the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return write_run(folder, experiment(), seed=seed)


def test_a_reconstruction_that_was_begun_with_other_weights_is_refused(tmp_path):
    state = tmp_path / "state.npz"
    given = {"scan_shape": SCAN, "state": state, **KNOWN}
    run = other_network(tmp_path / "run", 0)
    next(reconstruct_live(iter(counts()), run, BEAM, **given))
    run = other_network(tmp_path / "run", 1)
    with pytest.raises(InputError, match=r"made differently:\n  network.weights: was .*, is "):
        next(reconstruct_live(iter(counts()[12:]), run, BEAM, first_row=12, **given))
    other_network(tmp_path / "run", 0)
    (tmp_path / "run/calibration.json").write_text('{"scale": 1.0}')
    with pytest.raises(InputError, match=r"  network.calibration.json: was \(none\), is "):
        next(reconstruct_live(iter(counts()[12:]), run, BEAM, first_row=12, **given))


def test_a_moved_network_and_a_moved_file_continue(model, whole_scan, tmp_path):
    path = tmp_path / "scan.raw"
    path.write_bytes(counts().tobytes())
    given = {"scan_shape": SCAN, "layout": RAW, "state": tmp_path / "state.npz", **KNOWN}
    next(reconstruct_live(path, model, BEAM, **given))
    shutil.copytree(model.folder, tmp_path / "moved")
    path = path.rename(tmp_path / "renamed.raw")
    *_, last = reconstruct_live(path, tmp_path / "moved", BEAM, **given)
    assert_equal(last.result, whole_scan)


def test_weights_that_are_replaced_while_they_are_loaded_are_not_used(tmp_path, monkeypatch):
    run = other_network(tmp_path / "run", 0)
    read = checkpoint.read

    def replaced(path):
        other_network(tmp_path / "run", 1)
        return read(path)

    monkeypatch.setattr(checkpoint, "read", replaced)
    with pytest.raises(InputError, match="was replaced while it was in use"):
        next(reconstruct_live(iter(counts()), run, BEAM, scan_shape=SCAN, **KNOWN))


def test_the_state_of_an_earlier_version_is_refused(model, tmp_path):
    state = tmp_path / "state.npz"
    given = {"scan_shape": SCAN, "state": state, **KNOWN}
    next(reconstruct_live(iter(counts()), model, BEAM, **given))
    with np.load(state) as file:
        arrays = dict(file)
    header = json.loads(arrays.pop("header").tobytes())
    header["identity"] = {"data": "stream", "weights": str(model.weights)}
    np.savez(state, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)
    with pytest.raises(InputError, match="written by an earlier version"):
        next(reconstruct_live(iter(counts()), model, BEAM, **given))


@pytest.mark.parametrize("value", [1e30, 1e38])
def test_a_row_of_enormous_values_is_refused_by_its_place(model, value):
    scan = counts().astype(np.float32)
    scan[30] = value * np.random.default_rng(1).random(scan.shape[1:])
    with pytest.raises(InputError, match="scan row 30 and column 0 holds .* times the beam"):
        reconstruct.reconstruct(scan, model, BEAM, **KNOWN)
    with pytest.raises(InputError, match="scan row 30 and column 0 holds .* times the beam"):
        list(reconstruct_live(iter(scan), model, BEAM, scan_shape=SCAN, **KNOWN))


# ---- Files that grow
# ------------------------------------------------------------------------------------------------


# ---- Command and memory
# ---------------------------------------------------------------------------------------------
