"""Channels that are made of a pattern: sums, angles and units, and symmetries."""

import ase
import numpy as np
import pytest
import tensorflow as tf
from paths import CONFIGS

import namsa
from namsa import InputError
from namsa.base.pixels import PixelGrid
from namsa.config.instrument import Detector
from namsa.physics import virtual_detectors as virtual
from namsa.physics.optics import wavelength_angstrom
from train.experiment.channels import channel_count, make_refocus, refocused
from train.experiment.conditions import Conditions
from train.experiment.experiment import load
from train.input import normalisation
from train.input.normalisation import Batch, Intensities, Normalisation, normalise_graph
from train.tasks.density.scan.mirrors import ChannelMirror, mirrored_images

QUICKSTART = CONFIGS / "quickstart.yaml"
KINDS = [
    ("binned", "none"),
    ("polar", "none"),
    ("virtual", "none"),
    ("pixels", "dpc"),
    ("polar", "dpc"),
]


def job(kind, guess, scan, detector, *more):
    """The experiment with as many channels as the message says that are to be set."""
    overrides = [
        f"training.inputs.channels={kind}",
        f"training.inputs.guess={guess}",
        f"scan.shape={list(scan)}",
    ]
    overrides += [f"detector.shape={list(detector)}", *more]
    with pytest.raises(InputError, match="set it to") as raised:
        load(QUICKSTART, [*overrides, f"network.input_shape=[3, {scan[0]}, {scan[1]}]"])
    shape = str(raised.value).rsplit("set it to ", 1)[1]
    return load(QUICKSTART, [*overrides, f"network.input_shape={shape}"])


def make(kind, guess, scan, detector, *more):
    return job(kind, guess, scan, detector, "scan.step_angstrom=[0.3, 0.5]", *more).channels()


def random_patterns(scan, detector, seed=0):
    patterns = np.random.default_rng(seed).exponential(1 / np.prod(detector), (*scan, *detector))
    return patterns.astype(np.float32)


def in_a_row(patterns):
    return patterns.reshape(*patterns.shape[:2], -1)


def to_channels(patterns, channels, power, gain, kind="power"):
    one = np.ones((1, 1, 1, 1), np.float32)
    return normalisation.to_channels(patterns[None], one, channels, Intensities(kind, power, gain))[
        0
    ].numpy()


@pytest.mark.parametrize(("kind", "guess"), KINDS)
def test_a_constant_pattern_is_one_in_every_mean(kind, guess):
    channels = make(kind, guess, (6, 8), (16, 12))
    flat = to_channels(
        np.full((6, 8, 16 * 12), 1 / (16 * 12), np.float32), channels, power=0.37, gain=2.5
    )
    assert flat.shape == (6, 8, channel_count(channels, 16 * 12))
    moments = 2 * channels.deflection + channels.phase
    np.testing.assert_allclose(flat[..., : flat.shape[-1] - moments], 2.5, rtol=1e-5)
    np.testing.assert_allclose(flat[..., flat.shape[-1] - moments :], 0, atol=1e-4)


@pytest.mark.parametrize("shape", [(16, 12), (15, 17)])
def test_every_pixel_lies_in_one_sector_and_one_ring(shape):
    for kind in ("polar", "virtual"):
        channels = make(kind, "none", (2, 4), shape)
        assert ((channels.averages > 0).sum(axis=1) == 1).all()
        np.testing.assert_allclose(channels.averages.sum(axis=0), 1, rtol=1e-5)


def test_rings_follow_the_semiangle_not_the_pixels():
    inner = make("virtual", "none", (2, 4), (16, 16)).averages[:, 0] > 0
    larger = make(
        "virtual", "none", (2, 4), (16, 16), "detector.pixel_mrad=5", "microscope.semiangle_mrad=25"
    )
    np.testing.assert_array_equal(larger.averages[:, 0] > 0, inner)
    angle = 4 * np.hypot(*np.meshgrid(np.arange(16) - 7.5, np.arange(16) - 7.5)).ravel()
    np.testing.assert_array_equal(inner, angle < 10)


