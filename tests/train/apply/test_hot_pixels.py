"""Hot pixels do not move the optic axis of a scan."""

import numpy as np
import pytest

import namsa
from train.apply.reading import optic_axis, without_hot_pixels

KNOWN = {"energy_ev": 2e5, "semiangle_mrad": 20, "scan_step_angstrom": 0.4, "pixel_mrad": 1.0}


@pytest.mark.parametrize("places", [[(2, 3)], [(2, 3), (28, 1)], [(15, 20)], [(0, 0), (0, 1)]])
def test_the_axis_is_found_without_hot_pixels_which_are_named(places):
    y, x = np.mgrid[:32, :40]
    pattern = np.random.default_rng(0).poisson(20.0 * (np.hypot(y - 15, x - 21) < 8) + 0.2)
    pattern = pattern.astype(float)
    patterns = np.broadcast_to(pattern, (2, 2, 32, 40))
    notes = []
    with namsa.read(patterns) as recording:
        scan = namsa.io.calibration.calibrate(recording, namsa.CalibrationOverrides(**KNOWN))
    expected = optic_axis(scan, pattern, notes.append)
    for place in places:
        pattern[place] = 65535
    axis = optic_axis(scan, without_hot_pixels(scan, pattern, notes.append), notes.append)
    assert axis == pytest.approx(expected, abs=0.1)
    for place in places:
        assert str(place) in notes[1]
    assert "namsa inspect" in notes[1]
