"""Records: what is stored comes back, as exactly as float16 can hold it, and damage is noticed."""

import struct
from dataclasses import replace

import numpy as np
import pytest
from fake_samples import raster_sample, sample
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from namsa import Sample, WorkError
from namsa.dataset import records
from namsa.dataset.records import decode, encode


def with_patterns(cbed: np.ndarray) -> Sample:
    return replace(sample(), cbed=cbed)


def test_a_sample_survives_the_round_trip():
    original = sample(3, formula="SrTiO₃")
    record = decode(encode(original, "float32"), check=True)
    for name in ("cbed", "density", "projected_potential"):
        np.testing.assert_array_equal(getattr(record, name), getattr(original, name))
        assert getattr(record, name).dtype == np.float32
    assert record.provenance == original.provenance
    back = record.sample()
    np.testing.assert_array_equal(back.cbed, original.cbed)
    assert back.provenance == original.provenance


shapes = st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(1, 9))
intensities = st.floats(0, 1, width=32) | st.integers(-80, 0).map(lambda exponent: 2.0**exponent)


@settings(deadline=None)  # times on a busy machine say nothing
@given(arrays.arrays(np.float32, shapes, elements=intensities), st.integers(-60, 60))
def test_float16_loses_nothing_above_2_to_the_minus_39_of_the_maximum(cbed, exponent):
    cbed = cbed * np.float32(2.0**exponent)
    record = decode(encode(with_patterns(cbed)), check=True)
    patterns = record.patterns()
    assert record.cbed.dtype == np.float16
    assert patterns.dtype == np.float32
    assert patterns.shape == cbed.shape
    peak = cbed.max()
    assert np.all(patterns[cbed > peak * 2.0**-39] > 0)
    assert np.all(np.abs(patterns - cbed) <= np.maximum(cbed * 2.0**-11, peak * 2.0**-39))


def test_the_scale_is_a_power_of_two_and_float16_cannot_overflow():
    for peak in (1e-30, 0.3, 1.0, 2.0**15 - 1, 65504.0, 1e30):
        record = decode(encode(with_patterns(np.full((1, 2, 3), peak, np.float32))))
        scale = record.header["arrays"]["cbed"]["scale"]
        assert np.log2(scale) % 1 == 0
        assert 2**14 <= peak * scale < 2**15
        np.testing.assert_allclose(record.patterns(), peak, rtol=2**-11)
    zeros = np.zeros((2, 3, 4), np.float32)
    np.testing.assert_array_equal(decode(encode(with_patterns(zeros))).patterns(), zeros)


def test_float64_is_stored_as_configured():
    exact = sample().cbed.astype(np.float64) / 3
    np.testing.assert_allclose(
        decode(encode(with_patterns(exact), "float16")).patterns(), exact, rtol=2**-11
    )
    np.testing.assert_allclose(
        decode(encode(with_patterns(exact), "float32")).patterns(), exact, rtol=2**-24
    )


def test_axes_carry_origin_sampling_and_units():
    described = decode(encode(sample())).header["arrays"]
    position, ky, kx = described["cbed"]["axes"]
    assert (position["name"], position["scan_shape"]) == ("position", [2, 3])
    assert ky == {"name": "ky", "units": "mrad", "origin": -4.0, "sampling": 2.0}
    assert kx == {"name": "kx", "units": "mrad", "origin": -4.5, "sampling": 1.5}
    y, x = described["density"]["axes"]
    assert (y["origin"], y["sampling"], x["origin"], x["sampling"]) == (1.0, 0.5, 3.0, 0.25)
    y, x = described["projected_potential"]["axes"]
    assert (y["sampling"], x["sampling"]) == (2.0, 1.8)
    assert [described[name]["units"] for name in described] == [
        "fraction of the beam",
        "e/Å²",
        "V·Å",
        "Å",
    ]


def test_decoding_copies_nothing():
    buffer = encode(sample())
    record = decode(buffer)
    for array in (
        record.cbed,
        record.density,
        record.projected_potential,
        record.positions_angstrom,
    ):
        assert np.shares_memory(array, np.frombuffer(buffer, np.uint8))
        assert array.ctypes.data % 16 == np.frombuffer(buffer, np.uint8).ctypes.data % 16
    assert not np.shares_memory(record.copy().cbed, record.cbed)


@pytest.mark.parametrize("tiles", [None, (1, 3, 1, 7)])
def test_every_changed_byte_is_noticed(tiles):
    good = encode(raster_sample((2, 3, 5, 7)), "float16", tiles)
    for place in (*range(64), *range(64, len(good), 37)):
        bad = bytearray(good)
        bad[place] ^= 1
        with pytest.raises(WorkError):
            decode(bad, check=True)


def test_a_record_cut_short_or_something_else_is_noticed_without_a_checksum():
    good = encode(sample())
    for length in (0, 5, 31, 32, 100, len(good) - 64):
        with pytest.raises(WorkError):
            decode(good[:length])
    with pytest.raises(WorkError, match="no record"):
        decode(bytes(100))


def test_a_version_in_which_one_bit_has_changed_is_damage():
    newer = encode(sample())
    struct.pack_into("<I", newer, 8, 5)
    with pytest.raises(WorkError, match="version is 5 instead of 1"):
        decode(newer)


@pytest.mark.filterwarnings("error")
def test_labels_are_optional():
    labels = 1 + np.arange(sample().density.size, dtype=np.uint8).reshape(
        sample().density.shape
    )  # none is 0
    plain = encode(sample())
    labelled = encode(replace(sample(), labels=labels))
    assert decode(plain, check=True).labels is None
    record = decode(labelled, check=True)
    for labels_read in (record.labels, record.copy().labels, record.sample().labels):
        np.testing.assert_array_equal(labels_read, labels)
    np.testing.assert_array_equal(record.density, decode(plain).density)
    assert record.header["arrays"]["labels"]["axes"] == record.header["arrays"]["density"]["axes"]


def test_the_density_by_depth_is_optional_and_goes_with_labels():
    bins = np.stack([sample(seed).density for seed in (1, 2, 3, 4)])
    labels = np.zeros(sample().density.shape, np.uint8)
    for parts in ({"density_by_depth": bins}, {"density_by_depth": bins, "labels": labels}):
        divided = encode(replace(sample(), **parts))
        record = decode(divided, check=True)
        for bins_read in (
            record.density_by_depth,
            record.copy().density_by_depth,
            record.sample().density_by_depth,
        ):
            np.testing.assert_array_equal(bins_read, bins)
        assert (record.labels is None) == ("labels" not in parts)
        depth, *plane = record.header["arrays"]["density_by_depth"]["axes"]
        assert depth == {"name": "depth", "units": "Å", "origin": 2.5, "sampling": 5.0}
        assert plane == record.header["arrays"]["density"]["axes"]
    recovered = list(records.find_records(memoryview(b"lost" + divided), (b"lost" + divided).find))
    assert [bytes(piece) for piece in recovered] == [bytes(divided)]


@pytest.mark.parametrize("name", ["cbed", "density", "projected_potential"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(name, value):
    broken = getattr(sample(), name).copy()
    broken.flat[-1] = value
    with pytest.raises(WorkError, match=f"{name} .*not finite"):
        encode(replace(sample(), **{name: broken}))
