"""A stack that is written while it is simulated has the bits of one in memory, also after
interruptions.
"""

import resource
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import ase
import h5py
import numpy as np
import pytest

import namsa
from namsa import InputError, StackFile, WorkError
from namsa.config.instrument import Detector
from namsa.config.response import Response
from namsa.config.specimen import FrozenPhonons

SCAN = (5, 6)
PATTERN_BYTES = 24 * 28 * 4


class Interruption(Exception):
    pass


def arguments(**changes):
    positions = []
    for i in range(SCAN[0]):
        for j in range(SCAN[1]):
            positions.append([1 + 1.1 * i, 2 + 0.9 * j])
    atoms = ase.Atoms("AuCu", positions=[[2, 3, 1.5], [5, 4, 3.5]], cell=[8.4, 7.2, 6.0], pbc=True)
    return {
        "atoms": atoms,
        "energy_ev": 200e3,
        "semiangle_mrad": 20.0,
        "grid_shape": (24, 28),
        "positions_angstrom": positions,
        "scan_shape": SCAN,
    } | changes


def to_file(path, batch=7, compression="none", on_progress=lambda *stage: None, **changes):
    with StackFile(
        path, "cell", compression=compression, batch_bytes=batch * PATTERN_BYTES
    ) as stack:
        stack.complete(namsa.simulate(**arguments(**changes), sink=stack, on_progress=on_progress))
        return stack


def interrupt_after(batches):
    """Interrupts before the first probe of the batch after `batches`: progress is told once per
    engine's batch.
    """
    seen = []

    def on_progress(stage, done, total):
        seen.append(stage)
        if seen.count("probes") > batches:
            raise Interruption

    return on_progress


def interrupted(path, batches, **changes):
    with pytest.raises(Interruption):
        to_file(path, on_progress=interrupt_after(batches), **changes)


def assert_whole(path, **changes):
    np.testing.assert_array_equal(
        namsa.read_sample(path).cbed, namsa.simulate(**arguments(**changes)).cbed
    )


NOISY = {
    "frozen_phonons": FrozenPhonons(rms_angstrom=0.1, configurations=3),
    "detector": Detector(electrons_per_pattern=500),
    "seed": 5,
}


@pytest.fixture(autouse=True)
def one_probe_per_batch(monkeypatch):
    """An engine's batch of 30 such small probes would be the whole stack."""
    monkeypatch.setattr("namsa.engines.interface.HOST_BATCH_BYTES", 1)
    monkeypatch.setattr("namsa.engines.prism.BATCH_BYTES", 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "compression"),
    [
        ({"method": "multislice"}, "lzf"),
        ({"method": "prism"}, "none"),
        (NOISY, "gzip"),
        ({"engine": "plain", "scan_shape": None, "precision": "float64"}, "gzip"),
        ({"source_size_angstrom": 0.8}, "none"),
    ],
    ids=["multislice", "prism", "noisy", "plain", "source"],
)
def test_patterns_in_a_file_have_the_bits_of_those_in_memory(tmp_path, changes, compression):
    expected = namsa.simulate(**arguments(**changes))
    to_file(tmp_path / "cell.h5", compression=compression, **changes)
    sample = namsa.read_sample(tmp_path / "cell.h5")
    for name in ("cbed", "density", "projected_potential"):
        np.testing.assert_array_equal(getattr(sample, name), getattr(expected, name))
    assert sample.provenance == expected.provenance
    assert [path.name for path in tmp_path.iterdir()] == ["cell.h5"]


def test_the_file_is_the_one_that_write_samples_writes(tmp_path):
    to_file(tmp_path / "batches.h5")
    sample = namsa.simulate(**arguments())
    namsa.write_samples(tmp_path / "whole.h5", [("cell", sample)])
    seen = {}
    for name in ("batches", "whole"):
        with h5py.File(tmp_path / f"{name}.h5") as file:
            seen[name] = {"/": sorted(file.attrs.items())}
            file.visititems(
                lambda key, item, into=seen[name]: into.update({key: sorted(item.attrs.items())})
            )
            assert file["cell/cbed/data"].chunks is None
    assert seen["batches"] == seen["whole"]


