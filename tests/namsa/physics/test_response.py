"""Plasmons, modulation transfer, counting losses and saturation: sums, analytic limits, nothing by
default.
"""

import ase
import ase.build
import numpy as np
import pytest
from scipy import integrate

import namsa
from namsa.base.errors import InputError, SimulationWarning
from namsa.config.simulation import SimulationConfig
from namsa.physics import response as plasmon_scattering
from namsa.physics.response import counted, pattern_filter, read_mtf

ENERGY = 200e3
PIXEL = (1.5, 2.0)
SILICON = namsa.Plasmons(mean_free_path_angstrom=1400, energy_loss_ev=16.7, critical_angle_mrad=12)


def point(shape=(41, 33)):
    """One pattern whose intensity is all in the pixel of the centre."""
    pattern = np.zeros((1, *shape))
    pattern[0, shape[0] // 2, shape[1] // 2] = 1
    return pattern


def blurred(pattern, thickness, plasmons=SILICON, response=None):
    values = pattern.copy()
    blurring = pattern_filter(pattern.shape[1:], PIXEL, ENERGY, thickness, plasmons, response)
    if blurring:
        blurring.apply(values)
    return values


def test_the_characteristic_angle_is_egertons():
    """θ_E = ΔE/(γmv²), and γmv² = 343.7 keV at 200 kV (2T = 173 keV × γ²(1 + 1/γ)/..., Egerton,
    appendix).
    """
    kinetic = 200e3
    rest = 510998.95
    gamma = 1 + kinetic / rest
    gamma_m_v2 = rest * (gamma**2 - 1) / gamma
    assert plasmon_scattering.characteristic_angle(kinetic, 16.7) == pytest.approx(
        16.7 / gamma_m_v2, rel=1e-6
    )
    assert plasmon_scattering.characteristic_angle(kinetic, 16.7) == pytest.approx(
        4.86e-5, rel=1e-3
    )


def test_thickness_0_changes_nothing():
    assert pattern_filter((8, 9), PIXEL, ENERGY, 0.0, SILICON, None) is None
    np.testing.assert_allclose(blurred(point(), 1e-9), point(), atol=1e-9)


def test_one_plasmon_scatters_by_the_lorentzian():
    """A thin specimen: each pixel has t/λ times the integral of the Lorentzian over it, and the
    rest is unscattered.
    """
    thin = 1.4  # Å; t/λ = 1e-3
    image = blurred(point(), thin)[0]
    inner = plasmon_scattering.characteristic_angle(ENERGY, 16.7)
    outer = 12e-3
    density = 1 / (np.pi * np.log1p((outer / inner) ** 2))
    for dy, dx in ((1, 0), (0, 1), (2, -1), (-3, 2)):
        y, x = (
            (n + np.array([-0.5, 0.5])) * size * 1e-3
            for n, size in zip((dy, dx), PIXEL, strict=True)
        )
        share, _ = integrate.dblquad(lambda b, a: density / (a**2 + b**2 + inner**2), *y, *x)
        assert image[20 + dy, 16 + dx] == pytest.approx(1e-3 * share, rel=2e-3)
    y, x = np.indices(image.shape) - np.array([20, 16])[:, None, None]
    beyond = np.hypot((np.abs(y) - 0.5) * PIXEL[0], (np.abs(x) - 0.5) * PIXEL[1]) > 14
    assert np.abs(image[beyond]).max() < 1e-8  # no plasmon beyond the critical angle


@pytest.mark.parametrize("thickness", [200, 1400, 4000])
def test_the_sum_is_conserved_and_the_unscattered_part_falls_as_poissons(thickness):
    image = blurred(point((161, 141)), thickness)
    assert image.sum() == pytest.approx(1, abs=2e-3 if thickness > 2000 else 1e-5)
    single = plasmon_scattering.single_scattering(SILICON, ENERGY, PIXEL, (80, 70))
    assert single.sum() == pytest.approx(1)
    orders = thickness / SILICON.mean_free_path_angstrom
    expected = np.zeros_like(single)
    expected[80, 70] = 1
    power = expected.copy()
    total = np.exp(-orders) * expected
    from scipy.signal import fftconvolve

    for order in range(1, 16):
        power = fftconvolve(power, single, mode="same")
        total += np.exp(-orders) * orders**order / np.prod(np.arange(1.0, order + 1)) * power
    np.testing.assert_allclose(image[0], total, atol=2e-6)


def test_what_leaves_the_detector_is_lost_and_nothing_comes_in_from_the_other_side():
    pattern = np.zeros((1, 20, 24))
    pattern[0, 0, 12] = 1
    image = blurred(pattern, 1400)[0]
    assert 0.5 < image.sum() < 0.99
    assert image[-1].max() < 1e-7


def test_the_critical_angle_is_that_of_the_bethe_ridge_by_default():
    by_default = SILICON.model_copy(update={"critical_angle_mrad": None})
    assert plasmon_scattering.critical_angle(by_default, ENERGY) == pytest.approx(
        np.sqrt(2 * 4.86e-5), rel=1e-3
    )


def mtf_of(tmp_path, values, name="mtf.csv"):
    path = tmp_path / name
    path.write_text("# cycles per pixel, MTF\n" + "\n".join(f"{f}, {m}" for f, m in values) + "\n")
    return path


def test_a_measured_modulation_transfer_is_what_pixels_pass_to_each_other(tmp_path):
    """sinc · exp(−2π²σ²f²): an electron anywhere in a pixel is displaced by a Gaussian, and counted
    where it lands.
    """
    frequency = np.linspace(0, 1, 101)
    sigma = 0.6
    gauss = np.exp(-2 * (np.pi * sigma * frequency) ** 2)
    path = mtf_of(tmp_path, zip(frequency, np.sinc(frequency) * gauss, strict=True))
    image = blurred(point(), 0.0, None, namsa.Response(mtf_file=path))[0]
    assert image.sum() == pytest.approx(1, abs=1e-4)

    def passed(
        n,
    ):  # the overlap of two pixels n apart as a function of the displacement is a triangle
        normal = lambda u: np.exp(-((n - u) ** 2) / (2 * sigma**2)) / np.sqrt(2 * np.pi) / sigma  # noqa: E731
        return integrate.quad(lambda u: (1 - abs(u)) * normal(u), -1, 1, points=[0])[0]

    for dy, dx in ((0, 0), (1, 0), (0, 2), (1, 1), (-2, 1)):
        assert image[20 + dy, 16 + dx] == pytest.approx(passed(dy) * passed(dx), abs=5e-4)


def test_an_ideal_modulation_transfer_changes_nothing(tmp_path):
    frequency = np.linspace(0, 0.75, 301)
    response = namsa.Response(
        mtf_file=mtf_of(tmp_path, zip(frequency, np.sinc(frequency), strict=True))
    )
    np.testing.assert_allclose(blurred(point(), 0.0, None, response), point(), atol=1e-12)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([(0, 1), (0.3, 0.5)], "increase from 0 to 0.5"),
        ([(0, 0.8), (0.5, 0.5)], "must be 1 at 0"),
        ([(0, 1), (0.6, 0.5), (0.5, 0.4)], "increase from 0"),
        ([(0, 1), (0.5, "nan")], "finite numbers"),
        ([(0, 1), (0.5, 7)], "within 0 to 1.5"),
        ([("zero", 1), (0.5, 7)], "no table of two columns"),
    ],
)
def test_files_that_are_no_modulation_transfer_are_refused(tmp_path, values, message):
    with pytest.raises(InputError, match=message):
        read_mtf(mtf_of(tmp_path, values))


