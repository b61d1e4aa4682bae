"""Reading of single values of a sample's provenance, which is read from files.

A record's digest says that its bytes are those that were written, and not that namsa wrote them.
Every value is therefore checked where it is used: it is there, has its type and a magnitude that a
microscope can have.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from namsa.base.errors import InputError
from namsa.base.text import shorten

Provenance = dict[str, Any]  # JSON values by name
_Check = Callable[[Any], bool]  # whether a JSON value is of some kind
LARGEST = 1e9  # of all lengths, angles and energies, in their units
_LARGEST_DOSE = 1e12  # electrons per pattern or per Å²
_LARGEST_COEFFICIENT = 1e15  # Å; of fifth order they are a million times those of third order
_LONGEST_TEXT = 10_000
_DEEPEST = 64
_LARGEST_INTEGER = 2**64
_REMEDY = "simulate the sample again, in a dataset after `namsa repair`"
_REQUIRED = object()


class _Kind(NamedTuple):
    """A kind of value: its name for messages, and whether a value is of that kind."""

    name: str
    fits: _Check


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def _is_coefficient(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) <= _LARGEST_COEFFICIENT


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST_TEXT


def _is_detector(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(value.get(dose), int | float | None)
        and abs(value.get(dose) or 0) <= _LARGEST_DOSE
        for dose in DOSES
    )


def _list_of(fits: _Check, count: int | None = None) -> _Check:
    return lambda value: (
        isinstance(value, list | tuple)
        and len(value) == (count or len(value))
        and all(map(fits, value))
    )


def _mapping_to(fits: _Check) -> _Check:
    return lambda value: (
        isinstance(value, Mapping) and all(map(_is_text, value)) and all(map(fits, value.values()))
    )


def _or_none(kind: _Kind) -> _Kind:
    return _Kind(f"{kind.name}, or null", lambda value: value is None or kind.fits(value))


_NUMBER = _Kind(f"a number up to {LARGEST:g}", _is_number)
_POSITIVE = _Kind(
    f"a number above 0, up to {LARGEST:g}", lambda value: _is_number(value) and value > 0
)
_FROM_0 = _Kind(f"a number of 0 to {LARGEST:g}", lambda value: _is_number(value) and value >= 0)
_WHOLE = _Kind("a whole number", _is_whole)
_TEXT = _Kind("text", _is_text)
_PAIR = _Kind("two numbers (y, x)", _list_of(_is_number, 2))
_PAIR_FROM_0 = _Kind(
    "two numbers (y, x) of 0 or more", lambda value: _PAIR.fits(value) and min(value) >= 0
)
_STEPS = _Kind(
    "two numbers (y, x) above 1e-9", lambda value: _PAIR.fits(value) and min(value) >= 1 / LARGEST
)
_SHAPE = _Kind(
    "two whole numbers (y, x) above 0",
    lambda value: _list_of(_is_whole, 2)(value) and min(value) > 0,
)
_MAPPING = _Kind("a mapping of names to values", lambda value: isinstance(value, Mapping))

_REQUIRED_KINDS = {
    "energy_ev": _POSITIVE,
    "semiangle_mrad": _FROM_0,
    "thickness_angstrom": _POSITIVE,
    "extent_angstrom": _STEPS,
    "grid_shape": _SHAPE,
    "detector_sampling_mrad": _STEPS,
    "detector_origin_mrad": _PAIR,
    "density_sampling_angstrom": _PAIR_FROM_0,
    "density_origin_angstrom": _PAIR,
}
DOSES = ("electrons_per_pattern", "dose_electrons_per_angstrom2")
_OPTIONAL_KINDS = {
    "scan_shape": _or_none(_SHAPE),
    "density_max_q_per_angstrom": _POSITIVE,
    "beam_tilt_mrad": _PAIR,
    "specimen_tilt_mrad": _PAIR,
    "slice_thickness_angstrom": _POSITIVE,
    "slices": _WHOLE,
    "band_fraction": _POSITIVE,
    "atoms": _WHOLE,
    "snapshots": _WHOLE,
    "plasmons": _or_none(_MAPPING),
    "aberrations": _Kind("a mapping of names to numbers", _mapping_to(_is_coefficient)),
    "frozen_phonons": _or_none(_MAPPING),
    "detector": _or_none(
        _Kind("a mapping of names to values, with doses that are numbers", _is_detector)
    ),
    "software": _Kind("a mapping of names to versions", _mapping_to(_is_text)),
    "warnings": _Kind("a list of texts", _list_of(_is_text)),
    "zone_axis": _Kind(
        "three whole numbers",
        _list_of(lambda value: isinstance(value, int) and abs(value) <= LARGEST, 3),
    ),
    "config_hash": _TEXT,
    "id": _TEXT,
    "material": _TEXT,
    "formula": _or_none(_TEXT),
    "space_group": _or_none(_TEXT),
    "source": _or_none(_TEXT),
    "split": _or_none(_TEXT),
}
_KINDS = _REQUIRED_KINDS | _OPTIONAL_KINDS


def value(provenance: Mapping[str, object], key: str, default: object = _REQUIRED) -> Any:
    """Returns one value of a provenance, unchanged, or the default where it is absent, if there is
    one.

    Raises:
        InputError: If it is absent, or of another type or magnitude than namsa writes. The message
            names the sample, the key, the value and the remedy.
    """
    if not isinstance(provenance, Mapping):
        raise InputError(
            f"a sample's provenance is {shorten(provenance)}, and must be a mapping: {_REMEDY}"
        )
    if key not in provenance:
        if default is not _REQUIRED:
            return default
        raise provenance_error(provenance, f"has no {key}")
    stored = provenance[key]
    kind = _KINDS.get(key)
    if kind and not kind.fits(stored):
        shown = shorten(stored) or repr(stored)
        raise provenance_error(provenance, f"has {key} {shown}, and needs {kind.name}")
    return stored


def check(provenance: Mapping[str, object]) -> None:
    """Checks all values of a provenance that namsa's views and exports read, and that all can be
    written as JSON.

    Raises:
        InputError: As `value`, or if values are nested too deeply, or a number is not finite or has
            more than 64 bits.
    """
    for key in _REQUIRED_KINDS:
        value(provenance, key)
    for key in _OPTIONAL_KINDS:
        value(provenance, key, None)
    level: list[Mapping[str, object] | list[object] | tuple[object, ...]] = [provenance]
    for _ in range(_DEEPEST):
        children: list[object] = []
        for container in level:
            children += container.values() if isinstance(container, Mapping) else container
        level = []
        for child in children:
            if isinstance(child, int | float) and not _is_storable(child):
                raise provenance_error(provenance, f"holds the number {shorten(child)}")
            if isinstance(child, Mapping | list | tuple):
                level.append(child)
    if level:
        raise provenance_error(provenance, f"is nested more than {_DEEPEST} levels deep")


def _is_storable(number: int | float) -> bool:
    """Returns whether a number is finite and has 64 bits at most."""
    if isinstance(number, int) and abs(number) >= _LARGEST_INTEGER:
        return False
    return math.isfinite(number)


def provenance_error(provenance: Mapping[str, object], problem: str) -> InputError:
    """Returns the error of a sample whose provenance has a problem, as "has no grid_shape", with
    the remedy.
    """
    name = provenance.get("id")
    sample = f"sample {shorten(name)}" if isinstance(name, str) else "a sample"
    return InputError(f"the provenance of {sample} {problem}: {_REMEDY}")
