"""Descriptions of samples, files and datasets as text for a terminal."""

import textwrap
from collections.abc import Mapping, Sequence

from namsa.base.provenance_values import Provenance, value
from namsa.base.text import plural, shorten
from namsa.dataset import strata
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
    """Returns the description of a file of patterns, or of samples and the first of them."""
    if isinstance(info, RecordingInfo):
        return "\n".join([info.path, *_aligned(recording_info.rows(info))])
    if isinstance(info, FileInfo):
        first_sample = info.contents[0] if info.contents else None
        rows = _file_rows(info)
    else:
        first_sample = info.first
        rows = _dataset_rows(info)
    lines = [info.path, *_aligned(rows)]
    if first_sample is not None:
        lines += _sample_lines(first_sample)
    return "\n".join(lines)


def sample_rows(provenance: Provenance) -> list[Row]:
    """Returns the rows on a specimen and on its simulation.

    Only a dataset's samples have a material.
    """
    rows = [("specimen", _specimen(provenance))]
    if provenance.get("source"):
        rows.append(("crystal", provenance["source"]))
    rows.append(("microscope", _microscope(provenance)))
    if value(provenance, "detector", None):
        rows.append(("detector", ", ".join(_phrases(provenance["detector"], _DETECTOR))))
    rows.append(("simulation", _simulation(provenance)))
    for warning in value(provenance, "warnings", ()):
        rows.append(("warning", warning))
    software = value(provenance, "software", {}).get("namsa", "of an unknown version")
    origin = [f"namsa {software}", f"seed {provenance.get('seed')}"]
    rows.append(("made by", ", ".join([*origin, *_phrases(provenance, _ORIGIN)])))
    return rows


def _specimen(provenance: Provenance) -> str:
    """Returns the row on a specimen."""
    y, x = value(provenance, "extent_angstrom")
    parts = []
    for key in ("formula", "space_group"):
        if provenance.get(key):
            parts.append(provenance[key])
    if "zone_axis" in provenance:
        indices = " ".join(str(index) for index in value(provenance, "zone_axis"))
        parts.append(f"[{indices}]")
    thickness = value(provenance, "thickness_angstrom")
    parts.append(f"{y:.2f} × {x:.2f} Å (y, x), {thickness:.2f} Å thick")
    if "atoms" in provenance:
        parts.append(f"{value(provenance, 'atoms'):,} atoms")
    if "snapshots" in provenance:
        parts.append(f"mean of {value(provenance, 'snapshots')} snapshots")
    plasmons = value(provenance, "plasmons", None)
    if plasmons:
        parts.append(f"inelastic mean free path {plasmons.get('mean_free_path_angstrom')} Å")
    return ", ".join(parts)


def _microscope(provenance: Provenance) -> str:
    """Returns the row on the microscope."""
    parts = [
        f"{value(provenance, 'energy_ev') / 1e3:g} keV",
        f"semiangle {value(provenance, 'semiangle_mrad'):g} mrad",
        *_phrases(provenance, _MICROSCOPE),
    ]
    for name, coefficient in value(provenance, "aberrations", {}).items():
        parts.append(f"{name} {coefficient:g}")
    return ", ".join(parts)


def _simulation(provenance: Provenance) -> str:
    """Returns the row on the simulation."""
    ny, nx = value(provenance, "grid_shape")
    parts = [f"{ny} × {nx} pixels"]
    if "slices" in provenance:
        slices = plural(value(provenance, "slices"), "slice")
        parts.append(f"{slices} of {value(provenance, 'slice_thickness_angstrom'):.3f} Å")
    phonons = value(provenance, "frozen_phonons", None)
    if phonons:
        parts.append(plural(phonons.get("configurations"), "frozen phonon"))
    return ", ".join([*parts, *_phrases(provenance, _SIMULATION)])


def _file_rows(info: FileInfo) -> list[Row]:
    rows = [("samples", f"{len(info.ids)}, {_megabytes(info.bytes)}")]
    if len(info.ids) > 1:
        more = ", ..." if len(info.ids) > MAX_NAMES else ""
        rows.append(("names", ", ".join(info.ids[:MAX_NAMES]) + more))
    return rows


def _dataset_rows(info: DatasetInfo) -> list[Row]:
    absent = f"{info.skipped} cannot be built, {info.failed} failed"
    rows = [("samples", f"{info.samples} of {info.entries} in the manifest; {absent}")]
    for sample_id, reason in list(info.failures.items())[:MAX_NAMES]:
        rows.append(("failed", f"{sample_id}: {reason}"))
    rows.append(("shards", f"{info.shards}, {_megabytes(info.bytes)}"))
    if info.merged:
        merged = [f"{', '.join(names)} into {kept}" for kept, names in info.merged.items()]
        rows.append(("merged", "; ".join(merged)))
    if info.samples:
        rows += strata.table_rows(info.strata)
    return rows


def _sample_lines(sample: SampleInfo) -> list[str]:
    """Returns the lines on one sample: its provenance, and each array with its axes."""
    lines = ["", f"first sample: {sample.id}", *_aligned(sample_rows(sample.provenance))]
    for name, array in sample.arrays.items():
        shape = " × ".join(map(str, array.shape))
        lines += [
            "",
            f"  {name}: {shape} {array.dtype}, {array.units}",
            *_aligned(_axis_rows(array), indent=4),
        ]
    return lines


def _axis_rows(array: ArrayInfo) -> list[Row]:
    rows = []
    for axis, count in zip(array.axes, array.shape, strict=True):
        last = ""
        step = ""
        if axis.sampling is not None:
            last = f" to {axis.origin + axis.sampling * (count - 1):.6g}"
            step = f", step {axis.sampling:.6g}"
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


def _phrases(values: Mapping[str, object], phrases: Mapping[str, str]) -> list[str]:
    """Returns the phrases of the values that were set: zeros, and a binning of 1, were not."""
    texts = []
    for key, phrase in phrases.items():
        item = values.get(key)
        if _is_set(item) and (key, item) != ("binning", 1):
            texts.append(phrase.format(_plain(item)))
    return texts


def _is_set(item: object) -> bool:
    if isinstance(item, list):
        return any(_is_set(member) for member in item)
    return bool(item)


def _plain(item: object) -> str:
    if isinstance(item, list):
        return f"({', '.join(_plain(member) for member in item)})"
    if isinstance(item, float):
        return f"{item:g}"
    return str(item)


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
