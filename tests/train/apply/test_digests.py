"""Digests of packed networks: a changed bit is refused, a change on purpose renews them."""

import json
import shutil

import numpy as np
import pytest
from small_network import BEAM, experiment, patterns, write_run

from namsa import InputError, WorkError
from namsa.base.digested_json import DIGEST, with_digest
from namsa.base.folders import open_folder
from namsa.base.json_files import read_json
from namsa.inverse import mott_bethe
from train.apply.digests import DIGESTS, check_digests, read_digests, renew_digests, write_digests
from train.apply.models import CALIBRATION, MODELS, load_model, shipped
from train.reports.calibration_results import read_calibration
from train.reports.results import write_json
from train.tasks.density.scan.application import reconstruct

NAMES = [model.name for model in shipped()]
FAST = MODELS / "200kv-20mrad-fast"
FLIPS = 10  # bits of each file
MOST_FLIPS = FLIPS / 2


@pytest.fixture
def packed(tmp_path):
    shutil.copytree(FAST, tmp_path / "fast")
    return tmp_path / "fast"


@pytest.fixture
def run(tmp_path):
    """A run directory whose checkpoint is read when the network is built."""
    (tmp_path / "run/checkpoints").mkdir(parents=True)
    step = read_json(FAST / CALIBRATION)["step"]
    (tmp_path / f"run/checkpoints/step-{step:09d}.npz").touch()
    shutil.copy(FAST / "config.yaml", tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("name", NAMES)
def test_the_digests_of_a_shipped_network_are_those_of_all_of_its_files(name):
    folder = MODELS / name
    files = {path.name for path in folder.iterdir()} - {DIGESTS}
    stated = read_digests(folder)
    assert stated is not None
    assert set(stated["files"]) == files
    try:
        check_digests(folder)
    except InputError as error:
        pytest.fail(f"{error}\nafter a change on purpose: train.apply.digests.write_digests")


def flipped(content, seed):
    """Yields the bytes of a file with one bit of each changed."""
    rng = np.random.default_rng(seed)
    for _ in range(FLIPS):
        data = bytearray(content)
        data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
        yield bytes(data)


@pytest.mark.parametrize("name", sorted(path.name for path in FAST.iterdir()))
def test_a_flipped_bit_is_refused_whatever_it_changes(packed, name):
    path = packed / name
    intact = path.read_bytes()
    for data in flipped(intact, 5):
        path.write_bytes(data)
        with pytest.raises(InputError, match=name.replace(".", r"\.")):
            load_model(packed)
    path.write_bytes(intact)
    load_model(packed)


def test_a_file_that_is_missing_or_added_is_named(packed):
    (packed / "transfer.json").rename(packed / "other.json")
    with pytest.raises(InputError, match=r"transfer.json: was \"[0-9a-f]{32}\", is \(none\)"):
        load_model(packed)
    (packed / "other.json").rename(packed / "transfer.json")
    folder = packed.parent / "thickness"
    shutil.copytree(MODELS / "200kv-20mrad-thickness", folder)
    shutil.copy(FAST / "transfer.json", folder)
    with pytest.raises(InputError, match=r"transfer.json: was \(none\), is"):
        load_model(folder)


def test_a_folder_of_an_earlier_version_is_read_and_it_is_noted(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    model = load_model(write_run(run, experiment()))
    assert not model.unchecked
    old = tmp_path / "old"
    old.mkdir()
    shutil.copy(model.weights, old / "weights.npz")
    shutil.copy(run / "config.yaml", old)
    earlier = "its calibration.json is of an earlier version and has no digest"
    for folder, noted in ((old, "has no digests.json"), (run, earlier)):
        (folder / CALIBRATION).write_text('{"uncertainty_factor": 2.0}')
        result = reconstruct(patterns((24, 24)), folder, BEAM, beam_intensity=1.0)
        assert [line for line in result.notes if " has no digest" in line] == [
            line for line in result.notes if noted in line
        ]
        assert any(noted in line for line in result.notes)
    write_json(run / CALIBRATION, with_digest({"uncertainty_factor": 2.0}))
    result = reconstruct(patterns((24, 24)), run, BEAM, beam_intensity=1.0)
    for line in result.notes:
        assert " has no digest" not in line


def test_what_replaces_files_of_a_packed_network_renews_its_digests(packed):
    write_digests(packed, {"weights": "1"})
    with open_folder(packed, key_file="calibration.json") as new:
        (new / "calibration.json").write_text('{"uncertainty_factor": 2.0}')
        renew_digests(packed, new)
    assert load_model(packed).calibration.uncertainty_factor == 2.0
    assert read_digests(packed)["made_of"] == {"weights": "1"}


def test_a_switch_of_files_that_was_cut_is_completed_when_the_network_is_loaded(packed):
    new = packed / ".switch"
    new.mkdir()
    (new / "calibration.json").write_text('{"uncertainty_factor": 3.0}')
    (new / ".plan.json").write_text('{"key_file": "calibration.json", "remove": []}')
    renew_digests(packed, new)
    assert load_model(packed).calibration.uncertainty_factor == 3.0
    assert not new.exists()


@pytest.mark.parametrize(
    "read", [load_model, lambda folder: read_calibration(folder / CALIBRATION)]
)
def test_a_flipped_bit_in_the_calibration_of_a_run_changes_no_number_in_silence(run, read):
    values = read_json(FAST / CALIBRATION)
    write_json(run / CALIBRATION, with_digest(values))
    expected = load_model(run).calibration
    refused = check_flips(
        run / CALIBRATION, lambda: read(run), lambda: read_json(run / CALIBRATION)
    )
    assert refused > MOST_FLIPS
    (run / CALIBRATION).write_text(json.dumps(values))
    assert load_model(run).calibration == expected


def test_a_flipped_bit_in_the_conversion_of_a_run_changes_no_number_in_silence(tmp_path):
    path = tmp_path / "transfer.json"
    expected = mott_bethe.read(FAST / "transfer.json")  # of an earlier version
    mott_bethe.write(expected, path)
    refused = check_flips(path, lambda: mott_bethe.read(path), lambda: read_json(path))
    assert refused > MOST_FLIPS


def check_flips(path, read, values):
    """Flips bits of a file, each of which is refused or leaves all values as they were. Returns the
    number that were refused.
    """
    intact = path.read_bytes()
    expected = values()
    refused = 0
    for data in flipped(intact, 6):
        path.write_bytes(data)
        try:
            read()
        except (InputError, WorkError):
            refused += 1
        else:
            loaded = values()
            for key in expected:
                if key != DIGEST:
                    assert loaded.get(key) == expected[key]
    path.write_bytes(intact)
    read()
    return refused
