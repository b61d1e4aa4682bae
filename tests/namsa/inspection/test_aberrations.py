"""Aberrations that the variation of patterns along a scan shows."""

import numpy as np
import pytest
from amorphous_scan import glass

import namsa
from namsa.base.pixels import PixelGrid
from namsa.config.instrument import Detector
from namsa.inspection.aberrations import ALIKE, TERMS, AberrationLimits, measure_aberrations
from namsa.inspection.disk_overlaps import DiskOverlaps, OverlapModel

# atoms of an amorphous film
pytestmark = [
    pytest.mark.filterwarnings("ignore:.* Å apart:namsa.SimulationWarning"),
    pytest.mark.filterwarnings("ignore:.* lie outside the cell:namsa.SimulationWarning"),
]

ENERGY_EV = 200e3
SEMIANGLE_MRAD = 20.0
PIXEL_MRAD = 2.5
SCAN = (26, 30)
STEP = (0.5, 0.4)
DETECTOR = (17, 19)
THICKNESS = 30.0
LENS = {"C10": 60.0, "C12": 50.0, "phi12": 0.5, "C21": 4000.0, "phi21": -2.0}


@pytest.fixture(scope="module")
def scattering():
    """A carbon film, larger than the scan."""
    beam = {"energy_ev": ENERGY_EV, "max_angle_mrad": SEMIANGLE_MRAD, "max_detected_mrad": 26}
    film = glass((18.0, 20.0, THICKNESS), seed=5)
    return namsa.scatter(film, **beam, grid_shape=(100, 90), slice_thickness_angstrom=3.0)


def patterns(scattering, lens, electrons=None):
    y, x = (np.arange(n) * step + 2 for n, step in zip(SCAN, STEP, strict=True))
    dose = {"electrons_per_pattern": electrons} if electrons else {}
    sample = scattering.simulate(
        semiangle_mrad=SEMIANGLE_MRAD,
        positions_angstrom=np.stack(np.meshgrid(y, x, indexing="ij"), axis=-1).reshape(-1, 2),
        scan_shape=SCAN,
        aberrations=lens,
        detector=Detector(shape=DETECTOR, pixel_mrad=PIXEL_MRAD, **dose),
    )
    return sample.cbed.reshape(*SCAN, *DETECTOR)


@pytest.fixture(scope="module")
def overlaps():
    middle = [-(n - 1) / 2 * PIXEL_MRAD for n in DETECTOR]
    detector = PixelGrid((PIXEL_MRAD, PIXEL_MRAD), tuple(middle))
    return DiskOverlaps.of(SCAN, STEP, DETECTOR, detector, ENERGY_EV, SEMIANGLE_MRAD)


def measure(overlaps, scan, **options):
    return measure_aberrations(overlaps, overlaps.transform(scan)[None], **options)


def difference(measured, truth, name, multiplicity):
    """Returns the distance of two coefficients with azimuths, as vectors."""
    vectors = [
        c[f"C{name}"] * np.exp(1j * multiplicity * c[f"phi{name}"]) for c in (measured, truth)
    ]
    return abs(vectors[0] - vectors[1])


def test_focus_astigmatism_and_coma_are_measured_with_their_directions(scattering, overlaps):
    coefficients = measure(overlaps, patterns(scattering, LENS)).coefficients
    assert coefficients["C10"] == pytest.approx(LENS["C10"] + THICKNESS / 2, abs=6)
    assert difference(coefficients, LENS, "12", 2) < 6
    assert difference(coefficients, LENS, "21", 1) < 400


def test_an_ideal_lens_has_the_focus_of_the_middle_alone(scattering, overlaps):
    measured = measure(overlaps, patterns(scattering, {}))
    assert measured.coefficients["C10"] == pytest.approx(THICKNESS / 2, abs=4)
    assert measured.coefficients["C12"] < 4
    assert measured.coefficients["C21"] < 250
    assert measured.explained > 0.7


