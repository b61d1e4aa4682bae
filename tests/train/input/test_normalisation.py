"""The network's tensors: values, layouts and symmetries."""

from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf
from synthetic import DETECTOR, SCAN, sample

from namsa.dataset import records
from train.experiment.channels import Channels, binned
from train.experiment.inputs import Inputs
from train.input.normalisation import Batch, Normalisation, normalise, normalise_graph

PIXELS = DETECTOR[0] * DETECTOR[1]


def make_record(seed=0):
    return records.decode(records.encode(sample(seed), "float32"))


def test_a_logarithm_is_that_of_the_benchmark_and_dark_pixels_are_zero():
    stored = sample(0)
    stored.cbed[0, 2, 3], stored.cbed[1, 1, 1] = 0, 1e-9
    record = records.decode(records.encode(stored, "float32"))
    x, _ = normalise(record, Inputs(normalisation="log", gain=10))
    with np.errstate(divide="ignore"):
        expected = np.clip(
            (np.maximum(-17, np.log(record.cbed.astype(np.float64))) + 17) * 10, 0, 255
        )
    np.testing.assert_allclose(x, np.moveaxis(expected, 0, -1), rtol=1e-5, atol=1e-4)
    assert x[2, 3, 0] == x[1, 1, 1] == pytest.approx(0, abs=1e-5)
    assert 50 < x.max() < 170


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
@pytest.mark.parametrize("layout", ["detector", "scan", "pattern", "volume"])
def test_each_pattern_is_standardised_by_its_own_mean_and_deviation_in_every_layout(
    layout, data_format
):
    record = make_record()
    x, _ = normalise(
        record, Inputs(layout=layout, normalisation="standardised", gain=2), data_format
    )
    cbed = record.cbed.astype(np.float64)
    expected = 2 * (cbed - cbed.mean((1, 2), keepdims=True)) / cbed.std((1, 2), keepdims=True)
    linear = np.sqrt(
        np.arange(1, 1 + cbed.size, dtype=np.float32).reshape(cbed.shape)
    )  # tells where each pixel goes
    shown = replace(sample(0), cbed=linear / linear.size)
    where, _ = normalise(
        records.decode(records.encode(shown, "float32")),
        Inputs(layout=layout, power=1, gain=1),
        data_format,
    )
    places = np.round((where / PIXELS * linear.size) ** 2).astype(int) - 1
    np.testing.assert_allclose(x, expected.ravel()[places], atol=1e-5)
    flat = records.decode(records.encode(replace(sample(0), cbed=np.full_like(record.cbed, 0.3))))
    assert not normalise(flat, Inputs(layout=layout, normalisation="standardised"), data_format)[
        0
    ].any()


@pytest.mark.parametrize("layout", ["detector", "scan"])
def test_the_root_of_what_the_authors_store_is_the_same_from_patterns_and_from_their_files(layout):
    """Their program stores standardised patterns, and takes the root of each less its least
    value.
    """
    cbed = make_record().cbed.astype(np.float64)
    stored = (cbed - cbed.mean((1, 2), keepdims=True)) / cbed.std((1, 2), keepdims=True)
    theirs = np.sqrt(stored - stored.min((1, 2), keepdims=True))
    expected = np.moveaxis(theirs, 0, -1)
    if layout == "scan":
        expected = theirs.reshape(*SCAN, -1)
    inputs = Inputs(layout=layout, normalisation="root_of_stored")
    for patterns in (cbed, stored):
        shown = replace(sample(0), cbed=patterns.astype(np.float32))
        x, _ = normalise(records.decode(records.encode(shown, "float32")), inputs)
        np.testing.assert_allclose(x, expected, atol=2e-3)  # of a root near 0, in float32
    flat = replace(sample(0), cbed=np.full_like(make_record().cbed, 0.3))
    assert not normalise(records.decode(records.encode(flat)), inputs)[0].any()


