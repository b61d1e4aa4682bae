"""Calibration files: what `namsa inspect` measures, each number with its error and how it was
found, as JSON.

A number `name` stands beside `name_error`, its standard error in the same shape, and `name_method`,
a text. The file is read strictly: an unknown key, a number out of range or a list of the wrong
length is an error. `digest` is that of all other values, so that a damaged file is an error, too;
whoever changes a number by hand removes it. Files without one are read.
"""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field
from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from namsa.base.digested_json import DIGEST, check_digest, with_digest
from namsa.base.errors import InputError
from namsa.base.files import write_text_atomic
from namsa.base.json_files import parse_typed, read_json
from namsa.base.text import shorten
from namsa.io.calibration import LIMITS, MOST_ELLIPTIC, STEEPEST, CalibrationOverrides

# Title and unit of each quantity.
TITLES = {
    "energy_ev": ("beam energy", "keV"),
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
FACTORS = {"energy_ev": 1e-3}  # from the stored number to the unit of TITLES
# Error from which a direction is not determined; those of an ellipse repeat after 180°.
UNDETERMINED_DEG = 45.0
FORMAT = "namsa calibration 1"
LARGEST_FILE_BYTES = 2**25
MOST_BAD_PIXELS = 2_000_000

# Shape, least and largest number of each quantity. Pairs are (y, x).
QUANTITIES: dict[str, tuple[tuple[int, ...], float, float]] = {
    **{name: ((), *LIMITS[name][:2]) for name in ("energy_ev", "semiangle_mrad", "rotation_deg")},
    **{
        name: ((2,), *LIMITS[name][:2])
        for name in ("scan_step_angstrom", "pixel_mrad", "centre_pixels")
    },
    "disk_radius_pixels": ((), 0.1, 1e5),
    "centre_slope_pixels": ((2, 2), -STEEPEST, STEEPEST),
    "ellipse_ratio": ((), 1.0, MOST_ELLIPTIC),
    "ellipse_axis_deg": ((), -180.0, 180.0),
    "defocus_angstrom": ((), -1e9, 1e9),
    "astigmatism_angstrom": ((), 0.0, 1e9),
    "astigmatism_axis_deg": ((), -180.0, 180.0),
    "coma_angstrom": ((), 0.0, 1e10),
    "coma_axis_deg": ((), -180.0, 180.0),
    "beam_intensity": ((), 1e-15, 1e18),
}
BOOLEANS = ("mirrored",)
REMEDY = "correct it, or write it again with `namsa inspect`"


def _numbers(shape: tuple[int, ...], low: float, high: float) -> Any:
    """Returns the type of a number, a pair or two pairs, within limits."""
    kind: Any = Annotated[float, Field(ge=low, le=high)]
    for length in shape:
        kind = tuple[(kind,) * length]  # type: ignore[misc]
    return kind


_Place = Annotated[int, Field(ge=0, lt=2**20)]  # row or column of a pixel
# The type of each key of a file.
KEYS: dict[str, object] = {
    **{"format": str, "data": str, "notes": tuple[str, ...]},
    **{"serpentine": bool, "flip_scan": Literal["y", "x", "yx"]},
    "bad_pixels": Annotated[tuple[tuple[_Place, _Place], ...], Field(max_length=MOST_BAD_PIXELS)],
    **{name: _numbers(*limits) for name, limits in QUANTITIES.items()},
    **{
        f"{name}_error": _numbers(shape, 0, np.inf) | None
        for name, (shape, _, _) in QUANTITIES.items()
    },
    **dict.fromkeys(BOOLEANS, bool) | {f"{name}_error": None for name in BOOLEANS},
    **{f"{name}_method": str for name in (*QUANTITIES, *BOOLEANS)},
}


@dataclass(frozen=True)
class CalibratedQuantity:
    """A measured or given number."""

    value: Any  # a number, a pair, a matrix as nested tuples, or a truth value
    error: Any  # standard error, in the shape of the value; `None` for what was not measured
    method: str  # how it was found


@dataclass(frozen=True)
class CalibrationFile:
    """The contents of a calibration file."""

    # by name, those of `QUANTITIES` and `BOOLEANS` that are known
    quantities: Mapping[str, CalibratedQuantity]
    bad_pixels: tuple[tuple[int, int], ...] = ()  # rows and columns of hot and dead pixels
    data: str = ""  # what was measured
    notes: tuple[str, ...] = field(default=())  # what could not be determined, and what was assumed
    serpentine: bool = False  # whether every second row of the scan was recorded backwards
    flip_scan: str = ""  # the scan's axes that run backwards in the file

    def value(self, name: str) -> Any:
        """Returns the value of a quantity; `None` if it is not known."""
        known = self.quantities.get(name)
        return None if known is None else known.value

    def as_json(self) -> dict[str, object]:
        """Returns the contents as JSON values."""
        values: dict[str, object] = {"format": FORMAT, "data": self.data}
        for name, quantity in self.quantities.items():
            values |= {
                name: quantity.value,
                f"{name}_error": quantity.error,
                f"{name}_method": quantity.method,
            }
        if self.serpentine:
            values["serpentine"] = True
        if self.flip_scan:
            values["flip_scan"] = self.flip_scan
        return values | {"bad_pixels": self.bad_pixels, "notes": self.notes}

    def overrides(self) -> CalibrationOverrides:
        """Returns the numbers that a scan is read with."""
        ratio = self.value("ellipse_ratio")
        axis = self.value("ellipse_axis_deg")
        return CalibrationOverrides(
            **{name: self.value(name) for name in LIMITS},
            flip=self.value("mirrored"),
            ellipse=None if ratio is None or axis is None else (ratio, axis),
            centre_slope=self.value("centre_slope_pixels"),
            bad_pixels=self.bad_pixels,
            serpentine=self.serpentine or None,
            flip_scan=self.flip_scan or None,
        )


def write_calibration(calibration: CalibrationFile, path: Path) -> None:
    """Writes a calibration file, which appears only when it is complete. Raises WorkError if it
    cannot.
    """
    values = with_digest(calibration.as_json())
    lines = [
        f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}"
        for key, value in values.items()
    ]
    write_text_atomic(path, "{\n" + ",\n".join(lines) + "\n}\n")