@pytest.mark.parametrize(
    ("changes", "probes", "kept", "left"),
    [({}, 13, 12, 18), (NOISY, 48, 30, 48)],
    ids=["at rest", "phonons"],
)
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_an_interrupted_simulation_is_continued_to_the_same_bits(
    tmp_path, changes, probes, kept, left, compression
):
    interrupted(tmp_path / "cell.h5", probes, compression=compression, **changes)
    assert [path.name for path in tmp_path.iterdir()] == ["cell.h5.unfinished"]
    with pytest.raises(InputError, match="no sample"):
        namsa.read_sample(tmp_path / "cell.h5.unfinished")
    stages = []
    stack = to_file(
        tmp_path / "cell.h5",
        compression=compression,
        on_progress=lambda *stage: stages.append(stage[0]),
        **changes,
    )
    assert (stack.continued, stages.count("probes")) == (kept, left)
    assert_whole(tmp_path / "cell.h5", **changes)


def test_an_interruption_before_the_first_batch_leaves_nothing(tmp_path):
    interrupted(tmp_path / "cell.h5", 3)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_batch_that_a_crash_has_damaged_is_simulated_again(tmp_path, compression):
    interrupted(tmp_path / "cell.h5", 20, compression=compression)
    unfinished = tmp_path / "cell.h5.unfinished"
    with h5py.File(unfinished, "r+") as file:
        data = file["cell/cbed/data"]
        row = data[1]
        row[0, 3, 4] += 1
        data[1] = row
    stack = to_file(tmp_path / "cell.h5", compression=compression)
    assert stack.continued == 12  # of three rows of six the second is lost
    assert_whole(tmp_path / "cell.h5")


def test_a_file_that_a_crash_has_made_unreadable_is_begun_anew(tmp_path):
    (tmp_path / "cell.h5.unfinished").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(3000))
    assert to_file(tmp_path / "cell.h5").continued == 0
    assert_whole(tmp_path / "cell.h5")


@pytest.mark.parametrize(
    "array", ["positions", "rms_displacement_angstrom", "displacement_tensor_angstrom2"]
)
def test_the_file_of_another_simulation_is_kept(tmp_path, array):
    """Also of atoms that are displaced otherwise."""
    atoms = arguments()["atoms"]
    phonons = FrozenPhonons(rms_angstrom="cif", configurations=1)
    shape = {"rms_displacement_angstrom": (2,), "displacement_tensor_angstrom2": (2, 3, 3)}
    if array in shape:
        atoms.set_array(
            array, np.broadcast_to(0.08 * np.eye(3) if "tensor" in array else 0.08, shape[array])
        )
    first_run = {"atoms": atoms, "frozen_phonons": phonons if array in shape else None}
    interrupted(tmp_path / "cell.h5", 9, **first_run)
    before = (tmp_path / "cell.h5.unfinished").read_bytes()
    changed = atoms.copy()
    changed.arrays[array] = changed.arrays[array] * (1 + 1e-9)
    for other in ({"atoms": changed}, {"energy_ev": 100e3}):
        with pytest.raises(InputError, match="what another simulation has left"):
            to_file(tmp_path / "cell.h5", **first_run | other)
    assert (tmp_path / "cell.h5.unfinished").read_bytes() == before
    assert to_file(tmp_path / "cell.h5", **first_run).continued > 0


def test_a_changed_mtf_file_is_another_simulation(tmp_path):
    mtf = tmp_path / "mtf.txt"
    mtf.write_text("0 1\n0.5 0.6\n")
    detector = Detector(response=Response(mtf_file=mtf))
    interrupted(tmp_path / "cell.h5", 27, detector=detector)
    mtf.write_text("0 1\n0.5 0.5\n")
    with pytest.raises(InputError, match="what another simulation has left"):
        to_file(tmp_path / "cell.h5", detector=detector)
    mtf.write_text("# the first one again\n0, 1\n0.5, 0.6\n")
    assert to_file(tmp_path / "cell.h5", detector=detector).continued > 0


