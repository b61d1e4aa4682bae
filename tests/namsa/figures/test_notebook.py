"""A sample in a notebook: HTML that loads nothing, with the mean pattern, the density and what they are of."""

import base64
import io
import re

import fake_samples
import h5py
import matplotlib
import numpy as np
import pytest
from matplotlib.image import imread

from namsa import sample_file
from namsa.figures.interpolation import interpolated
from namsa.figures.notebook import sample_html

BEAM = {"energy_ev": 200e3, "semiangle_mrad": 4.0, "thickness_angstrom": 20.0, "grid_shape": [8, 10]}


def sample(**provenance):
    return fake_samples.sample(**(BEAM | provenance))


def pictures(text):
    for url in re.findall(r'src="data:image/png;base64,([^"]+)"', text):
        yield np.round(255 * imread(io.BytesIO(base64.b64decode(url)))[..., :3])


def test_the_html_holds_the_mean_pattern_and_the_density():
    s = sample()
    text = s._repr_html_()
    assert "://" not in text
    mean, density = pictures(text)
    assert (mean.shape, density.shape) == ((5, 7, 3), (8, 12, 3))
    average = s.cbed.mean(axis=0, dtype=np.float64)
    level = np.round(255 * (average / average.max()) ** 0.3).astype(int)
    np.testing.assert_array_equal(mean, matplotlib.colormaps["magma"](level, bytes=True)[..., :3])
    low, high = s.density.min(), s.density.max()
    level = np.round(255 * np.clip((interpolated(s.density) - low) / (high - low), 0, 1)).astype(int)
    np.testing.assert_array_equal(density, matplotlib.colormaps["viridis"](level, bytes=True)[..., :3])


def test_the_table_has_shapes_and_units():
    text = sample_html(sample(material="<Cu>"))
    arrays = ("6 × 5 × 7 float32, pixels of 2 × 1.5 mrad", "2 × 3 float32, e/Å²", "8 × 10 float32, V·Å")
    for part in ("&lt;Cu&gt;", "200 keV", "4 mrad", "20.00 Å", "2 × 3 raster", *arrays, "10 × 10.5 mrad"):
        assert part in text
    assert "6 positions" in sample_html(sample(scan_shape=None))


def test_a_density_without_pixels_is_left_out():
    assert len(list(pictures(sample_html(sample(density_sampling_angstrom=[0.0, 0.25]))))) == 1


def test_virtual_images_have_the_shape_of_the_scan():
    s = sample()
    assert s.bright_field().shape == (2, 3)
    np.testing.assert_allclose(s.bright_field() + s.annular(4.0), s.cbed.sum(axis=(1, 2)).reshape(2, 3), rtol=1e-6)
    assert s.centre_of_mass().shape == (2, 3, 2)
    loose = sample(scan_shape=None)
    assert (loose.annular(2.0, 5.0).shape, loose.centre_of_mass().shape) == ((6,), (6, 2))
    np.testing.assert_array_equal(loose.bright_field(), s.bright_field().ravel())


@pytest.mark.parametrize(("provenance", "name"), [({}, "sample"), ({"id": "Cu-001"}, "Cu-001")])
def test_a_saved_sample_is_read_again(tmp_path, provenance, name):
    s = sample(**provenance)
    s.save(tmp_path / "file.h5")
    with h5py.File(tmp_path / "file.h5") as file:
        assert list(file) == [name]
    found = sample_file.read_sample(tmp_path / "file.h5")
    np.testing.assert_array_equal(found.cbed, s.cbed)
    assert found.provenance == s.provenance


def test_a_sample_shows_its_figure(tmp_path):
    figure = sample(positions_angstrom=[[y, x] for y in range(2) for x in range(3)]).show(str(tmp_path / "sample.svg"))
    assert figure.get_suptitle() == "20.0 Å thick  ·  200 keV, semiangle 4 mrad"
    assert (tmp_path / "sample.svg").stat().st_size


def test_the_representation_is_one_short_line():
    s = sample(id="gold-001-20A")
    assert repr(s) == "<Sample gold-001-20A: 2×3 patterns of 5×7 pixels, density of 2×3 pixels>"
