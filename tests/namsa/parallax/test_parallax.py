"""The bright-field image of a defocused scan on fine pixels, of simulated thin specimens."""

import json

import ase
import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

import namsa
from namsa.cli.parser import main
from namsa.config.instrument import Detector
from namsa.inspection.orientation import frame_matrix
from namsa.io.calibration_file import CalibratedQuantity, CalibrationFile
from namsa.parallax.accumulation import FineImage, has_gaps
from namsa.parallax.rays import shifts_angstrom

# atoms of a film
pytestmark = pytest.mark.filterwarnings("ignore:.* Å apart:namsa.SimulationWarning")

SIDE = 24.0  # of the film, Å
POSITIONS = 12
STEP = 1.6
FIRST = 2.0  # first position, Å
PIXEL = 2.0
PIXELS = 25
STATED = {
    "energy_ev": 200e3,
    "semiangle_mrad": 20.0,
    "scan_step_angstrom": STEP,
    "pixel_mrad": PIXEL,
    "centre_pixels": ((PIXELS - 1) / 2,) * 2,
    "rotation_deg": 0.0,
}
KNOWN = CalibrationFile({})


def film():
    rng = np.random.default_rng(3)
    places = rng.random((30, 3)) * (SIDE, SIDE, 2.0)
    return ase.Atoms("C30", places, cell=(SIDE, SIDE, 2.0), pbc=True)


def simulated(c10, step=STEP, positions=POSITIONS):
    return namsa.simulate(
        film(),
        energy_ev=STATED["energy_ev"],
        semiangle_mrad=STATED["semiangle_mrad"],
        aberrations={"C10": c10, "C12": 60.0, "phi12": 0.5},
        scan=namsa.Scan(
            shape=(positions, positions), step_angstrom=(step, step), origin_angstrom=(FIRST, FIRST)
        ),
        detector=Detector(shape=(PIXELS, PIXELS), pixel_mrad=PIXEL),
        grid_shape=(96, 96),
        slice_thickness_angstrom=2.0,
    )


def lens(c10):
    # the image is that of the specimen's middle
    return {"C10": c10 + 1.0, "C12": 60.0, "phi12": 0.5}


@pytest.fixture(scope="module")
def underfocused():
    return simulated(-300.0)


@pytest.fixture(scope="module")
def overfocused():
    return simulated(300.0)


def patterns(sample):
    return sample.cbed.reshape(POSITIONS, POSITIONS, PIXELS, PIXELS)


def potential_at(sample, image, blur_angstrom=0.6):
    """The potential at the pixels of an image."""
    potential = sample.projected_potential
    sampling = np.array(potential.sampling)
    smooth = ndimage.gaussian_filter(potential.array, blur_angstrom / sampling, mode="wrap")
    y, x = image.pixels.coordinates(image.shape)
    places = np.meshgrid((y + FIRST) / sampling[0], (x + FIRST) / sampling[1], indexing="ij")
    return ndimage.map_coordinates(smooth, places, order=1, mode="grid-wrap")


def correlation(first, second):
    return np.corrcoef(np.ravel(first), np.ravel(second))[0, 1]


@pytest.mark.parametrize("upsampling", [1, 2, 3])
def test_the_image_shows_the_potential_for_both_signs_of_the_focus(
    underfocused, overfocused, upsampling
):
    for sample, c10, sign in ((underfocused, -300.0, -1), (overfocused, 300.0, 1)):
        image = namsa.parallax_image(
            patterns(sample),
            upsampling=upsampling,
            calibration=KNOWN,
            aberrations=lens(c10),
            **STATED,
        )
        truth = potential_at(sample, image.phase_flipped)
        assert image.phase_flipped.shape == (upsampling * (POSITIONS - 1) + 1,) * 2
        assert correlation(image.phase_flipped, truth) > 0.65
        # Without the reversals undone, atoms are dark under and bright over focus. Below the scan's
        # highest frequency there is no reversal.
        plain = sign * correlation(image.bright_field, truth)
        assert plain > 0.3
        if upsampling > 1:
            assert plain < correlation(image.phase_flipped, truth)


def band(image, sampling, low):
    """An image above a frequency, 1/Å."""
    ky = np.fft.fftfreq(image.shape[0], sampling)[:, None]
    kx = np.fft.fftfreq(image.shape[1], sampling)
    kept = np.hypot(ky, kx) > low
    window = np.outer(np.hanning(image.shape[0]), np.hanning(image.shape[1]))
    return np.fft.ifft2(np.fft.fft2((image - image.mean()) * window) * kept).real


def test_it_holds_frequencies_that_the_scan_does_not_sample(underfocused):
    image = namsa.parallax_image(
        patterns(underfocused),
        upsampling=3,
        calibration=KNOWN,
        aberrations=lens(-300.0),
        **STATED,
    )
    truth = potential_at(underfocused, image.phase_flipped)
    nyquist = 1 / (2 * STEP)
    beyond = []
    for phase in (image.phase_flipped, truth):
        beyond.append(band(np.asarray(phase), STEP / 3, 1.2 * nyquist))
    assert correlation(*beyond) > 0.45
    # The same of an image without shifts, interpolated: nothing is in common.
    total = patterns(underfocused).sum(axis=(2, 3))
    flat = ndimage.zoom(total, np.array(truth.shape) / total.shape, order=3)
    assert abs(correlation(band(flat, STEP / 3, 1.2 * nyquist), beyond[1])) < 0.3


