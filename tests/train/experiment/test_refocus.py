"""Refocused scan images are sharp at the depth of what they show, by simulation."""

import ase
import numpy as np
import pytest

import namsa
from namsa.config.instrument import Detector
from train.experiment.channels import make_refocus, refocused
from train.experiment.conditions import Conditions

STEP, SCAN, PIXEL, SHAPE = (0.5, 0.4), (20, 24), 5.0, (14, 12)
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
    # Pixel (0, 0) has angles (−32.5, −27.5) mrad: over 20 Å it moves by −0.65 and −0.55 Å, so 1.3 and 1.375 steps.
    plane = planes[0, 0, 1]
    rows = 0.7 * images[0, 0, 0, 1:-2] + 0.3 * images[0, 0, 0, 2:-1]
    expected = 0.625 * rows[:, 1:-2] + 0.375 * rows[:, 2:-1]
    np.testing.assert_allclose(plane[:-3, :-3], expected, rtol=1e-5)
    averages = np.zeros((168, 1), np.float32)
    averages[[0, 1], 0] = 0.5  # angles −27.5 and −22.5 along x: −25 mrad, 0.5 Å, 1.25 steps over 20 Å
    joint = refocused(images[:, :1], make_refocus(averages, trained(), (70.0,), 50.0))[0, 0, 0]
    expected = 0.75 * rows[:, 1:-2] + 0.25 * rows[:, 2:-1]
    np.testing.assert_allclose(joint[:-3, :-3], expected, rtol=1e-5)
