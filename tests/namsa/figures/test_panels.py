"""Pictures: what they measure, that every mark stands where the arrays say, and what a notebook
shows of them.
"""

import base64
import io
import re
from dataclasses import replace

import fake_samples
import h5py
import matplotlib
import numpy as np
import pytest
from matplotlib.image import imread

from namsa import Sample
from namsa.base.pixels import PixelGrid, density_grid, pattern_grid
from namsa.figures.density_figure import density_figure, map_panel
from namsa.figures.interpolation import FINER, interpolated
from namsa.figures.notebook import sample_html
from namsa.figures.page_images import PageImage, image_url
from namsa.figures.panels import image_panel, mark_probes, panels, zoom_to_scan
from namsa.figures.sample_figure import (
    caption,
    dark_field,
    drawn_density,
    example_probes,
    sample_figure,
    show,
)
from namsa.physics import density_target
from namsa.physics.grid import Grid


def sample(scan=(3, 4), detector=(16, 20), grid=(24, 40), extent=(6.0, 10.0)):
    """Patterns with 0.9 in the bright disk of 10 mrad, and 0.1·(number + 1)/n at 21 mrad along
    x.
    """
    n = scan[0] * scan[1]
    provenance = fake_samples.raster_provenance(scan, detector, extent, grid, 2.0)
    disk = pattern_grid(provenance).distance(detector) < 10
    cbed = np.where(disk, 0.9 / disk.sum(), 0) * np.ones((n, 1, 1))
    # 19 mrad along x, 1 along y
    cbed[:, detector[0] // 2, detector[1] // 2 + 10 - 1] = 0.1 * (1 + np.arange(n)) / n
    density = np.zeros(grid)
    density[6, 30] = 5.0
    return Sample(cbed, density, density * 40, provenance)


def test_dark_field_is_what_lies_beyond_the_disk_and_its_edge():
    s = sample()
    assert dark_field(s.cbed, pattern_grid(s.provenance), 10.0) == pytest.approx(
        0.1 * np.arange(1, 13) / 12
    )


def test_a_detector_that_ends_in_the_disk_has_no_dark_field_and_is_shown():
    s = sample()
    provenance = s.provenance | {"detector_origin_mrad": [-5.0, -5.0]}
    cbed = np.ones((12, 6, 6)) * np.linspace(0.02, 0.01, 12)[:, None, None]
    angles = pattern_grid(provenance)
    assert dark_field(cbed, angles, 10.0) is None
    assert example_probes(cbed, angles, 10.0, provenance["positions_angstrom"]) == (11, 6, 0)
    figure = sample_figure(replace(s, cbed=cbed, provenance=provenance))
    assert sum(bool(ax.images) for ax in figure.axes) == 3 + 1 + 3


def test_examples_are_the_strongest_the_median_and_the_weakest_dark_field_and_of_equal_ones_the_middle():  # noqa: E501
    s = sample()
    probes = example_probes(
        s.cbed, pattern_grid(s.provenance), 10.0, s.provenance["positions_angstrom"]
    )
    assert probes == (11, 6, 0)
    s = sample(scan=(5, 5))
    cbed = np.repeat(s.cbed[:1], 25, axis=0)
    assert example_probes(
        cbed, pattern_grid(s.provenance), 10.0, s.provenance["positions_angstrom"]
    ) == (12,)


def test_a_mark_stands_on_the_pixel_of_its_position():
    s = sample()
    _, ((ax, *_),) = panels(0.6)
    frame = PixelGrid(s.provenance["density_sampling_angstrom"], (0.0, 0.0))
    image_panel(ax, s.density, frame, "", "e/Å²")
    brightest = np.array([6 * 6.0 / 24, 30 * 10.0 / 40])
    mark_probes(
        ax, [brightest, brightest + np.array([6.0, -20.0])], s.provenance["extent_angstrom"]
    )
    left, right, bottom, top = ax.images[0].get_extent()
    for line in ax.lines:
        (x,), (y,) = line.get_data()
        row = int((y - top) / (bottom - top) * 24)
        column = int((x - left) / (right - left) * 40)
        assert s.density[row, column] == 5.0


def test_figure_has_a_panel_for_everything_that_is_there():
    s = sample()
    figure = sample_figure(replace(s, provenance=s.provenance | {"zone_axis": [0, 1, 1]}))
    drawn = []
    for ax in figure.axes:
        if ax.images:
            drawn.append(ax)
    assert [ax.get_title(loc="left").partition(",")[0].partition(":")[0] for ax in drawn] == [
        "Mean of 12 patterns",
        "A",
        "B",
        "C",
        "Projected potential",
        "Projected electron density",
        "Bright field < 10 mrad",
        "Annular dark field 12.5–24 mrad",
    ]
    assert [ax.texts[-1].get_text() for ax in drawn] == [f"({letter})" for letter in "abcdefgh"]
    assert "[0 1 1]" in figure.get_suptitle()
    dark = drawn[-1].images[0].get_array()
    assert dark.shape == (3, 4)
    assert dark[2, 1] == pytest.approx(0.1 * 10 / 12)


def test_patterns_that_reach_beyond_the_band_limit_have_it_as_a_dashed_circle():
    """Of 200 keV and pixels of 0.5 Å, 2/3 of the Nyquist frequency is 16.72 mrad; of 0.25 Å it is
    twice that.
    """
    for extent, limits in (
        ((6, 20), [16.72]),
        ((6, 10), []),
    ):  # the detector reaches 16 mrad along y, 20 along x
        patterns = [
            ax for ax in sample_figure(sample(extent=extent)).axes if ax.get_title(loc="left")
        ][:4]
        for ax in patterns:
            assert [c.radius for c in ax.patches if c.get_linestyle() == "--"] == pytest.approx(
                limits, abs=0.005
            )
            assert ax.get_xlabel() == ("mrad; dashed: band limit, 16.7 mrad" if limits else "mrad")
            assert (*ax.get_ylim(), *ax.get_xlim()) == (
                16,
                -16,
                -20,
                20,
            )  # circles do not widen the panel


def test_single_pattern_of_no_scan_is_shown():
    s = sample()
    p = s.provenance | {"scan_shape": None, "positions_angstrom": [[1.0, 2.0]]}
    figure = sample_figure(replace(s, cbed=s.cbed[:1], provenance=p))
    titles = []
    for ax in figure.axes:
        if ax.images:
            titles.append(ax.get_title(loc="left"))
    assert titles == ["A: y 1.00 Å, x 2.00 Å", "Projected potential", "Projected electron density"]


def test_a_density_is_drawn_with_the_networks_resolution_and_its_sum_stays():
    s = sample()
    density = drawn_density(s)
    assert density.resolution == "details of 0.8 Å"
    assert density.image.sum() == pytest.approx(s.density.sum())
    assert density.image.max() < 0.5 * s.density.max()
    limited = replace(s, provenance=s.provenance | {"density_max_q_per_angstrom": 0.8})
    assert drawn_density(limited).resolution == "details of 1.2 Å"
    np.testing.assert_array_equal(drawn_density(limited).image, s.density)


def test_a_density_that_is_stored_finer_is_drawn_with_the_same_numbers():
    s = sample()
    rows, columns = s.density.shape
    step_y, step_x = density_grid(s.provenance).step
    grid = Grid((rows, columns), (rows * step_y, columns * step_x))
    finer = density_target.on_grid(density_target.band_limited(s.density, grid, 1.6))
    known = s.provenance | {"density_max_q_per_angstrom": 1.6}
    stored = drawn_density(replace(s, density=finer, provenance=known))
    assert stored.resolution == "details of 0.8 Å"
    np.testing.assert_allclose(stored.image, drawn_density(s).image, rtol=1e-4, atol=1e-3)


def test_examples_of_a_crystal_do_not_stand_on_top_of_each_other():
    s = sample(scan=(9, 9))
    level = np.where(np.arange(81) % 3 == 0, 0.0, np.where(np.arange(81) % 3 == 1, 0.5, 1.0))
    cbed = np.repeat(s.cbed[-1:], 81, axis=0)
    cbed[:, 8, 19] = 0.1 * level
    positions = np.asarray(s.provenance["positions_angstrom"])
    probes = list(example_probes(cbed, pattern_grid(s.provenance), 10.0, positions))
    assert level[probes].tolist() == [1.0, 0.5, 0.0]
    between = np.linalg.norm(positions[probes] - positions[np.roll(probes, 1)], axis=1)
    assert between.min() >= 0.15 * np.ptp(positions, axis=0).max()


def test_maps_of_fractions_have_on_their_scale_where_bad_ends():
    pixels = PixelGrid((1, 1), (0, 0))
    image = np.linspace(0, 1, 6).reshape(2, 3)
    maps = [("density", "e/Å²"), ("trust", ""), ("familiarity", "")]
    drawn = density_figure([map_panel(name, image, pixels, unit) for name, unit in maps], "")
    labels = []
    for ax in (ax for ax in drawn.axes if ax.get_title(loc="left") in ("Trust", "Familiarity")):
        (bar,) = ax.child_axes
        labels.append([text.get_text() for text in bar.get_yticklabels()])
    assert labels == [["bad < 0.12", "good > 0.47", "1"], ["bad < 0.05", "usual 0.5", "1"]]


def test_the_caption_has_the_dose_where_it_is_known():
    known = sample().provenance
    assert "electrons" not in caption(known)
    noisy = known | {"detector": {"electrons_per_pattern": 2e4}}
    assert caption(noisy).endswith("·  2e+04 electrons per pattern")
    assert caption(known | {"detector": None}).endswith("·  no noise")


def test_show_writes_the_picture_and_leaves_settings_alone(tmp_path):
    before = dict(matplotlib.rcParams)
    figure = show(sample(), tmp_path / "sample.png")
    assert figure._repr_png_().startswith(b"\x89PNG")  # for a notebook that has not imported pyplot
    assert (tmp_path / "sample.png").read_bytes().startswith(b"\x89PNG")
    assert dict(matplotlib.rcParams) == before


# ---- Interpolation


def waves(y, x):
    """Cosines that are even about the edges of 12 × 20 pixels, with frequencies up to those of the
    pixels.
    """
    return (
        3 + np.cos(np.pi * 11 * (y + 0.5) / 12)[:, None] * np.cos(np.pi * 4 * (x + 0.5) / 20)[None,
        :]
        + 0.3 * np.cos(np.pi * 2 * (y + 0.5) / 12)[:,
        None] * np.cos(np.pi * 19 * (x + 0.5) / 20)[None, :]
    )  # fmt: skip


def finer(length):
    """Centres of the finer pixels over the same area, in pixels."""
    return (np.arange(FINER * length) + 0.5) / FINER - 0.5


def test_what_the_pixels_hold_is_exact():
    finer_image = interpolated(waves(np.arange(12), np.arange(20)))
    np.testing.assert_allclose(finer_image, waves(finer(12), finer(20)), atol=1e-12)


def test_atoms_keep_their_height_and_place_between_pixels():
    """A Gaussian of σ = 1.2 pixels whose centre is at no pixel: the largest pixel is 13 % lower
    than its peak.
    """

    def atom(y, x):
        return np.exp(-((y - 9.5)[:, None] ** 2 + (x - 12.4)[None, :] ** 2) / (2 * 1.2**2))

    coarse = atom(np.arange(18), np.arange(26))
    finer_image = interpolated(atom(np.arange(18), np.arange(26)))
    assert coarse.max() < 0.87
    np.testing.assert_allclose(finer_image, atom(finer(18), finer(26)), atol=2e-3)


def test_unknown_pixels_stay_unknown_and_change_no_others():
    image = np.full((6, 9), 2.0)
    image[2, 3:5] = np.nan
    finer_image = interpolated(image)
    assert np.isnan(finer_image[8:12, 12:20]).all()
    assert np.isnan(finer_image).sum() == 2 * FINER**2
    np.testing.assert_allclose(finer_image[~np.isnan(finer_image)], 2)
    assert np.isnan(interpolated(np.full((2, 3), np.nan))).all()


# ---- In a notebook


def pictures(text):
    for url in re.findall(r'src="data:image/png;base64,([^"]+)"', text):
        yield np.round(255 * imread(io.BytesIO(base64.b64decode(url)))[..., :3])


def test_the_html_holds_the_mean_pattern_and_the_density():
    s = fake_samples.sample()
    text = s._repr_html_()
    assert "://" not in text
    mean, density = pictures(text)
    assert (mean.shape, density.shape) == ((5, 7, 3), (8, 12, 3))
    average = s.cbed.mean(axis=0, dtype=np.float64)
    level = np.round(255 * (average / average.max()) ** 0.3).astype(int)
    np.testing.assert_array_equal(mean, matplotlib.colormaps["magma"](level, bytes=True)[..., :3])
    low = s.density.min()
    high = s.density.max()
    level = np.round(255 * np.clip((interpolated(s.density) - low) / (high - low), 0, 1)).astype(
        int
    )
    np.testing.assert_array_equal(
        density, matplotlib.colormaps["viridis"](level, bytes=True)[..., :3]
    )
    without_pixels = fake_samples.sample(density_sampling_angstrom=[0.0, 0.25])
    assert len(list(pictures(sample_html(without_pixels)))) == 1


def test_unknown_pixels_of_a_page_are_transparent():
    image = PageImage("", "", np.array([[np.nan, 1.0]]), PixelGrid((1, 1), (0, 0)))
    pixels = imread(io.BytesIO(base64.b64decode(image_url(image).partition(",")[2])))
    np.testing.assert_array_equal(pixels[0, :, 3], [0, 1])


def test_the_table_has_shapes_and_units():
    text = sample_html(fake_samples.sample(material="<Cu>"))
    arrays = (
        "6 × 5 × 7 float32, pixels of 2 × 1.5 mrad",
        "2 × 3 float32, e/Å²",
        "8 × 10 float32, V·Å",
    )
    for expected in (
        "&lt;Cu&gt;",
        "200 keV",
        "4 mrad",
        "20.00 Å",
        "2 × 3 raster",
        *arrays,
        "10 × 10.5 mrad",
    ):
        assert expected in text
    assert "6 positions" in sample_html(fake_samples.sample(scan_shape=None))


@pytest.mark.filterwarnings("ignore:the ring of .* is cut:namsa.SimulationWarning")
def test_virtual_images_have_the_shape_of_the_scan():
    s = fake_samples.sample()
    assert s.bright_field().shape == (2, 3)
    np.testing.assert_allclose(
        s.bright_field() + s.annular(4.0), s.cbed.sum(axis=(1, 2)).reshape(2, 3), rtol=1e-6
    )
    assert s.centre_of_mass().shape == (2, 3, 2)
    loose = fake_samples.sample(scan_shape=None)
    assert (loose.annular(2.0, 5.0).shape, loose.centre_of_mass().shape) == ((6,), (6, 2))
    np.testing.assert_array_equal(loose.bright_field(), s.bright_field().ravel())


@pytest.mark.parametrize(("provenance", "name"), [({}, "sample"), ({"id": "Cu-001"}, "Cu-001")])
def test_a_sample_is_saved_and_shown_by_its_name(tmp_path, provenance, name):
    s = fake_samples.sample(**provenance)
    s.save(tmp_path / "file.h5")
    with h5py.File(tmp_path / "file.h5") as file:
        assert list(file) == [name]
    assert repr(s) == f"<Sample {name}: 2×3 patterns of 5×7 pixels, density of 2×3 pixels>"


def test_a_sample_of_others_prints_nothing_that_a_terminal_would_act_on():
    text = repr(fake_samples.sample(id="\x1b[2Jmine\u202e", scan_shape=[2, "\x1b[2J"]))
    assert text.isprintable()
    assert text.startswith(r"<Sample \x1b[2Jmine\u202e: 2×\x1b[2J patterns")


@pytest.mark.filterwarnings("ignore:constrained_layout not applied:UserWarning")  # a tiny scan
def test_a_sample_shows_its_figure(tmp_path):
    figure = fake_samples.sample(
        positions_angstrom=[[y, x] for y in range(2) for x in range(3)]
    ).show(str(tmp_path / "sample.svg"))
    assert figure.get_suptitle() == "20.0 Å thick  ·  200 keV, semiangle 4 mrad"
    assert (tmp_path / "sample.svg").stat().st_size


def test_a_scan_much_smaller_than_the_cell_is_shown_with_its_surroundings():
    _, ((ax, *_), _) = panels(1.0, 1.0)
    grid = PixelGrid(step=(0.1, 0.1), origin=(0.0, 0.0))
    image_panel(ax, np.zeros((200, 160)), grid, "Potential", "V·Å")
    full_view = ax.get_xlim(), ax.get_ylim()
    zoom_to_scan(ax, np.array([(0.0, 9.0), (8.0, 9.0)]), (20.0, 16.0))
    assert (ax.get_xlim(), ax.get_ylim()) == full_view
    zoom_to_scan(ax, np.array([(0.0, 9.0), (2.0, 10.0)]), (20.0, 16.0))
    assert ax.get_xlim() == pytest.approx((6.5, 12.5))
    assert ax.get_ylim() == pytest.approx((6.0, 0.0))
    mark_probes(ax, [(0.0, 9.0), (2.0, 10.0)], (20.0, 16.0))
    for text in ax.texts:
        assert 6.5 < text.get_position()[0] < 12.5
        assert 0.0 < text.get_position()[1] < 6.0