def read_calibration(path: Path) -> CalibrationFile:
    """Reads a calibration file. Raises InputError if it is none, or if anything in it is unknown or
    out of range.
    """
    values = read_json(path, largest_bytes=LARGEST_FILE_BYTES)
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise InputError(f'{path} is no calibration file: it has no "format": "{FORMAT}"')
    _check_keys(values, path)
    check_digest(values, str(path), "write it again with `namsa inspect`")
    values.pop(DIGEST, None)
    schema = TypedDict("File", KEYS, total=False)  # type: ignore[misc]
    stated: Any = parse_typed(schema, json.dumps(values), str(path), REMEDY)
    quantities = {}
    for name in (*QUANTITIES, *BOOLEANS):
        if name in stated:
            error = stated.get(f"{name}_error")
            method = stated.get(f"{name}_method", "")
            quantities[name] = CalibratedQuantity(stated[name], error, method)
    return CalibrationFile(
        quantities,
        stated.get("bad_pixels", ()),
        stated.get("data", ""),
        stated.get("notes", ()),
        stated.get("serpentine", False),
        stated.get("flip_scan", ""),
    )


def _check_keys(values: Mapping[str, object], path: Path) -> None:
    """Raises InputError for a key that is unknown, or that lacks one that goes with it."""
    for key in values:
        if key not in KEYS and key != DIGEST:
            near = difflib.get_close_matches(key, KEYS, n=1, cutoff=0.0)[0]
            raise InputError(f"{path}: unknown key {shorten(key)}; did you mean {near}?")
    for name in (*QUANTITIES, *BOOLEANS):
        if name not in values and (f"{name}_error" in values or f"{name}_method" in values):
            raise InputError(f"{path}: {name} is missing, of which there is an error or a method")
    if ("ellipse_ratio" in values) != ("ellipse_axis_deg" in values):
        raise InputError(
            f"{path}: ellipse_ratio and ellipse_axis_deg go together: give both or none"
        )


def with_calibration_file(
    overrides: CalibrationOverrides, path: Path | None
) -> tuple[CalibrationOverrides, float | None]:
    """Completes what the caller knows by a calibration file; the caller's numbers take precedence.

    Returns:
        The numbers to read the scan with, and the beam's intensity if the file has it.

    Raises:
        InputError: As `read_calibration`.
    """
    if path is None:
        return overrides, None
    file = read_calibration(path)
    given = {name: value for name, value in vars(overrides).items() if value not in (None, ())}
    return replace(file.overrides(), **given), file.value("beam_intensity")


def readable(calibration: CalibrationFile) -> list[tuple[str, str]]:
    """Returns the title, and the value with error and unit, of each quantity that is known."""
    rows = []
    for name, quantity in calibration.quantities.items():
        title, unit = TITLES[name]
        if name.endswith("_axis_deg") and (quantity.error or 0.0) >= UNDETERMINED_DEG:
            rows.append((title, "undetermined"))
            continue
        text = _with_error(quantity.value, quantity.error, FACTORS.get(name, 1.0))
        text = text.replace("-", "\N{MINUS SIGN}")
        rows.append((title, f"{text}{'' if unit in ('', '°') else ' '}{unit}"))
    return rows


def _with_error(value: Any, error: Any, factor: float) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        errors = error or (None,) * len(value)
        return ", ".join(
            dict.fromkeys(_with_error(*pair, factor) for pair in zip(value, errors, strict=True))
        )
    if not error:
        return f"{value * factor:.6g}"
    digits = int(np.clip(1 - np.floor(np.log10(error * factor)), 0, 8))
    return f"{value * factor:z.{digits}f} ± {error * factor:.{digits}f}"  # z: no "-0"
