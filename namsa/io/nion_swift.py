"""Metadata of Nion Swift: calibrations of the axes and the instrument."""

from collections.abc import Mapping, Sequence

from namsa.base.text import shorten
from namsa.io.file_axes import FileAxis
from namsa.io.file_beam import FileBeam
from namsa.io.units import as_number, positive


def swift_properties(stored: object) -> dict[str, object]:
    """Returns Nion Swift's properties, with those of the data source that they may hold."""
    properties = _mapping(stored)
    sources = properties.get("data_sources")
    first_source = sources[0] if isinstance(sources, list) and sources else {}
    return {**_mapping(properties.get("data_source", first_source)), **properties}


def swift_beam(properties: Mapping[str, object]) -> FileBeam:
    """Returns the beam as Nion Swift describes its instrument: the high tension in V."""
    for outer in (properties.get("metadata"), properties.get("properties"), properties):
        instrument = _mapping(outer).get("instrument")
        if not isinstance(instrument, dict):
            continue
        inner = _mapping(instrument.get("ImageScanned", instrument.get("autostem")))
        tension = inner.get("EHT", inner.get("high_tension_v"))
        return FileBeam(positive(instrument.get("high_tension", tension)))
    return FileBeam()


def swift_axes(calibrations: Sequence[object]) -> list[FileAxis]:
    """Returns the axes of a list of Nion Swift's calibrations: offset + i · scale."""
    axes = []
    for calibration in map(_mapping, calibrations):
        units = shorten(str(calibration.get("units") or ""), 40)
        step = as_number(calibration.get("scale"))
        axes.append(FileAxis(units, step, as_number(calibration.get("offset"))))
    return axes


def _mapping(value: object) -> dict[str, object]:
    """Returns a mapping; an empty one in place of anything else."""
    return value if isinstance(value, dict) else {}
