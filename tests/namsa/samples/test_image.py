"""Images with pixels and units."""

import copy
import pickle
import sys
import types

import numpy as np
import pytest

import namsa
from namsa.base.pixels import PixelGrid
from namsa.samples.image import Description, Image, image_or_array

PIXELS = PixelGrid((0.2, 0.4), (0.1, 0.2))


@pytest.fixture
def image():
    y, x = np.meshgrid(np.arange(6), np.arange(10), indexing="ij")
    values = (1 + np.sin(2 * np.pi * y / 6) * np.cos(2 * np.pi * x / 10)).astype(np.float32)
    return Image(values, Description("density", "e/Å²", PIXELS, periodic=True))


@pytest.fixture
def channels(image):
    stack = np.stack([image.array, -image.array], axis=-1)
    described = Description("deflection", "mrad", PIXELS, "Å", ("y", "x"), True, True)
    return Image(stack, described)


def test_an_image_is_the_array_that_it_holds(image):
    assert isinstance(image, np.ndarray)
    assert image.shape == (6, 10)
    assert image.dtype == np.float32
    assert np.shares_memory(np.asarray(image), image.array)
    assert type(np.asarray(image)) is np.ndarray
    assert image[2, 3] == image.array[2, 3]
    for derived in (image + 1, image[1:], image.T, image > 1, np.abs(image), image.transpose()):
        assert type(derived) is np.ndarray
    assert image.mean() == image.array.mean()


def test_it_knows_its_pixels_and_says_so(image):
    assert image.sampling == (0.2, 0.4)
    assert (image.units, image.value_units, image.name) == ("Å", "e/Å²", "density")
    assert repr(image) == "<Image density: 6 × 10 pixels of 0.2 × 0.4 Å, e/Å²>"


def test_copies_are_images_and_a_reshaped_one_is_refused(image):
    for same in (image.copy(), copy.deepcopy(image), pickle.loads(pickle.dumps(image))):
        assert same.sampling == image.sampling
        assert (same == image).all()
    with pytest.raises(namsa.InputError, match="has no pixels and units"):
        _ = image.reshape(60).sampling


def test_sums_in_place_stay_in_the_array(image):
    before = image.array.copy()
    kept = image
    kept += 2
    np.testing.assert_allclose(image.array, before + 2)


def test_tiles_are_periods_side_by_side(image, channels):
    tiled = image.tile((2, 3))
    assert tiled.shape == (12, 30)
    np.testing.assert_array_equal(tiled[6:, 20:], image.array)
    assert tiled.sampling == image.sampling
    assert channels.tile(2).shape == (12, 20, 2)
    alone = Image(image.array, Description("density", "e/Å²", PIXELS))
    with pytest.raises(namsa.InputError, match="does not cover one period"):
        alone.tile()
    with pytest.raises(namsa.InputError, match="whole numbers from 1"):
        image.tile(0.5)


def test_interpolation_keeps_area_and_mean(image, channels):
    finer = image.interpolate((0.1, 0.1))
    assert finer.shape == (12, 40)
    assert finer.sampling == pytest.approx((0.1, 0.1))
    before = PIXELS.extent(image.shape)
    assert finer.pixels.extent(finer.shape) == pytest.approx(before)
    assert float(finer.mean()) == pytest.approx(float(image.mean()), rel=1e-6)
    assert channels.interpolate(0.1).shape == (12, 40, 2)
    assert image.interpolate(0.4).shape == (3, 10)
    for wrong in (0, -1, (0.1, 0.1, 0.1)):
        with pytest.raises(namsa.InputError):
            image.interpolate(wrong)
    with pytest.raises(namsa.InputError, match="100 million"):
        image.interpolate(1e-5)


def test_a_saved_image_is_read_again(image, channels, tmp_path):
    image.save(tmp_path / "a.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), image.array)
    image.save(tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes()[1:4] == b"PNG"
    tifffile = pytest.importorskip("tifffile")
    channels.save(tmp_path / "a.tif")
    with tifffile.TiffFile(tmp_path / "a.tif") as file:
        np.testing.assert_array_equal(file.asarray(), np.moveaxis(channels.array, -1, 0))
        per_unit = file.pages[0].tags["XResolution"].value
        assert per_unit[1] / per_unit[0] == pytest.approx(0.4)
        assert file.imagej_metadata["unit"] == "\\u00c5"


def test_a_stack_has_a_panel_for_each_image(channels):
    figure = channels.show()
    titles = [ax.get_title("left") for ax in figure.axes]
    assert {"Deflection, y", "Deflection, x"} <= set(titles)


def test_hyperspy_gets_axes_in_the_order_of_its_signals(channels, monkeypatch):
    api = types.ModuleType("hyperspy.api")
    api.signals = types.SimpleNamespace(Signal2D=lambda data, **settings: (data, settings))
    monkeypatch.setitem(sys.modules, "hyperspy", types.ModuleType("hyperspy"))
    monkeypatch.setitem(sys.modules, "hyperspy.api", api)
    data, settings = channels.to_hyperspy()
    assert data.shape == (2, 6, 10)
    assert [axis["navigate"] for axis in settings["axes"]] == [True, False, False]
    assert settings["axes"][2]["scale"] == pytest.approx(0.4)


def test_a_list_of_values_stays_an_array():
    assert type(image_or_array(np.ones(5), PIXELS, "detector", "")) is np.ndarray
    assert type(image_or_array(np.ones((5, 5)), None, "detector", "")) is np.ndarray
