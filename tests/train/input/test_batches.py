"""Batches: their order, augmentation and noise, what is read ahead, samples that are refused, and
shares of ranks.
"""

import gc
from dataclasses import replace
from itertools import pairwise

import fake_samples
import numpy as np
import pytest
import tensorflow as tf
from synthetic import DETECTOR, SCAN, Memory, dataset, experiment, sample

from fcdensenet.build import build
from namsa.base.errors import InputError, WorkError
from namsa.config.simulation import Data
from namsa.dataset import listing, records
from namsa.dataset.indexed import IndexedSamples
from namsa.dataset.shards import Dataset
from train.execution.tensorflow import host_tensor
from train.experiment import symmetries
from train.experiment.experiment import Experiment
from train.input.batches import batches, kept_window_bytes, read_batch
from train.input.normalisation import normalise, record_symmetries
from train.input.readahead import Buffers
from train.input.views import ReadCache, mean_target
from train.optimization import precision

PIXELS = DETECTOR[0] * DETECTOR[1]


class Watched(Memory):
    """Notes which samples are opened, and whether they are checked."""

    def __init__(self, encoded):
        super().__init__(encoded)
        self.opened = []

    def view(self, sample_id, check=False):
        self.opened.append((sample_id, check))
        return super().view(sample_id, check)


