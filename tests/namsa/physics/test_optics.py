"""The electron and the lens: published constants, aberrations, apertures that fit."""

import numpy as np
import pytest

from namsa import InputError
from namsa.config.aberrations import ABERRATIONS
from namsa.physics import optics
from namsa.physics.grid import Grid

GRID = Grid((96, 120), (14.4, 16.2))
WAVELENGTH = optics.wavelength_angstrom(200e3)


@pytest.mark.parametrize(
    ("energy_ev", "wavelength", "sigma"),
    [
        (100e3, 0.0370144, 9.24396e-4),
        (200e3, 0.0250793, 7.28840e-4),
        (300e3, 0.0196875, 6.52616e-4),
    ],
)
def test_published_constants(energy_ev, wavelength, sigma):
    assert optics.wavelength_angstrom(energy_ev) == pytest.approx(wavelength, rel=3e-6)
    assert optics.interaction_constant(energy_ev) == pytest.approx(sigma, rel=1e-6)


def test_aberrations_equal_haiders_in_complex_notation():
    """χ as polynomials in ω = α exp(iφ): C21 = 3 B2, C32 = 4 S3, C41 = 5 B4, C43 = 5 D4, C52 = 6
    S5, C54 = 6 R5.

    Uhlemann & Haider, Ultramicroscopy 72 (1998) 109; Krivanek et al., Ultramicroscopy 78 (1999) 1.
    """
    rng = np.random.default_rng(2)
    alpha = rng.uniform(0, 0.03, 40)
    phi = rng.uniform(-np.pi, np.pi, 40)
    w = alpha * np.exp(1j * phi)
    haider = {  # Krivanek's name: (how many times Haider's coefficient it is, Haider's polynomial)
        "C10": (1, w * w.conj() / 2),
        "C12": (1, w.conj() ** 2 / 2),
        "C21": (3, w * w.conj() ** 2),
        "C23": (1, w.conj() ** 3 / 3),
        "C30": (1, (w * w.conj()) ** 2 / 4),
        "C32": (4, w * w.conj() ** 3),
        "C34": (1, w.conj() ** 4 / 4),
        "C41": (5, w**2 * w.conj() ** 3),
        "C43": (5, w * w.conj() ** 4),
        "C45": (1, w.conj() ** 5 / 5),
        "C50": (1, (w * w.conj()) ** 3 / 6),
        "C52": (6, w**2 * w.conj() ** 4),
        "C54": (6, w * w.conj() ** 5),
        "C56": (1, w.conj() ** 6 / 6),
    }
    assert set(ABERRATIONS) == {
        *haider,
        *(f"phi{name[1:]}" for name in haider if not name.endswith("0")),
    }
    for name, (times, polynomial) in haider.items():
        turn = 0.0 if name.endswith("0") else 0.37
        coefficient = 1e4 * np.exp(1j * int(name[2]) * turn)
        aberrations = {name: 1e4 * times} | ({f"phi{name[1:]}": turn} if turn else {})
        expected = 2 * np.pi / optics.wavelength_angstrom(200e3) * np.real(coefficient * polynomial)
        np.testing.assert_allclose(
            optics.aberration_phase(alpha, phi, WAVELENGTH, aberrations), expected, atol=1e-12
        )


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("Cs", r"did you mean C30 \(Å; 1 mm is 1e7 Å\)\?"),
        ("C3", "did you mean C30"),
        ("spherical_aberration", "did you mean C30"),
        ("defocus", r"did you mean C10 = -defocus \(Å; underfocus is C10 < 0\)\?"),
        ("Defocus_angstrom", "did you mean C10 = -defocus"),
        ("C1", "did you mean C10"),
        ("C1O", r"did you mean C10\?"),
        ("C03", r"did you mean C30\?"),
        ("c10", "did you mean C10"),
        ("A1", "did you mean C12"),
        ("astigmatism", "did you mean C12 .*phi12"),
        ("astigmatisim", "did you mean C12"),
        ("B2", "did you mean C21 = 3·B2"),
        ("coma", "did you mean C21 = 3·B2"),
        ("A2", "did you mean C23"),
        ("S3", "did you mean C32 = 4·S3"),
        ("D4", "did you mean C43 = 5·D4"),
        ("C5", "did you mean C50"),
        ("Cc", "did you mean microscope.chromatic_aberration_mm with energy_spread_ev"),
        ("c3,0", "did you mean C30"),
        ("Phi12", "did you mean phi12"),
        ("C13", "did you mean C[1-5][0-6]\\?"),
    ],
)
def test_the_names_of_other_notations_are_translated(name, advice):
    with pytest.raises(InputError, match=f"unknown aberration '{name}'; {advice}"):
        optics.check_aberrations({name: 1.0})


def test_apertures_that_do_not_fit_are_refused_with_the_remedy():
    with pytest.raises(InputError, match="pixels of .* Å or less"):
        optics.lens(GRID, optics.BeamSettings(200e3, 60.0, {}))
    with pytest.raises(InputError, match="0 mrad or more"):
        optics.lens(GRID, optics.BeamSettings(200e3, -3.0, {}))
    finer = Grid((120, 96), (14.4, 10.0))
    optics.lens(
        finer, optics.BeamSettings(200e3, 50.0, {})
    )  # what the first message promises: finer pixels fit


@pytest.mark.parametrize("extent", [(15.6, 17.1), (24.0, 31.0), (50.0, 41.0)])
def test_the_disk_has_the_solid_angle_of_the_semiangle(extent):
    """The root of the mean square radius that the intensity has in cells of any size."""
    grid = Grid((160, 176), extent)
    beam = optics.BeamSettings(200e3, 20.0, {})
    pixel = beam.wavelength**2 / (extent[0] * extent[1])
    area = float((optics.aperture(grid, beam) ** 2).sum()) * pixel
    assert 1e3 * np.sqrt(area / np.pi) == pytest.approx(20.0, rel=2e-3)
    amplitude = optics.BeamSettings(200e3, 20.0, {}, aperture_edge="amplitude")
    smaller = float((optics.aperture(grid, amplitude) ** 2).sum()) * pixel
    assert smaller < area
    np.testing.assert_allclose(optics.aperture(grid, beam) ** 2, optics.aperture(grid, amplitude))


def test_an_edge_of_another_kind_is_refused():
    with pytest.raises(InputError, match="aperture_edge is 'hard'"):
        optics.aperture(
            Grid((64, 64), (20.0, 20.0)), optics.BeamSettings(2e5, 20.0, {}, (0, 0), (0, 0), "hard")
        )