def test_pixels_of_a_volume_are_binned_and_the_columns_of_the_scan_stay_channels():
    record = make_record()
    x, _ = normalise(record, Inputs(layout="volume", power=1.0))
    inputs = Inputs(layout="volume", channels="binned", bin_pixels=4, power=1.0)
    side = Channels(binned(DETECTOR, 4), None, False, False, 20.0, (0.4, 0.4), 0.025)
    small, _ = normalise(record, inputs, channels=side)
    assert small.shape == (SCAN[0], 2, 3, SCAN[1])
    assert small[1, 1, 2, 0] == pytest.approx(x[1, 4:8, 8:12, 0].mean(), rel=1e-5)
    batch = Batch(
        *map(
            tf.constant,
            (
                record.patterns().reshape(1, *SCAN, *DETECTOR),
                np.ones((1, 1, 1, 1), "f4"),
                [[[0.0]]],
            ),
        )
    )
    for data_format in ("channels_last", "channels_first"):
        same, _ = normalise_graph(batch, Normalisation.of(inputs, data_format, "float32"), side)
        np.testing.assert_allclose(
            same[0], normalise(record, inputs, data_format, channels=side)[0], rtol=1e-5
        )


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
@pytest.mark.parametrize(
    ("layout", "coordinates"),
    [("detector", False), ("detector", True), ("scan", False), ("volume", False)],
)
@pytest.mark.parametrize(
    ("power", "gain", "stored"),
    [(0.5, 1.0, "float16"), (1.0, 2.5, "float32"), (0.3, 0.7, "float16")],
)
def test_a_batch_holds_its_samples_in_the_order_of_the_layout(
    layout, coordinates, data_format, power, gain, stored
):
    inputs = Inputs(
        layout=layout,
        power=power,
        gain=gain,
        density_scale_e_per_angstrom2=3.0,
        coordinates=coordinates,
    )
    stored_records = [records.decode(records.encode(sample(seed), stored)) for seed in (0, 1)]
    scale = np.array(
        [record.header["arrays"]["cbed"]["scale"] for record in stored_records], np.float32
    ).reshape(-1, 1, 1, 1)
    batch = Batch(
        tf.constant(np.stack([record.cbed.reshape(*SCAN, *DETECTOR) for record in stored_records])),
        tf.constant(scale),
        tf.constant(np.stack([record.density for record in stored_records])),
    )
    x, y = normalise_graph(batch, Normalisation.of(inputs, data_format, "float32"))
    assert x.dtype == y.dtype == np.float32
    is_channels_first = data_format == "channels_first"
    for index, record in enumerate(stored_records):
        expected = np.float32(gain) * (
            record.patterns().reshape(*SCAN, *DETECTOR) * PIXELS
        ) ** np.float32(power)
        if layout == "volume":
            expected = np.moveaxis(expected, 1, -1)
        else:
            if layout == "detector":
                expected = expected.reshape(6, *DETECTOR)
            else:
                expected = expected.reshape(*SCAN, PIXELS)
            expected = np.moveaxis(expected, 0, -1) if layout == "detector" else expected
        values = np.moveaxis(x[index], 0, -1) if is_channels_first else x[index].numpy()
        np.testing.assert_allclose(values[..., : expected.shape[-1]], expected, rtol=1e-6)
        assert values.shape[-1] == expected.shape[-1] + 2 * coordinates
        # TensorFlow multiplies by a constant's inverse.
        np.testing.assert_allclose(np.squeeze(y[index]), record.density / np.float32(3), rtol=3e-7)
        for batched, alone in zip(
            (x[index], y[index]), normalise(record, inputs, data_format), strict=True
        ):
            assert (alone.shape, alone.dtype) == (batched.shape, np.float32)
            np.testing.assert_allclose(batched, alone, rtol=1e-6)


def test_coordinates_are_the_last_two_channels():
    record = records.decode(records.encode(sample(0), "float32"))
    x, _ = normalise(record, Inputs(layout="detector", coordinates=True))
    height, width = DETECTOR
    np.testing.assert_array_equal(x[:, 0, -2], np.linspace(-1, 1, height, dtype=np.float32))
    np.testing.assert_array_equal(x[0, :, -1], np.linspace(-1, 1, width, dtype=np.float32))
    assert x.shape == (height, width, SCAN[0] * SCAN[1] + 2)
