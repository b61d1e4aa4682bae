"""Numbers of a calibration for people: titles in words, units that suit the size, errors to two digits."""

from typing import Any

import numpy as np

from namsa.io.calibration_file import CalibrationFile

# Title and unit of each quantity; "Å" becomes nm and µm, and "eV" keV, where numbers are large.
TITLES = {
    "energy_ev": ("beam energy", "eV"),
    "semiangle_mrad": ("semiangle", "mrad"),
    "scan_step_angstrom": ("scan step (y, x)", "Å"),
    "pixel_mrad": ("detector pixel (y, x)", "mrad"),
    "disk_radius_pixels": ("radius of the disk", "pixels"),
    "centre_pixels": ("optic axis (y, x)", "pixels"),
    "centre_slope_pixels": ("its movement per step", "pixels"),
    "ellipse_ratio": ("ellipse, long over short axis", ""),
    "ellipse_axis_deg": ("ellipse, direction", "°"),
    "rotation_deg": ("rotation to the scan", "°"),
    "mirrored": ("mirrored", ""),
    "defocus_angstrom": ("defocus, underfocus positive", "Å"),
    "astigmatism_angstrom": ("astigmatism C12", "Å"),
    "astigmatism_axis_deg": ("astigmatism, direction", "°"),
    "coma_angstrom": ("coma C21", "Å"),
    "coma_axis_deg": ("coma, direction", "°"),
    "beam_intensity": ("beam's intensity", "per pattern"),
}
_LARGER = {"Å": ((1e4, 1e-4, "µm"), (1e3, 0.1, "nm")), "eV": ((1e3, 1e-3, "keV"),)}  # from, times, unit


def readable(calibration: CalibrationFile) -> list[tuple[str, str]]:
    """Returns the title, and the value with error and unit, of each quantity that is known."""
    rows = []
    for name, quantity in calibration.quantities.items():
        title, unit = TITLES[name]
        size, factor = float(np.abs(np.asarray(quantity.value, float)).max()), 1.0
        for least, times, larger in _LARGER.get(unit, ()):
            if size >= least:
                factor, unit = times, larger
                break
        text = _with_error(quantity.value, quantity.error, factor)
        rows.append((title, f"{text}{'' if unit in ('', '°') else ' '}{unit}"))
    return rows


def _with_error(value: Any, error: Any, factor: float) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        errors = error or (None,) * len(value)
        return ", ".join(dict.fromkeys(_with_error(*pair, factor) for pair in zip(value, errors, strict=True)))
    if not error:
        return f"{value * factor:.6g}"
    digits = int(np.clip(1 - np.floor(np.log10(error * factor)), 0, 8))
    return f"{value * factor:.{digits}f} ± {error * factor:.{digits}f}"