def test_deflection_and_phase_are_namsa_virtuals_in_their_units():
    scan = (6, 8)
    detector = (16, 12)
    channels = make("virtual", "dpc", scan, detector)
    patterns = random_patterns(scan, detector)
    computed = to_channels(in_a_row(patterns), channels, 0.5, 1.0)
    angles = PixelGrid((4, 4), (-30, -22))
    deflection = virtual.centre_of_mass(patterns.reshape(-1, *detector), angles).reshape(*scan, 2)
    np.testing.assert_allclose(computed[..., -3:-1], deflection / 2, rtol=1e-4, atol=1e-5)
    phase = virtual.integrated_centre_of_mass(
        deflection, (0.3, 0.5), wavelength_angstrom(200e3), periodic=False
    )
    np.testing.assert_allclose(computed[..., -1], 10 * phase, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("kind", "guess"), KINDS)
@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_averages_of_a_batch_are_products_with_the_patterns(kind, guess, data_format):
    scan = (6, 8)
    detector = (16, 12)
    channels = make(kind, guess, scan, detector)
    patterns = np.stack([random_patterns(scan, detector, seed) for seed in (0, 1)])
    patterns[1, 2, 3] = 0  # no electron at all
    stored = (1000 * patterns).astype(np.float16)
    density = np.ones((2, *scan), np.float32)
    scale = np.full((2, 1, 1, 1), 1000, np.float32)
    settings = Normalisation(Intensities("power", 0.5, 1.5), 1.0, "scan", data_format, "float32")
    x, y = normalise_graph(Batch(*map(tf.constant, (stored, scale, density))), settings, channels)
    for index in range(2):
        fractions = in_a_row(stored[index].astype(np.float32) / 1000)
        averages = fractions if channels.averages is None else fractions @ channels.averages
        if data_format == "channels_first":
            values = np.moveaxis(x[index], 0, -1)
        else:
            values = x[index].numpy()
        count = averages.shape[-1]
        np.testing.assert_allclose(
            values[..., :count], 1.5 * np.sqrt(192 * averages), rtol=2e-4, atol=1e-4
        )
        np.testing.assert_allclose(
            values, to_channels(fractions, channels, 0.5, 1.5), rtol=2e-4, atol=1e-4
        )
        assert np.isfinite(values).all()
    assert y.shape == ((2, 1, *scan) if data_format == "channels_first" else (2, *scan, 1))


@pytest.mark.parametrize(("kind", "guess"), KINDS)
@pytest.mark.parametrize("detector", [(16, 16), (15, 15)])
@pytest.mark.parametrize("symmetry", range(8))
def test_a_symmetry_exchanges_channels(kind, guess, detector, symmetry):
    """The channels of the mirrored patterns are those of the patterns, mirrored, in another
    order.
    """
    scan = (8, 8)
    pixels = ["training.inputs.bin_pixels=1"] if kind == "binned" else []
    channels = job(kind, guess, scan, detector, *pixels).channels()
    patterns = random_patterns(scan, detector)[None]
    detector_first = mirrored_images(patterns, symmetry).transpose(0, 3, 4, 1, 2)
    mirrored = mirrored_images(detector_first, symmetry).transpose(0, 3, 4, 1, 2)

    def computed(stack):
        rows = np.ascontiguousarray(stack).reshape(1, *scan, -1)
        return to_channels(rows[0], channels, 1.0, 1.0)[None]

    straight = computed(patterns)
    mirror = ChannelMirror.of(symmetry, channels, detector)
    assert sorted(mirror.order) == list(range(straight.shape[-1]))
    exchanged = mirror.inputs(straight, -1)
    np.testing.assert_allclose(exchanged, computed(mirrored), rtol=1e-5, atol=1e-4)


def test_channels_of_a_logarithm_and_of_standardised_patterns_are_those_of_averages():
    channels = job("binned", "none", (6, 8), (16, 12)).channels()
    rng = np.random.default_rng(5)
    patterns = rng.exponential(1 / 192, (6, 8, 16, 12)).astype(np.float32)
    means = patterns.reshape(6, 8, 8, 2, 6, 2).mean((3, 5)).reshape(6, 8, -1)
    logarithm = to_channels(in_a_row(patterns), channels, 0.5, 10, "log")
    np.testing.assert_allclose(logarithm, 10 * (17 + np.log(means)), rtol=1e-5)
    standard = to_channels(in_a_row(patterns), channels, 0.5, 1, "standardised")
    mean, deviation = (of(patterns, axis=(2, 3))[..., None] for of in (np.mean, np.std))
    np.testing.assert_allclose(standard, (means - mean) / deviation, atol=1e-5)
    root = to_channels(in_a_row(patterns), channels, 0.5, 3, "root_of_stored")
    least = patterns.min((2, 3))[..., None]
    np.testing.assert_allclose(root, 3 * np.sqrt((means - least) / deviation), atol=1e-5)


