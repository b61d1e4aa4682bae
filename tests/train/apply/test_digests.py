"""Digests of packed networks: a changed bit is refused, a change on purpose renews them."""

import shutil

import numpy as np
import pytest
from small_network import BEAM, experiment, patterns, write_run

from namsa import InputError
from namsa.base.folders import open_folder
from train.apply.digests import DIGESTS, check_digests, read_digests, renew_digests, write_digests
from train.apply.models import MODELS, load_model, shipped
from train.tasks.density.scan.application import reconstruct

NAMES = [model.name for model in shipped()]
FAST = MODELS / "200kv-20mrad-fast"
FLIPS = 10  # bits of each file


@pytest.fixture
def packed(tmp_path):
    shutil.copytree(FAST, tmp_path / "fast")
    return tmp_path / "fast"


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


@pytest.mark.parametrize("name", sorted(path.name for path in FAST.iterdir()))
def test_a_flipped_bit_is_refused_whatever_it_changes(packed, name):
    rng = np.random.default_rng(5)
    path = packed / name
    whole = path.read_bytes()
    for _ in range(FLIPS):
        data = bytearray(whole)
        data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
        path.write_bytes(data)
        with pytest.raises(InputError, match=name.replace(".", r"\.")):
            load_model(packed)
    path.write_bytes(whole)
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
    for folder, noted in ((old, True), (run, False)):
        result = reconstruct(patterns((24, 24)), folder, BEAM, beam_intensity=1.0)
        assert any("has no digests.json" in line for line in result.notes) == noted


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