def test_underfocus_is_negative_and_shot_noise_leaves_it(scattering, overlaps):
    scan = patterns(scattering, {"C10": -150.0}, electrons=1e5)
    measured = measure(overlaps, scan)
    assert measured.coefficients["C10"] == pytest.approx(-150 + THICKNESS / 2, abs=6)
    assert measured.explained < measure(overlaps, patterns(scattering, {"C10": -150.0})).explained


def test_known_aberrations_are_not_taken_for_others(scattering, overlaps):
    scan = patterns(scattering, {"C30": 4e5})  # 4 rad at the edge
    measured = measure(overlaps, scan, known={"C30": 4e5})
    assert measured.coefficients["C10"] == pytest.approx(THICKNESS / 2, abs=4)
    assert measured.explained > measure(overlaps, scan).explained


def test_limits_say_how_much_the_aberrations_within_explain(scattering, overlaps):
    scan = patterns(scattering, LENS)
    wide = AberrationLimits((-100, 200), 60, 4500)
    assert measure(overlaps, scan).within is None
    assert measure(overlaps, scan, limits=wide).within == pytest.approx(1, abs=1e-3)
    for narrow in (wide._replace(c10=(-100, 0)), wide._replace(c12=20), wide._replace(c21=0)):
        assert measure(overlaps, scan, limits=narrow).within < ALIKE


def test_nothing_is_said_of_patterns_that_show_nothing(overlaps):
    rng = np.random.default_rng(0)
    assert measure(overlaps, rng.poisson(20, (*SCAN, *DETECTOR))) is None
    assert measure(overlaps, np.ones((*SCAN, *DETECTOR))) is None


def test_parts_of_a_scan_add_up(scattering, overlaps):
    scans = []
    for lens in ({"C10": 60.0}, {"C10": 64.0}):
        scans.append(overlaps.transform(patterns(scattering, lens)))
    coefficients = measure_aberrations(overlaps, np.stack(scans)).coefficients
    assert coefficients["C10"] == pytest.approx(62 + THICKNESS / 2, abs=6)


@pytest.mark.parametrize(
    ("semiangle_mrad", "pixel_mrad", "step"), [(20, 5.0, 0.4), (0.1, 0.02, 60.0), (0.1, 0.02, 20.0)]
)
def test_noise_shows_no_aberrations_in_a_small_disk_or_a_parallel_beam(
    semiangle_mrad, pixel_mrad, step
):
    detector = PixelGrid((pixel_mrad, pixel_mrad), (-8 * pixel_mrad, -8 * pixel_mrad))
    beam = DiskOverlaps.of((16, 18), (step, step), (17, 17), detector, 80e3, semiangle_mrad)
    assert measure(beam, np.random.default_rng(0).poisson(100, (16, 18, 17, 17))) is None


def test_parts_that_are_not_finite_are_left_out(scattering, overlaps):
    scan = patterns(scattering, {"C10": 60.0})
    broken = scan.copy()
    broken[3, 4, 8, 9] = np.nan
    both = np.stack([overlaps.transform(broken), overlaps.transform(scan)])
    assert measure_aberrations(overlaps, both) == measure_aberrations(overlaps, both[1:])
    assert measure_aberrations(overlaps, both[:1]) is None


def test_the_derivatives_are_those_of_the_share(scattering, overlaps):
    transforms = overlaps.transform(patterns(scattering, LENS))[None]
    model = OverlapModel.of(
        overlaps, transforms, {}, TERMS, np.array([20.0, 20.0, 20.0, 1500.0, 1500.0])
    )
    at = np.array([0.8, 0.5, -0.7, 0.9, 0.3])
    steps = 0.01 * np.eye(len(TERMS))
    expected = [(model.explained(at + step) - model.explained(at - step)) / 0.02 for step in steps]
    np.testing.assert_allclose(
        model.explained_with_slopes(at)[1], expected, atol=2e-3 * np.abs(expected).max()
    )