def test_losses_are_those_of_the_dead_time():
    """10⁶ electrons in 100 µs on a pixel with 50 ns: nτ/T = 500, or 5e-4 for one electron in 100
    µs.
    """
    response = namsa.Response(dead_time_ns=50, dwell_time_us=100)
    patterns = np.array([1.0, 1e-3, 1e-6])
    np.testing.assert_allclose(
        counted(patterns, 1e6, response) * 1e6, [2000 / (1 + 1 / 500), 1e3 / 1.5, 1 / 1.0005]
    )
    extended = response.model_copy(update={"dead_time_model": "paralyzable"})
    np.testing.assert_allclose(
        counted(patterns, 1e6, extended)[1:] * 1e6, [1e3 * np.exp(-0.5), np.exp(-5e-4)]
    )
    assert counted(patterns, 1e6, namsa.Response()) is patterns


def silicon():
    return ase.build.bulk("Si", cubic=True) * (2, 2, 4)


def sample(detector=None, **changes):
    arguments = {
        "energy_ev": ENERGY,
        "semiangle_mrad": 15,
        "grid_shape": (60, 60),
        "positions_angstrom": [[1.0, 2.0]],
    }
    camera = {"shape": (24, 20), "pixel_mrad": 2.4} | (detector or {})
    return namsa.simulate(silicon(), **arguments | {"detector": namsa.Detector(**camera)} | changes)