# ---- Refocused scan images, by simulation
# ----------------------------------------------------------------------------

STEP = (0.5, 0.4)
SCAN = (20, 24)
PIXEL = 5.0
SHAPE = (14, 12)
DEPTHS = (0.0, 20.0, 40.0, 60.0, 80.0)


def trained() -> Conditions:
    edge = (-SHAPE[0] / 2, -SHAPE[1] / 2)
    return Conditions(200e3, 30.0, SCAN, STEP, SHAPE, (PIXEL, PIXEL), edge, symmetric=True)


def contrast(depth: float, **aberrations: float) -> np.ndarray:
    """Contrast of the bright-field image of one atom at a depth, refocused to each plane."""
    atom = ase.Atoms("Au", positions=[[7.0, 8.0, depth]], cell=[14.0, 16.0, 84.0], pbc=True)
    y, x = (3.0 + np.arange(n) * step for n, step in zip(SCAN, STEP, strict=True))
    sample = namsa.simulate(
        atom,
        energy_ev=200e3,
        semiangle_mrad=30.0,
        grid_shape=(96, 84),
        positions_angstrom=np.stack(np.meshgrid(y, x, indexing="ij"), -1).reshape(-1, 2),
        slice_thickness_angstrom=4.0,
        aberrations=aberrations,
        detector=Detector(shape=SHAPE, pixel_mrad=PIXEL),
    )
    ky, kx = (PIXEL * (np.arange(n) - (n - 1) / 2) for n in SHAPE)
    disk = np.hypot(*np.meshgrid(ky, kx, indexing="ij")) < 27
    images = sample.cbed.reshape(*SCAN, -1).transpose(2, 0, 1)[None, :, None]
    focus = -aberrations.get("C10", 0.0)
    volume = refocused(images, make_refocus(None, trained(), DEPTHS, focus))[0, disk.ravel()]
    return volume.sum(axis=0)[:, 4:-4, 4:-4].std(axis=(1, 2))


@pytest.mark.parametrize(("depth", "aberrations"), [(20.0, {}), (60.0, {}), (60.0, {"C10": -80.0})])
def test_an_atom_is_sharpest_on_the_plane_of_its_depth(depth, aberrations):
    values = contrast(depth, **aberrations)
    assert DEPTHS[int(np.argmax(values))] == depth


def test_the_plane_of_focus_is_the_image_itself_and_channels_move_by_their_mean_angle():
    rng = np.random.default_rng(0)
    images = rng.random((2, 168, 1, *SCAN))
    planes = refocused(images, make_refocus(None, trained(), (50.0, 70.0), 50.0))
    assert planes.shape == (2, 168, 2, *SCAN)
    np.testing.assert_allclose(planes[:, :, 0], images[:, :, 0])
    # Pixel (0, 0) has angles (−32.5, −27.5) mrad: over 20 Å it moves by −0.65 and −0.55 Å, so 1.3
    # and 1.375 steps.
    plane = planes[0, 0, 1]
    rows = 0.7 * images[0, 0, 0, 1:-2] + 0.3 * images[0, 0, 0, 2:-1]
    expected = 0.625 * rows[:, 1:-2] + 0.375 * rows[:, 2:-1]
    np.testing.assert_allclose(plane[:-3, :-3], expected, rtol=1e-5)
    averages = np.zeros((168, 1), np.float32)
    # angles −27.5 and −22.5 along x: −25 mrad, 0.5 Å, 1.25 steps over 20 Å
    averages[[0, 1], 0] = 0.5
    joint = refocused(images[:, :1], make_refocus(averages, trained(), (70.0,), 50.0))[0, 0, 0]
    expected = 0.75 * rows[:, 1:-2] + 0.25 * rows[:, 2:-1]
    np.testing.assert_allclose(joint[:-3, :-3], expected, rtol=1e-5)
