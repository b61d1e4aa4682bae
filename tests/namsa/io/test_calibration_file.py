"""Calibration files: written and read again, and refused where anything in them is unknown or out of range."""

import json
from dataclasses import replace

import pytest

from namsa import CalibrationOverrides, InputError
from namsa.io.calibration_file import (
    CalibrationFile,
    Quantity,
    read_calibration,
    with_calibration_file,
    write_calibration,
)

FILE = CalibrationFile(
    quantities={
        "pixel_mrad": Quantity((1.0, 1.5), (0.1, 0.1), "disk"),
        "centre_pixels": Quantity((31.5, 33.0), None, "ellipse"),
        "centre_slope_pixels": Quantity(((0.01, 0.0), (-0.02, 0.03)), None, "plane"),
        "ellipse_ratio": Quantity(1.05, 0.01, "ellipse"),
        "ellipse_axis_deg": Quantity(-30.0, 2.0, "ellipse"),
        "rotation_deg": Quantity(-126.0, 0.5, "curl"),
        "mirrored": Quantity(True, None, "curl"),
        "beam_intensity": Quantity(9.1e4, 20.0, "vacuum"),
    },
    bad_pixels=((3, 4), (10, 2)),
    data="scan.h5",
    notes=("nothing",),
)


def test_a_file_is_read_as_it_was_written(tmp_path):
    write_calibration(FILE, tmp_path / "c.json")
    assert read_calibration(tmp_path / "c.json") == FILE


def test_an_ellipse_of_pixels_told_twice_too_wide_is_read(tmp_path):
    """`inspect --pixel-mrad 2 1` of a round disk measures a ratio a little above 2."""
    quantities = FILE.quantities | {"ellipse_ratio": Quantity(2.007, 0.01, "ellipse")}
    write_calibration(replace(FILE, quantities=quantities), tmp_path / "c.json")
    assert read_calibration(tmp_path / "c.json").value("ellipse_ratio") == 2.007


def test_the_callers_numbers_take_precedence(tmp_path):
    write_calibration(FILE, tmp_path / "c.json")
    given = CalibrationOverrides(rotation_deg=5.0, energy_ev=2e5)
    both, beam = with_calibration_file(given, tmp_path / "c.json")
    assert (both.rotation_deg, both.energy_ev, both.pixel_mrad) == (5.0, 2e5, (1.0, 1.5))
    assert both.flip is True
    assert both.ellipse == (1.05, -30.0)
    assert both.bad_pixels == ((3, 4), (10, 2))
    assert beam == 9.1e4
    assert with_calibration_file(given, None) == (given, None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "no calibration file"),
        ({"rotation": 3}, "did you mean rotation_deg"),
        ({"rotation_deg": "3"}, "valid number"),
        ({"rotation_deg": 1e9}, "less than or equal to 720"),
        ({"pixel_mrad": 1.0}, "pixel_mrad is 1.0"),
        ({"pixel_mrad": [1.0, 0.0]}, "pixel_mrad 1 is 0.0: Input should be greater than or equal to 0.00001"),
        ({"pixel_mrad_error": [-1.0, 0.0]}, "pixel_mrad_error"),
        ({"mirrored": 1}, "valid boolean"),
        ({"centre_slope_pixels": [[1, 2], [3]]}, "centre_slope_pixels 1 1"),
        ({"bad_pixels": [[1, -2]]}, "bad_pixels 0 1 is -2"),
        ({"bad_pixels": [[1.5, 2]]}, "bad_pixels 0 0 is 1.5"),
        ({"ellipse_axis_deg": None}, "valid number"),
        ({"defocus_angstrom_error": 3.0}, "defocus_angstrom is missing"),
        ({"notes": "x"}, "valid array"),
        ({"rotation_deg_method": 3}, "valid string"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, change, message):
    path = tmp_path / "c.json"
    values = json.loads(json.dumps(FILE.as_json())) | change
    path.write_text(json.dumps(values))
    with pytest.raises(InputError) as error:
        read_calibration(path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
