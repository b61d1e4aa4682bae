"""Presets of detectors and microscopes: names that stand for values of their sections, which other
keys override.

A section keeps the values and not the name, so that a configuration says what was computed with.
"""

from collections.abc import Mapping
from math import sqrt
from typing import Any, NamedTuple


class DetectorPreset(NamedTuple):
    """Published values of a detector."""

    shape: tuple[int, int]  # pixels (y, x)
    pixel_um: float  # side of a pixel, µm
    source: str


_MEDIPIX = "Ballabriga et al., JINST 6 (2011) C01052"
DETECTORS = {
    "empad": DetectorPreset((128, 128), 150.0, "Tate et al., Microsc. Microanal. 22 (2016) 237"),
    "empad-g2": DetectorPreset(
        (128, 128), 150.0, "Philipp et al., Microsc. Microanal. 28 (2022) 425"
    ),
    "merlin": DetectorPreset((256, 256), 55.0, _MEDIPIX),
    "merlin-quad": DetectorPreset((512, 512), 55.0, f"{_MEDIPIX}: four chips"),
    "arina": DetectorPreset((192, 192), 100.0, "Stroppa et al., Microscopy Today 31 (2023)"),
}

# Å
_WAVELENGTH_200_KEV = 0.0250793
_C30 = 1.2e7
MICROSCOPES: dict[str, Mapping[str, object]] = {
    # With a corrector, as the networks that come with the package have them.
    "corrected-80kv": {"energy_ev": 80e3, "semiangle_mrad": 25.0},
    "corrected-200kv": {"energy_ev": 200e3, "semiangle_mrad": 20.0},
    "corrected-300kv": {"energy_ev": 300e3, "semiangle_mrad": 21.4},
    # Without one: C30 of 1.2 mm, and the aperture and the underfocus of the smallest probe, 1.41
    # (λ/C30)^¼ and √(C30 λ) (Kirkland, Advanced Computing in Electron Microscopy, 2010, section
    # 3.3).
    "uncorrected-200kv": {
        "energy_ev": 200e3,
        "semiangle_mrad": round(1.41e3 * (_WAVELENGTH_200_KEV / _C30) ** 0.25, 2),
        "aberrations": {"C10": -round(sqrt(_C30 * _WAVELENGTH_200_KEV)), "C30": _C30},
    },
}


def detector_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of a section `detector` with those of its preset.

    The shape of the preset goes with `pixel_mrad`, or with `max_angle_mrad`, which its longer side
    reaches.
    """
    section = dict(values)
    if section.get("preset") not in DETECTORS:
        return section
    preset = DETECTORS[section.pop("preset")]
    reach = section.get("max_angle_mrad")
    shape = section.get("shape") or preset.shape
    pixels_are_given = section.get("pixel_mrad") is not None or section.get("binning", 1) != 1
    if isinstance(reach, int | float) and not pixels_are_given:
        section["pixel_mrad"] = 2 * reach / max(shape)
        section["max_angle_mrad"] = None
    return section | {"shape": shape}


def microscope_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of a section `microscope` with those of its preset."""
    section = dict(values)
    if section.get("preset") not in MICROSCOPES:
        return section
    preset = MICROSCOPES[section.pop("preset")]
    return dict(preset) | section