@pytest.mark.parametrize(("rotation", "flip"), [(30.0, False), (-110.0, True)])
def test_a_turned_and_mirrored_detector_gives_the_same_image(underfocused, rotation, flip):
    plain = namsa.parallax_image(
        patterns(underfocused), calibration=KNOWN, aberrations=lens(-300.0), **STATED
    )
    matrix = frame_matrix(rotation, flip)
    centre = (PIXELS - 1) / 2
    turned = np.stack(
        [
            ndimage.affine_transform(p, matrix, centre - matrix @ [centre, centre], order=1)
            for p in patterns(underfocused).reshape(-1, PIXELS, PIXELS)
        ]
    ).reshape(patterns(underfocused).shape)
    stated = STATED | {"rotation_deg": rotation, "flip": flip}
    same = namsa.parallax_image(turned, calibration=KNOWN, aberrations=lens(-300.0), **stated)
    assert correlation(same.phase_flipped, plain.phase_flipped) > 0.97
    wrong = namsa.parallax_image(
        turned, calibration=KNOWN, aberrations=lens(-300.0), **stated | {"rotation_deg": 0.0}
    )
    assert correlation(wrong.phase_flipped, plain.phase_flipped) < 0.6


def test_lost_patterns_leave_no_dark_places(underfocused):
    lost = patterns(underfocused).copy()
    lost[5, 6] = 0
    image = namsa.parallax_image(lost, calibration=KNOWN, aberrations=lens(-300.0), **STATED)
    undamaged = namsa.parallax_image(
        patterns(underfocused), calibration=KNOWN, aberrations=lens(-300.0), **STATED
    )
    assert "1 patterns without counts are left out" in image.notes
    assert np.abs(image.bright_field - undamaged.bright_field).max() < 0.1


def test_the_rays_of_each_aberration_are_its_slopes():
    angles = np.array([[0.01, 0.02], [-0.015, 0.005]])
    y, x = angles.T
    defocus = shifts_angstrom(angles, 0.025, {"C10": -100.0})
    assert defocus == pytest.approx(-100 * angles, abs=1e-6)
    spherical = shifts_angstrom(angles, 0.025, {"C30": 1e7})
    assert spherical == pytest.approx(1e7 * (y**2 + x**2)[:, None] * angles, rel=1e-6)
    along_x = shifts_angstrom(angles, 0.025, {"C12": 50.0, "phi12": 0.0})
    assert along_x == pytest.approx(np.stack([-50 * y, 50 * x], axis=1), abs=1e-6)


def test_intensity_is_divided_among_four_pixels_and_kept_but_for_the_edges():
    fine = FineImage((4, 5), 2)
    image = np.zeros((4, 5))
    image[1, 2] = 8.0
    fine.add(image, (0, 0), np.array([0.25, -0.125]))
    assert fine.values.shape == (7, 9)
    assert fine.values[2:4, 3:5].tolist() == [[1, 3], [1, 3]]
    assert fine.values.sum() == 8
    fine.add(image, (0, 0), np.array([100.0, 0.0]))  # beyond the image
    assert fine.values.sum() == 8


def test_an_upsampling_that_the_rays_do_not_fill_is_refused_with_one_that_they_fill(underfocused):
    in_focus = {"calibration": KNOWN, "aberrations": {"C10": 0.0}}
    with pytest.raises(namsa.InputError, match="leaves fine pixels empty: give at most 1"):
        namsa.parallax_image(patterns(underfocused), upsampling=2, **in_focus, **STATED)
    assert not has_gaps(np.zeros((9, 2)), 1)
    whole_steps = np.stack(np.meshgrid(np.arange(5.0), np.arange(5.0)), -1).reshape(-1, 2)
    assert has_gaps(whole_steps, 2)
    assert not has_gaps(whole_steps / 4, 4)


def test_the_command_inspects_the_scan_and_writes_both_images_with_their_pixels(
    underfocused, tmp_path, capsys
):
    counts = np.random.default_rng(0).poisson(patterns(underfocused) * 1e6)
    np.save(tmp_path / "scan.npy", counts.astype(np.uint16))
    words = f"--energy-ev 200e3 --pixel-mrad {PIXEL} --scan-step-angstrom {STEP} --rotation-deg 0"
    out = tmp_path / "image.tif"
    command = ["parallax", str(tmp_path / "scan.npy"), "--out", str(out), *words.split()]
    assert main([*command, "--upsampling", "3", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert facts["aberrations"]["C10"] == pytest.approx(-300, rel=0.1)
    assert facts["pixel_angstrom"] == pytest.approx([STEP / 3, STEP / 3])
    with Image.open(out) as pages:
        assert pages.n_frames == 2
        assert pages.size == (3 * (POSITIONS - 1) + 1,) * 2
    assert main([*command, "--upsampling", "40"]) == 2
    assert "upsampling is 40" in capsys.readouterr().err


def test_a_calibration_without_a_focus_is_refused(underfocused):
    centre = CalibratedQuantity((12.0, 12.0), None, "given")
    file = CalibrationFile({"centre_pixels": centre})
    with pytest.raises(namsa.InputError, match="no defocus"):
        namsa.parallax_image(patterns(underfocused), calibration=file, **STATED)
