import numpy as np
import pytest
import tensorflow as tf
from synthetic import DETECTOR, SCAN, TARGET, Memory, dataset, experiment, sample

from fcdensenet.build import build
from namsa import Sample
from namsa.config.simulation import Data
from namsa.dataset import records
from namsa.errors import InputError, WorkError
from train.experiment import symmetries
from train.experiment.sections import Inputs
from train.input.batches import (
    Batch,
    Kept,
    batches,
    epoch_share,
    limited,
    load_sample,
    mean_target,
    prepare,
    read_batch,
    symmetries_of,
)
from train.optimization import precision

PIXELS = DETECTOR[0] * DETECTOR[1]


def record(seed=0):
    return records.decode(records.encode(sample(seed), "float32"))


def test_an_evenly_spread_beam_is_one_times_the_gain():
    given = sample(0)
    flat = Sample(np.full_like(given.cbed, 1 / PIXELS), given.density, given.projected_potential, given.provenance)
    x, _ = load_sample(records.decode(records.encode(flat)), Inputs(power=0.37, gain=2.5))
    np.testing.assert_allclose(x, 2.5, rtol=1e-3)


def test_detector_layout_has_a_channel_for_each_probe():
    given = record()
    x, y = load_sample(given, Inputs(power=0.5, gain=3.0, density_scale_e_per_angstrom2=4.0))
    assert (x.shape, y.shape) == ((*DETECTOR, 6), (*TARGET, 1))
    assert x.dtype == y.dtype == np.float32
    for probe in range(6):
        np.testing.assert_allclose(x[..., probe], 3 * np.sqrt(given.cbed[probe] * PIXELS), rtol=1e-6)
    np.testing.assert_array_equal(y[..., 0], given.density / 4)


def test_scan_layout_has_a_channel_for_each_detector_pixel():
    given = record()
    x, _ = load_sample(given, Inputs(layout="scan", power=1.0))
    assert x.shape == (*SCAN, PIXELS)
    probe, pixel = (1, 2), (3, 7)
    value = given.cbed[probe[0] * SCAN[1] + probe[1], pixel[0], pixel[1]] * PIXELS
    assert x[(*probe, pixel[0] * DETECTOR[1] + pixel[1])] == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize("layout", ["detector", "scan"])
def test_channels_first_is_the_same_in_another_order(layout):
    last = load_sample(record(), Inputs(layout=layout))
    first = load_sample(record(), Inputs(layout=layout), "channels_first")
    for a, b in zip(first, last, strict=True):
        np.testing.assert_array_equal(np.moveaxis(a, 0, -1), b)


def test_a_symmetry_moves_patterns_and_density_together():
    given, inputs = record(), Inputs(power=1.0)
    x, y = load_sample(given, inputs, symmetry=3)
    patterns, density = symmetries.apply(3, symmetries_of(given), given.cbed.reshape(*SCAN, *DETECTOR), given.density)
    np.testing.assert_allclose(x, np.moveaxis(patterns.reshape(6, *DETECTOR), 0, -1) * PIXELS, rtol=1e-6)
    np.testing.assert_array_equal(y[..., 0], density)
    assert not np.array_equal(y[..., 0], given.density)


def test_shares_cover_an_epoch_once_in_an_order_of_its_own():
    entries = dataset(13)[1]
    shares = [epoch_share(entries, 7, 2, rank, 3, 4) for rank in range(3)]
    ids = [entry.id for share in shares for entry in share]
    assert [len(share) for share in shares] == [4, 4, 4]
    assert len(set(ids)) == 12
    assert shares[1] == epoch_share(entries, 7, 2, 1, 3, 4)
    assert shares[1] != epoch_share(entries, 7, 3, 1, 3, 4)
    assert shares[1] != epoch_share(entries, 8, 2, 1, 3, 4)
    left_out = set()
    for epoch in range(12):
        taken = {entry.id for rank in range(3) for entry in epoch_share(entries, 7, epoch, rank, 3, 4)}
        left_out |= {entry.id for entry in entries} - taken
    assert len(left_out) > 3


def test_fewer_samples_are_among_more_in_their_order():
    _, entries = dataset(12)
    chosen = [limited(entries, count) for count in (3, 6, 12, None)]
    assert [len(each) for each in chosen] == [3, 6, 12, 12]
    assert {entry.id for entry in chosen[0]} < {entry.id for entry in chosen[1]}
    for each in chosen:
        assert each == [entry for entry in entries if entry in each]
    assert chosen[0] == limited(entries[::-1], 3)[::-1]  # whatever the order of the list
    assert chosen[1] not in (entries[:6], entries[6:])