def test_plasmons_of_a_simulation_broaden_the_disk_and_are_in_the_provenance():
    elastic = sample()
    inelastic = sample(plasmons=SILICON.model_copy(update={"mean_free_path_angstrom": 20.0}))
    assert inelastic.cbed.sum() == pytest.approx(elastic.cbed.sum(), abs=0.01)
    assert inelastic.bright_field()[0] < 0.95 * elastic.bright_field()[0]
    assert inelastic.provenance["plasmons"]["energy_loss_ev"] == 16.7
    assert "plasmons" not in elastic.provenance
    assert "response" not in elastic.provenance["detector"]
    np.testing.assert_array_equal(inelastic.density, elastic.density)


def test_a_scattering_has_the_plasmons_of_each_depth():
    plasmons = SILICON.model_copy(update={"mean_free_path_angstrom": 30.0})
    shared = {"energy_ev": ENERGY, "grid_shape": (60, 60)}
    lens = {
        "semiangle_mrad": 15,
        "positions_angstrom": [[1.0, 2.0]],
        "detector": namsa.Detector(pixel_mrad=2.4),
    }
    scattering = namsa.scatter(
        silicon(), max_angle_mrad=16, thicknesses_angstrom=[6, 21.72], **shared
    )
    simulated = namsa.simulate(silicon(), plasmons=plasmons, **shared, **lens)
    np.testing.assert_allclose(
        scattering.simulate(-1, plasmons=plasmons, **lens).cbed, simulated.cbed, atol=1e-7
    )
    thin, thin_elastic = (scattering.simulate(0, plasmons=p, **lens).cbed for p in (plasmons, None))
    thick, thick_elastic = (
        scattering.simulate(1, plasmons=p, **lens).cbed for p in (plasmons, None)
    )
    assert np.abs(thin - thin_elastic).max() < 0.6 * np.abs(thick - thick_elastic).max()


def test_a_detector_saturates_and_says_what_it_does_not_know():
    with pytest.warns(
        SimulationWarning, match="preset medipix3-12bit: mtf_file, dead_time_ns are not known here"
    ):
        bright = sample({"electrons_per_pattern": 1e6, "response": {"preset": "medipix3-12bit"}})
    assert bright.cbed.max() * 1e6 == pytest.approx(4095)
    with pytest.warns(
        SimulationWarning,
        match="preset arina: mtf_file, dead_time_ns, saturation_counts are not known",
    ):
        sample({"electrons_per_pattern": 1e6, "response": {"preset": "arina"}})
    with pytest.warns(
        SimulationWarning,
        match=r"preset empad: its saturation of 1e\+06 electrons is left out.*no dose.*; mtf_file",
    ):
        sample({"response": {"preset": "empad"}})
    with pytest.raises(InputError, match="dead_time_ns or saturation_counts, which need electrons"):
        sample({"response": {"dead_time_ns": 100, "dwell_time_us": 10}})
    lossy = sample(
        {
            "electrons_per_pattern": 1e6,
            "response": {"dead_time_ns": 10, "dwell_time_us": 100, "saturation_counts": 1e9},
        }
    )
    assert 0.3 < lossy.cbed.sum() < 0.8 * sample().cbed.sum()


def test_a_configuration_has_plasmons_and_a_response_and_its_hash_depends_on_the_file(tmp_path):
    path = mtf_of(tmp_path, [(0, 1), (0.5, 0.5)])
    tree = {"simulation": {"sampling_angstrom": 0.2}, "detector": {"pixel_mrad": 2}}
    plain = SimulationConfig.model_validate(tree)
    with_mtf = tree | {"detector": {"pixel_mrad": 2, "response": {"mtf_file": str(path)}}}
    hashes = [plain.samples_hash(), SimulationConfig.model_validate(with_mtf).samples_hash()]
    mtf_of(tmp_path, [(0, 1), (0.5, 0.4)])
    hashes.append(SimulationConfig.model_validate(with_mtf).samples_hash())
    plasmons = tree | {"specimen": {"plasmons": {"mean_free_path_angstrom": 1000}}}
    hashes.append(SimulationConfig.model_validate(plasmons).samples_hash())
    assert len(set(hashes)) == 4