def test_a_killed_process_leaves_what_it_had_said_was_there(tmp_path):
    code = (
        "import os, sys; import namsa.engines.interface as i; i.HOST_BATCH_BYTES = 1\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import test_stack_file as t\n"
        "seen = []\n"
        "def kill(stage, done, total):\n"
        "    seen.append(stage)\n"
        "    if seen.count('probes') == 20: os.kill(os.getpid(), 9)\n"
        f"t.to_file({str(tmp_path / 'cell.h5')!r}, compression='gzip', on_progress=kill)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    stack = to_file(tmp_path / "cell.h5", compression="gzip")
    assert stack.continued == 18
    assert_whole(tmp_path / "cell.h5")


def test_two_processes_do_not_write_one_file(tmp_path, monkeypatch):
    monkeypatch.setattr("namsa.base.locks.WAIT_S", 0.0)
    with (
        StackFile(tmp_path / "cell.h5"),
        pytest.raises(InputError, match=r"is writing to .*cell.h5"),
    ):
        StackFile(tmp_path / "cell.h5").__enter__()


def test_a_stop_between_the_last_two_steps_keeps_the_complete_file(tmp_path, monkeypatch):
    """The same command then ends well: the file gets its name, and a new one takes its place."""
    path = tmp_path / "cell.h5"
    with monkeypatch.context() as patch:
        patch.setattr(StackFile, "_take_place", lambda self: (_ for _ in ()).throw(Interruption))
        with pytest.raises(Interruption):
            to_file(path)
    assert not path.exists()
    complete = path.with_name("cell.h5.unfinished").read_bytes()
    with (
        StackFile(path, "cell", batch_bytes=7 * PATTERN_BYTES) as stack,
        pytest.raises(Interruption),
    ):
        namsa.simulate(**arguments(), sink=stack, on_progress=interrupt_after(0))
    assert path.read_bytes() == complete
    to_file(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["cell.h5"]
    with h5py.File(path) as file:
        np.testing.assert_array_equal(
            file["cell/cbed/data"][()].reshape(30, 24, 28), namsa.simulate(**arguments()).cbed
        )


def test_a_disk_that_is_full_at_the_end_loses_no_patterns(tmp_path):
    path = tmp_path / "cell.h5"
    with StackFile(path, "cell", batch_bytes=7 * PATTERN_BYTES) as stack:
        sample = namsa.simulate(**arguments(), sink=stack)
        with largest_file(stack.unfinished.stat().st_size), pytest.raises(WorkError, match="write"):
            stack.complete(sample)
    assert not path.exists()
    assert to_file(path).continued == SCAN[0] * SCAN[1]
    assert_whole(path)


def test_a_file_without_its_digests_is_not_complete(tmp_path, monkeypatch):
    path = tmp_path / "cell.h5"
    with monkeypatch.context() as patch:
        patch.setattr("namsa.io.block_digests.append", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            to_file(path)
    with (
        StackFile(path, "cell", batch_bytes=7 * PATTERN_BYTES) as stack,
        pytest.raises(Interruption),
    ):
        namsa.simulate(**arguments(), sink=stack, on_progress=interrupt_after(0))
    assert not path.exists()


@contextmanager
def largest_file(size):
    """Lets no file become larger, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_batches_take_the_seconds_that_they_may_and_are_never_more_than_fit(tmp_path, monkeypatch):
    """An interruption loses a few seconds, whatever the size of the scan."""
    clock = iter(range(1000))  # a second passes between reading and writing a batch
    monkeypatch.setattr("namsa.io.stack_file.time.monotonic", lambda: next(clock))
    monkeypatch.setattr("namsa.io.stack_file._UNIT_BYTES", PATTERN_BYTES)
    monkeypatch.setattr("namsa.io.stack_file.os.cpu_count", lambda: 2)
    sizes = []
    write = StackFile.write

    def record(self, rows, patterns, configurations):
        sizes.append(len(patterns))
        write(self, rows, patterns, configurations)

    monkeypatch.setattr(StackFile, "write", record)
    to_file(tmp_path / "cell.h5", batch=9)
    assert sizes == [2, 6, 9, 9, 4]
    assert_whole(tmp_path / "cell.h5")