def test_two_ranks_take_together_what_one_takes_alone():
    entries = dataset(8)[1]
    alone = epoch_share(entries, 1, 0, 0, 1, 8)
    first, second = (epoch_share(entries, 1, 0, rank, 2, 4) for rank in (0, 1))
    assert [entry for pair in zip(first, second, strict=True) for entry in pair] == alone


def test_batches_come_in_order_whole_and_as_loaded():
    data, entries = dataset(5)
    job = experiment(batch_size=2)
    found = list(batches(data, entries, job, epoch=0))
    assert [tuple(x.shape) for x, _ in found] == [(2, *DETECTOR, 6)] * 2
    for index in range(4):
        with data.view(entries[index].id) as given:
            x, y = load_sample(given, job.training.inputs)
        np.testing.assert_array_equal(found[index // 2][0][index % 2], x)
        np.testing.assert_array_equal(found[index // 2][1][index % 2], y)


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
@pytest.mark.parametrize("layout", ["detector", "scan"])
@pytest.mark.parametrize(
    ("power", "gain", "stored"), [(0.5, 1.0, "float16"), (1.0, 2.5, "float32"), (0.3, 0.7, "float16")]
)
def test_the_graph_calculates_as_numpy_does(layout, data_format, power, gain, stored):
    inputs = Inputs(layout=layout, power=power, gain=gain, density_scale_e_per_angstrom2=3.0)
    given = [records.decode(records.encode(sample(seed), stored)) for seed in (0, 1)]
    scale = np.array([record.header["arrays"]["cbed"]["scale"] for record in given], np.float32).reshape(-1, 1, 1, 1)
    batch = Batch(
        tf.constant(np.stack([record.cbed.reshape(*SCAN, *DETECTOR) for record in given])),
        tf.constant(scale),
        tf.constant(np.stack([record.density for record in given])),
    )
    x, y = prepare(*batch, power, gain, 3.0, layout, data_format, "float32")
    for index, record in enumerate(given):
        wanted_x, wanted_y = load_sample(record, inputs, data_format)
        np.testing.assert_allclose(x[index], wanted_x, rtol=1e-6)
        np.testing.assert_allclose(y[index], wanted_y, rtol=3e-7)  # TensorFlow multiplies by a constant's inverse


@pytest.mark.parametrize("compute", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_the_network_is_handed_the_type_it_computes_in(compute):
    data, entries = dataset(1)
    job = experiment(precision={"compute": compute})
    with precision.policy(compute):
        model = build(job.network, seed=0)
    ((x, y),) = batches(data, entries, job, epoch=0)
    assert x.dtype.name == model.inputs[0].dtype == compute.removeprefix("mixed_")
    assert y.dtype == np.float32
    with data.view(entries[0].id) as given:
        wanted = load_sample(given, job.training.inputs)[0]
    np.testing.assert_array_equal(x[0], tf.cast(wanted, x.dtype))


def test_augmentation_depends_on_sample_and_epoch_alone():
    data, entries = dataset(6)
    job = experiment(inputs={"augment": True, "dose_electrons_per_pattern": [100, 1000]})

    def images(share, epoch):
        found = zip(share, batches(data, share, job, epoch), strict=True)
        return {entry.id: (x.numpy(), y.numpy()) for entry, (x, y) in found}

    forward, backward = images(entries, 3), images(entries[::-1], 3)
    for sample_id, pair in forward.items():
        for a, b in zip(pair, backward[sample_id], strict=True):
            np.testing.assert_array_equal(a, b)
    drawn = [images(entries[:1], epoch)[entries[0].id] for epoch in range(16)]
    assert len({y.tobytes() for _, y in drawn}) == 4
    assert len({x.tobytes() for x, _ in drawn}) == 16


def test_augmented_batches_are_symmetries_of_the_sample():
    data, entries = dataset(1)
    job = experiment(inputs={"augment": True})
    with data.view(entries[0].id) as given:
        wanted = [load_sample(given, job.training.inputs, symmetry=symmetry) for symmetry in range(4)]
    drawn = set()
    for epoch in range(16):
        ((x, y),) = batches(data, entries, job, epoch)
        (same,) = [symmetry for symmetry in range(4) if np.array_equal(y[0], wanted[symmetry][1])]
        np.testing.assert_array_equal(x[0], wanted[same][0])
        drawn.add(same)
    assert drawn == {0, 1, 2, 3}


def test_dose_noise_is_counted_before_the_normalisation():
    data, entries = dataset(1)
    ((x, y),) = batches(data, entries, experiment(inputs={"dose_electrons_per_pattern": 400.0}), epoch=0)
    counts = x.numpy() ** 2 * 400 / PIXELS
    np.testing.assert_allclose(counts, np.round(counts), atol=1e-4)
    with data.view(entries[0].id) as given:
        clean = given.cbed.sum((1, 2)) * 400
        np.testing.assert_array_equal(y[0, ..., 0], given.density)
    assert np.all(np.abs(counts[0].sum((0, 1)) - clean) < 5 * np.sqrt(clean))
    assert np.any(counts[0].sum((0, 1)) != clean)


def test_no_more_is_read_ahead_than_there_is_room_for():
    data, entries = dataset(12)
    seen = []

    class Watched(Memory):
        def view(self, sample_id, check=False):
            seen.append(sample_id)
            return super().view(sample_id, check)

    job = experiment(inputs={"read_ahead_gib": 1e-9})  # room for none: two are read ahead all the same
    many = entries * 5
    found = batches(Watched(data.encoded), many, job, epoch=0)
    next(found)
    found.close()
    assert len(seen) <= 2 * 16 < len(many)


def test_refuses_samples_of_another_shape_or_more_digits():
    data, entries = dataset(1)
    with pytest.raises(WorkError, match=r"sample-00 holds float32 patterns: set data.dtype=float32"):
        list(batches(data, entries, experiment().model_copy(update={"data": Data(dtype="float16")}), epoch=0))
    other = sample(0)
    other.provenance["scan_shape"] = [3, 2]
    with pytest.raises(WorkError, match=r"sample-00 holds patterns \(3, 2, 8, 12\).*where.*\(2, 3, 8, 12\)"):
        list(batches(Memory({"sample-00": bytes(records.encode(other))}), entries, experiment(), epoch=0))


def test_refuses_to_draw_noise_on_noise():
    noisy = sample(0)
    noisy.provenance["detector"] = {"electrons_per_pattern": 800.0}
    data, entries = Memory({"sample-00": bytes(records.encode(noisy, "float32"))}), dataset(1)[1]
    assert len(list(batches(data, entries, experiment(), epoch=0))) == 1
    with pytest.raises(InputError, match="have the noise of detector.electrons_per_pattern=800 already"):
        list(batches(data, entries, experiment(inputs={"dose_electrons_per_pattern": 400.0}), epoch=0))


def test_a_corrupt_record_ends_the_epoch_with_its_reason():
    data, entries = dataset(2)
    broken = bytearray(data.encoded[entries[1].id])
    broken[-500] ^= 1
    found = batches(Memory(data.encoded | {entries[1].id: bytes(broken)}), entries, experiment(), epoch=0)
    with pytest.raises(WorkError, match="checksum does not match"):
        list(found)


@pytest.mark.parametrize("inputs", [{}, {"augment": True}, {"augment": True, "dose_electrons_per_pattern": [50, 500]}])
def test_a_later_epoch_copies_from_the_places_that_the_first_has_found_and_checked(inputs):
    data, entries = dataset(5)
    opened = []

    class Watched(Memory):
        def view(self, sample_id, check=False):
            opened.append((sample_id, check))
            return super().view(sample_id, check)

    job, kept = experiment(batch_size=2, inputs=inputs), Kept()
    for epoch, share in enumerate([entries[:4], entries[1:], entries]):
        found = list(batches(Watched(data.encoded), share, job, epoch, kept))
        alone = list(batches(data, share, job, epoch))
        assert len(found) == len(alone) == 2
        for pair, wanted in zip(found, alone, strict=True):
            for a, b in zip(pair, wanted, strict=True):
                np.testing.assert_array_equal(a, b)
    assert sorted(opened) == [(entry.id, True) for entry in entries]


def test_epochs_are_read_into_the_same_memory():
    data, entries = dataset(6)
    job, kept = experiment(batch_size=2), Kept()

    def addresses():
        return {read_batch(data, entries[at : at + 2], job, 0, kept).patterns.ctypes.data for at in (0, 2, 4)}

    first = addresses()
    assert len(first) == 1
    assert addresses() == first


def test_mean_target_is_the_mean_density():
    data, entries = dataset(3)
    expected = np.mean([sample(seed).density.astype(np.float64) for seed in range(3)], axis=0)
    np.testing.assert_allclose(mean_target(data, [entry.id for entry in entries]), expected, rtol=1e-12)


def test_ranks_that_take_over_an_epoch_take_what_is_left_of_it():
    entries = list("abcdefghijklm")
    before = [epoch_share(entries, 3, 1, rank, 2, 6) for rank in range(2)]  # two ranks, batches of two, one step
    taken = [entry for share in before for entry in share[:2]]
    after = [epoch_share(entries, 3, 1, rank, 3, 3, len(taken)) for rank in range(3)]
    left = [entry for share in after for entry in share]
    assert len(left) == 9
    assert not set(taken) & set(left)
    assert set(taken) | set(left) == set(entries)
    again = [epoch_share(entries, 3, 1, rank, 2, 4, len(taken)) for rank in range(2)]
    assert again == [share[2:] for share in before]