def test_batches_come_in_order_whole_and_as_loaded():
    data, entries = dataset(5)
    job = experiment(batch_size=2)
    read = list(batches(data, entries, job, epoch=0))
    assert [tuple(x.shape) for x, _ in read] == [(2, *DETECTOR, 6)] * 2
    for index in range(4):
        with data.view(entries[index].id) as record:
            x, y = normalise(record, job.training.inputs)
        np.testing.assert_array_equal(read[index // 2][0][index % 2], x)
        np.testing.assert_array_equal(read[index // 2][1][index % 2], y)


@pytest.mark.parametrize("compute", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_the_network_is_handed_the_type_it_computes_in(compute):
    data, entries = dataset(1)
    job = experiment(precision={"compute": compute})
    with precision.policy(compute):
        model = build(job.network, seed=0)
    ((x, y),) = batches(data, entries, job, epoch=0)
    assert x.dtype.name == model.inputs[0].dtype == compute.removeprefix("mixed_")
    assert y.dtype == np.float32
    with data.view(entries[0].id) as record:
        expected = normalise(record, job.training.inputs)[0]
    np.testing.assert_array_equal(x[0], tf.cast(expected, x.dtype))


def test_augmentation_depends_on_sample_and_epoch_alone():
    data, entries = dataset(6)
    job = experiment(inputs={"augment": True, "dose_electrons_per_pattern": [100, 1000]})

    def images(share, epoch):
        read = zip(share, batches(data, share, job, epoch), strict=True)
        return {entry.id: (x.numpy(), y.numpy()) for entry, (x, y) in read}

    forward = images(entries, 3)
    backward = images(entries[::-1], 3)
    for sample_id, pair in forward.items():
        for a, b in zip(pair, backward[sample_id], strict=True):
            np.testing.assert_array_equal(a, b)
    drawn = [images(entries[:1], epoch)[entries[0].id] for epoch in range(16)]
    assert len({y.tobytes() for _, y in drawn}) == 4
    assert len({x.tobytes() for x, _ in drawn}) == 16


def test_augmented_batches_are_symmetries_of_the_sample():
    data, entries = dataset(1)
    job = experiment(inputs={"augment": True})
    with data.view(entries[0].id) as record:
        of = record_symmetries(record)
        cbed = record.cbed.reshape(*SCAN, *DETECTOR)
        turned = [symmetries.apply(symmetry, of, cbed, record.density) for symmetry in range(4)]
        mirrored = [
            replace(record, cbed=x.reshape(record.cbed.shape), density=y) for x, y in turned
        ]
        expected = [normalise(variant, job.training.inputs) for variant in mirrored]
    drawn = set()
    for epoch in range(16):
        ((x, y),) = batches(data, entries, job, epoch)
        (same,) = [symmetry for symmetry in range(4) if np.array_equal(y[0], expected[symmetry][1])]
        np.testing.assert_array_equal(x[0], expected[same][0])
        drawn.add(same)
    assert drawn == {0, 1, 2, 3}


def test_dose_noise_is_counted_before_the_normalisation():
    data, entries = dataset(1)
    ((x, y),) = batches(
        data, entries, experiment(inputs={"dose_electrons_per_pattern": 400.0}), epoch=0
    )
    counts = x.numpy() ** 2 * 400 / PIXELS
    np.testing.assert_allclose(counts, np.round(counts), atol=1e-4)
    with data.view(entries[0].id) as record:
        clean = record.cbed.sum((1, 2)) * 400
        np.testing.assert_array_equal(y[0, ..., 0], record.density)
    assert np.all(np.abs(counts[0].sum((0, 1)) - clean) < 5 * np.sqrt(clean))
    assert np.any(counts[0].sum((0, 1)) != clean)


def test_no_more_is_read_ahead_than_there_is_room_for():
    data, entries = dataset(12)
    job = experiment(
        inputs={"read_ahead_gib": 1e-9}
    )  # room for none: two are read ahead all the same
    many = entries * 5
    watched = Watched(data.encoded)
    read = batches(watched, many, job, epoch=0)
    next(read)
    read.close()
    assert len(watched.opened) <= 2 * 16 < len(many)


def test_refuses_samples_of_another_shape_or_more_digits():
    data, entries = dataset(1)
    with pytest.raises(
        WorkError, match=r"sample-00 holds float32 patterns: set data.dtype=float32"
    ):
        list(
            batches(
                data,
                entries,
                experiment().model_copy(update={"data": Data(dtype="float16")}),
                epoch=0,
            )
        )
    other = sample(0)
    other.provenance["scan_shape"] = [3, 2]
    with pytest.raises(
        WorkError, match=r"sample-00 holds patterns \(3, 2, 8, 12\).*where.*\(2, 3, 8, 12\)"
    ):
        list(
            batches(
                Memory({"sample-00": bytes(records.encode(other))}), entries, experiment(), epoch=0
            )
        )


@pytest.mark.parametrize("name", ["electrons_per_pattern", "dose_electrons_per_angstrom2"])
def test_refuses_to_draw_noise_on_noise(name):
    noisy = sample(0)
    noisy.provenance["detector"] = {"shape": [50, 60], name: 800.0}
    data = Memory({"sample-00": bytes(records.encode(noisy, "float32"))})
    entries = dataset(1)[1]
    assert len(list(batches(data, entries, experiment(), epoch=0))) == 1
    with pytest.raises(InputError, match=f"have the noise of detector.{name}=800 already.*unset"):
        list(
            batches(
                data, entries, experiment(inputs={"dose_electrons_per_pattern": 400.0}), epoch=0
            )
        )


def test_a_corrupt_record_ends_the_epoch_with_its_reason():
    data, entries = dataset(2)
    broken = bytearray(data.encoded[entries[1].id])
    broken[-500] ^= 1
    read = batches(
        Memory(data.encoded | {entries[1].id: bytes(broken)}), entries, experiment(), epoch=0
    )
    with pytest.raises(WorkError, match="checksum does not match"):
        list(read)


@pytest.mark.parametrize(
    "inputs", [{}, {"augment": True}, {"augment": True, "dose_electrons_per_pattern": [50, 500]}]
)
def test_a_later_epoch_copies_from_the_places_that_the_first_has_found_and_checked(inputs):
    data, entries = dataset(5)
    watched = Watched(data.encoded)
    job = experiment(batch_size=2, inputs=inputs)
    cache = ReadCache()
    for epoch, share in enumerate([entries[:4], entries[1:], entries]):
        read = list(batches(watched, share, job, epoch, cache))
        alone = list(batches(data, share, job, epoch))
        assert len(read) == len(alone) == 2
        for pair, expected in zip(read, alone, strict=True):
            for a, b in zip(pair, expected, strict=True):
                np.testing.assert_array_equal(a, b)
    assert sorted(watched.opened) == [(entry.id, True) for entry in entries]


@pytest.mark.parametrize("compute", ["float32", "mixed_bfloat16"])
def test_a_window_is_kept_for_several_epochs_and_found_again_by_a_resumed_job(compute):
    data, entries = dataset(6)
    inputs = {"augment": True, "dose_electrons_per_pattern": [100, 1000], "redraw_epochs": 3}
    job = experiment(batch_size=2, inputs=inputs, precision={"compute": compute})
    cache = ReadCache()
    seen = {entry.id: [] for entry in entries}
    for epoch in range(7):
        share = entries[epoch % 5 :] + entries[: epoch % 5]  # other samples together in each epoch
        resumed = batches(data, share, job, epoch)
        pairs = zip(batches(data, share, job, epoch, cache), resumed, strict=True)
        for at, (pair, expected) in enumerate(pairs):
            for a, b in zip(pair, expected, strict=True):
                assert a.dtype == b.dtype
                np.testing.assert_array_equal(a, b)
            for entry, x in zip(
                share[2 * at : 2 * at + 2], tf.cast(pair[0], tf.float32).numpy(), strict=True
            ):
                seen[entry.id].append(x.tobytes())
    changes = set()
    for drawn in seen.values():
        changes.add(tuple(a != b for a, b in pairwise(drawn)))
    for change in changes:
        assert sum(change) == 2
        assert change[:3] == change[3:]
    assert len(changes) > 1  # not all samples in the same epoch
    assert {kept.x.numpy().nbytes + kept.y.numpy().nbytes for kept in cache.kept.values()} == {
        kept_window_bytes(job)
    }


def test_epochs_are_read_into_the_same_memory():
    data, entries = dataset(6)
    job = experiment(batch_size=2)
    cache = ReadCache()

    def addresses():
        return {
            read_batch(data, entries[at : at + 2], job, 0, cache).patterns.ctypes.data
            for at in (0, 2, 4)
        }

    first = addresses()
    assert len(first) == 1
    assert addresses() == first


def test_mean_target_is_the_mean_density():
    data, entries = dataset(3)
    expected = np.mean([sample(seed).density.astype(np.float64) for seed in range(3)], axis=0)
    np.testing.assert_allclose(
        mean_target(data, [entry.id for entry in entries]), expected, rtol=1e-12
    )


def test_a_batch_has_the_bytes_of_samples_by_number(tmp_path, monkeypatch):
    """PyTorch and Grain get the same samples (`namsa.IndexedSamples`) as TensorFlow."""
    monkeypatch.setattr(listing, "select_materials", lambda *_, **__: fake_samples.MATERIALS)

    def simulate(config, material, entry):
        made = sample(entry.seed)
        return replace(
            made,
            provenance=made.provenance | {"id": entry.id, "config_hash": config.samples_hash()},
        )

    fake_samples.produce(tmp_path, simulate=simulate)
    job = Experiment.model_validate(experiment().model_dump() | {"data": {"dtype": "float16"}})
    with IndexedSamples(tmp_path) as samples:
        items = [samples[index] for index in (4, 1)]
        entries = [samples.entries[index] for index in (4, 1)]
    with Dataset(tmp_path) as data:
        batch = read_batch(data, entries, job, 0, ReadCache())
        for name, stacked in {
            "cbed": batch.patterns,
            "scale": batch.scale,
            "density": batch.density,
        }.items():
            assert np.stack([item[name] for item in items]).tobytes() == stacked.tobytes()


# ---- What is read ahead
# ----------------------------------------------------------------------------------------------


def test_a_tensor_is_the_arrays_memory_and_keeps_it():
    buffers = Buffers()
    array = buffers.empty((3, 5), np.float16)
    array[...] = 1.5
    tensor = host_tensor(array)
    array[1, 2] = 7
    assert tensor.numpy()[1, 2] == 7
    del array
    others = [buffers.empty((3, 5), np.float16) for _ in range(4)]
    for other in others:
        other[...] = 0
    assert tensor.numpy()[1, 2] == 7


def test_memory_goes_round_once_its_tensor_is_gone():
    buffers = Buffers()
    buffer = buffers.empty((7, 11), np.float32)
    other = buffers.empty((7, 11), np.float32)
    address = buffer.ctypes.data
    taken = other.ctypes.data
    assert address != taken
    assert address % 64 == taken % 64 == 0
    tensor = host_tensor(buffer)
    del buffer
    assert buffers.empty((7, 11), np.float32).ctypes.data != address
    del tensor
    gc.collect()
    again = [buffers.empty((11, 7), np.float32) for _ in range(2)]
    assert address in [array.ctypes.data for array in again]
    assert taken not in [array.ctypes.data for array in again]


# ---- Shares of an epoch
# ----------------------------------------------------------------------------------------------
