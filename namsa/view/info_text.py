"""Descriptions of samples, files and datasets as text for a terminal."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from namsa.dataset import strata
from namsa.provenance_values import value
from namsa.text import plural, shorten
from namsa.view import recording_info
from namsa.view.info import ArrayInfo, DatasetInfo, FileInfo, SampleInfo
from namsa.view.recording_info import RecordingInfo, Row

MAX_NAMES = 5  # names and failures that are listed; `namsa info --ids` and `namsa verify` list all
WIDTH = 120
LONGEST_TEXT = 4000  # characters of one value

# Phrases for values that are not zero, by their key in the provenance or in its detector.
_MICROSCOPE = {
    "beam_tilt_mrad": "beam tilt {} mrad",
    "specimen_tilt_mrad": "specimen tilt {} mrad",
    "source_size_angstrom": "source {} Å",
    "focal_spread_angstrom": "focal spread {} Å",
}
_DETECTOR = {
    "pixel_mrad": "pixels of {} mrad",
    "binning": "binning {}",
    "max_angle_mrad": "up to {} mrad",
    "point_spread_pixels": "point spread {} pixels",
    "electrons_per_pattern": "{} electrons per pattern",
    "dose_electrons_per_angstrom2": "{} electrons/Å²",
}
_SIMULATION = {"form_factors": "{} form factors", "projection": "{} projection", "precision": "{}"}
_ORIGIN = {"config_hash": "configuration {}", "split": "{} split"}


def describe(info: FileInfo | DatasetInfo | RecordingInfo) -> str:
    """Returns the description of a file of patterns, or of samples with the first one's provenance and arrays."""
    if isinstance(info, RecordingInfo):
        return "\n".join([info.path, *_aligned(recording_info.rows(info))])
    if isinstance(info, FileInfo):
        first, rows = info.contents[0] if info.contents else None, _file_rows(info)
    else:
        first, rows = info.first, _dataset_rows(info)
    lines = [info.path, *_aligned(rows)]
    return "\n".join([*lines, *(_sample_lines(first) if first else [])])


def sample_rows(provenance: Mapping[str, Any]) -> list[Row]:
    """Returns what a sample is of and how it was simulated; only a dataset's samples have a material."""
    p = provenance
    y, x = value(p, "extent_angstrom")
    zone = "[" + " ".join(map(str, value(p, "zone_axis"))) + "]" if "zone_axis" in p else ""
    specimen = [p.get("formula"), p.get("space_group"), zone]
    specimen.append(f"{y:.2f} × {x:.2f} Å (y, x), {value(p, 'thickness_angstrom'):.2f} Å thick")
    if "atoms" in p:
        specimen.append(f"{value(p, 'atoms'):,} atoms")
    if "snapshots" in p:
        specimen.append(f"mean of {value(p, 'snapshots')} snapshots")
    if plasmons := value(p, "plasmons", None):
        specimen.append(f"inelastic mean free path {plasmons.get('mean_free_path_angstrom')} Å")
    microscope = [f"{value(p, 'energy_ev') / 1e3:g} keV", f"semiangle {value(p, 'semiangle_mrad'):g} mrad"]
    microscope += _phrases(p, _MICROSCOPE)
    microscope += [f"{name} {number:g}" for name, number in value(p, "aberrations", {}).items()]
    ny, nx = value(p, "grid_shape")
    grid = f"{ny} × {nx} pixels"
    if "slices" in p:
        grid += f", {plural(value(p, 'slices'), 'slice')} of {value(p, 'slice_thickness_angstrom'):.3f} Å"
    if phonons := value(p, "frozen_phonons", None):
        grid += f", {plural(phonons.get('configurations'), 'frozen phonon')}"
    software = value(p, "software", {}).get("namsa", "of an unknown version")
    return [
        ("specimen", ", ".join(part for part in specimen if part)),
        *([("crystal", p["source"])] if p.get("source") else []),
        ("microscope", ", ".join(microscope)),
        *([("detector", ", ".join(_phrases(p["detector"], _DETECTOR)))] if value(p, "detector", None) else []),
        ("simulation", ", ".join([grid, *_phrases(p, _SIMULATION)])),
        *(("warning", warning) for warning in value(p, "warnings", ())),
        ("made by", ", ".join([f"namsa {software}", f"seed {p.get('seed')}", *_phrases(p, _ORIGIN)])),
    ]


def _file_rows(info: FileInfo) -> list[Row]:
    rows = [("samples", f"{len(info.ids)}, {_megabytes(info.bytes)}")]
    if len(info.ids) > 1:
        rows.append(("names", ", ".join(info.ids[:MAX_NAMES]) + (", ..." if len(info.ids) > MAX_NAMES else "")))
    return rows


def _dataset_rows(info: DatasetInfo) -> list[Row]:
    absent = f"{info.skipped} cannot be built, {info.failed} failed"
    rows = [
        ("samples", f"{info.samples} of {info.entries} in the manifest; {absent}"),
        *(("failed", f"{sample_id}: {reason}") for sample_id, reason in list(info.failures.items())[:MAX_NAMES]),
        ("shards", f"{info.shards}, {_megabytes(info.bytes)}"),
    ]
    if info.merged:
        merged = (f"{', '.join(names)} into {kept}" for kept, names in info.merged.items())
        rows.append(("merged", "; ".join(merged)))
    if info.samples:
        rows += strata.table_rows(info.strata)
    return rows


def _sample_lines(sample: SampleInfo) -> list[str]:
    """Returns the lines on one sample: its provenance, and each array with its axes."""
    lines = ["", f"first sample: {sample.id}", *_aligned(sample_rows(sample.provenance))]
    for name, array in sample.arrays.items():
        shape = " × ".join(map(str, array.shape))
        lines += ["", f"  {name}: {shape} {array.dtype}, {array.units}", *_aligned(_axis_rows(array), indent=4)]
    return lines


def _axis_rows(array: ArrayInfo) -> list[Row]:
    rows = []
    for axis, count in zip(array.axes, array.shape, strict=True):
        last = "" if axis.sampling is None else f" to {axis.origin + axis.sampling * (count - 1):.6g}"
        step = "" if axis.sampling is None else f", step {axis.sampling:.6g}"
        rows.append((axis.name, f"{axis.origin:.6g}{last} {axis.units}".rstrip() + step))
    return rows


def _aligned(rows: Sequence[Row], indent: int = 2) -> list[str]:
    """Returns rows as lines with the values in one column, wrapped at `WIDTH`."""
    width = max(len(name) for name, _ in rows)
    lines = []
    for name, text in rows:
        start = f"{' ' * indent}{name:<{width}}  "
        wrapped = textwrap.wrap(
            shorten(text, LONGEST_TEXT),
            WIDTH,
            initial_indent=start,
            subsequent_indent=" " * len(start),
            break_on_hyphens=False,  # options keep their names
        )
        lines += wrapped or [start.rstrip()]
    return lines


def _phrases(values: Mapping[str, Any], phrases: Mapping[str, str]) -> list[str]:
    """Returns the phrases of the values that were set: zeros, and a binning of 1, were not."""
    used = {key: item for key, item in values.items() if _is_set(item) and (key, item) != ("binning", 1)}
    return [phrase.format(_plain(used[key])) for key, phrase in phrases.items() if key in used]


def _is_set(item: Any) -> bool:
    return any(map(_is_set, item)) if isinstance(item, list) else bool(item)


def _plain(item: Any) -> str:
    if isinstance(item, list):
        return "(" + ", ".join(map(_plain, item)) + ")"
    return f"{item:g}" if isinstance(item, float) else str(item)


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
