import numpy as np
import pytest
from synthetic import DETECTOR, SCAN, TARGET, Memory, dataset, experiment, sample

from namsa import Sample, records
from namsa.errors import WorkError
from train import symmetries
from train.config import Inputs
from train.data import batches, epoch_share, load_sample, mean_target, symmetries_of

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


def test_augmentation_depends_on_sample_and_epoch_alone():
    data, entries = dataset(6)
    job = experiment(inputs={"augment": True})

    def targets(share, epoch):
        return {entry.id: y.numpy() for entry, (_, y) in zip(share, batches(data, share, job, epoch), strict=True)}

    forward, backward = targets(entries, 3), targets(entries[::-1], 3)
    for sample_id, image in forward.items():
        np.testing.assert_array_equal(image, backward[sample_id])
    drawn = set()
    for epoch in range(16):
        drawn |= {image.tobytes() for image in targets(entries[:1], epoch).values()}
    assert len(drawn) == 4


def test_a_corrupt_record_ends_the_epoch_with_its_reason():
    data, entries = dataset(2)
    broken = bytearray(data.encoded[entries[1].id])
    broken[-500] ^= 1
    found = batches(Memory(data.encoded | {entries[1].id: bytes(broken)}), entries, experiment(), epoch=0)
    with pytest.raises(WorkError, match="checksum does not match"):
        list(found)


def test_mean_target_is_the_mean_density():
    data, entries = dataset(3)
    expected = np.mean([sample(seed).density.astype(np.float64) for seed in range(3)], axis=0)
    np.testing.assert_allclose(mean_target(data, [entry.id for entry in entries]), expected, rtol=1e-12)
