"""What a dataset or an HDF5 file holds, as JSON and in words: samples, what they are of, arrays with axes and units."""

import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from namsa.dataset import manifest, shards, strata
from namsa.dataset.failures import not_made
from namsa.io import hdf5
from namsa.pixels import UNITS, array_axes
from namsa.text import plural

Tree = dict[str, Any]

# What is said of a sample where it was used: by name in the provenance, or in its detector.
_LENS = {
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
    "electrons_per_pattern": "{} electrons a pattern",
    "dose_electrons_per_angstrom2": "{} electrons/Å²",
}
_SIMULATION = {"form_factors": "{} form factors", "projection": "{} projection", "precision": "{}"}
_LISTED = 5  # failures; `namsa verify` lists all
_ORIGIN = {"config_hash": "configuration {}", "split": "{} split"}


def dataset(directory: Path) -> Tree:
    """A dataset's counts, their spread, the names of its samples, and the first. Raises InputError where it is none."""
    header, entries = manifest.read_header(directory), manifest.read(directory)
    paths = shards.shard_paths(directory)
    with shards.Dataset(directory) as data:
        present = [entry for entry in entries if entry.id in data]
        first = _record(data, present[0].id) if present else None
        failures = not_made(directory, header["samples_hash"], data.ids)
    return {
        "path": str(directory),
        "entries": len(entries),
        "skipped": sum(bool(entry.skipped) for entry in entries),
        "failed": len(failures),
        "failures": failures,
        "samples": len(present),
        "materials": len({entry.material for entry in present}),
        "splits": {name: sum(entry.split == name for entry in present) for name in ("train", "dev", "test")},
        "strata": strata.count_strata(present),
        "merged": header.get("merged", {}),
        "ids": [entry.id for entry in present],
        "shards": len(paths),
        "bytes": sum(path.stat().st_size for path in paths),
        "first": first,
    }


def _record(data: shards.Dataset, name: str) -> Tree:
    with data.view(name) as record:
        return _sample(name, record.provenance, {key: getattr(record, key) for key in UNITS})


def file(path: Path) -> Tree:
    """The samples of an HDF5 file that namsa wrote; its arrays are not read. Raises InputError where it is none."""
    with hdf5.open_samples(path) as groups:
        samples = [
            _sample(name, json.loads(group.attrs["provenance"]), {key: group[key]["data"] for key in UNITS})
            for name, group in groups.items()
        ]
    return {"path": str(path), "bytes": path.stat().st_size, "samples": len(samples), "contents": samples}


def _sample(name: str, provenance: Tree, arrays: Mapping[str, Any]) -> Tree:
    """A description of `arrays`, of which only shape and dtype are asked; an axis' values are origin + i·sampling."""
    described = {
        key: {
            "dtype": np.dtype(arrays[key].dtype).name,
            "shape": [len(along) for _, _, along in dimensions],
            "units": UNITS[key],
            "axes": [
                {
                    "name": axis,
                    "units": units,
                    "origin": float(along[0]),
                    "sampling": float(along[1] - along[0]) if len(along) > 1 else None,
                }
                for axis, units, along in dimensions
            ],
        }
        for key, dimensions in array_axes(provenance, {key: array.shape for key, array in arrays.items()}).items()
    }
    return {"id": name, "arrays": described, "provenance": provenance}


def text(found: Tree) -> str:
    """`found` for a reader at a terminal; of an HDF5 file's samples the first is described and all are named."""
    size = f"{found['bytes'] / 1e6:,.1f} MB"
    if "contents" in found:
        ids = [sample["id"] for sample in found["contents"]]
        first, facts = found["contents"][0], [("samples", f"{len(ids)}, {size}")]
        if len(ids) > 1:
            facts.append(("names", ", ".join(ids[:5]) + (", ..." if len(ids) > 5 else "")))
    else:
        first = found["first"]
        not_made = f"{found['skipped']} cannot be built, {found['failed']} failed"
        facts = [
            ("samples", f"{found['samples']} of {found['entries']} in the manifest; {not_made}"),
            *(("failed", f"{sample_id}: {why}") for sample_id, why in list(found["failures"].items())[:_LISTED]),
            ("shards", f"{found['shards']}, {size}"),
        ]
        if found["merged"]:
            merged = (f"{', '.join(names)} into {kept}" for kept, names in found["merged"].items())
            facts.append(("merged", "; ".join(merged)))
        if found["samples"]:
            facts += strata.table_rows(found["strata"])
    lines = [found["path"], *_aligned(facts)]
    if first:
        lines += ["", f"first sample: {first['id']}", *_aligned(_facts(first["provenance"]))]
        for name, array in first["arrays"].items():
            shape = " × ".join(map(str, array["shape"]))
            lines += ["", f"  {name}: {shape} {array['dtype']}, {array['units']}", *_aligned(_axes(array), indent=4)]
    return "\n".join(lines)


def ids(found: Tree) -> list[str]:
    """The names of the samples that are there."""
    return found["ids"] if "ids" in found else [sample["id"] for sample in found["contents"]]


def _aligned(facts: Sequence[tuple[str, str]], indent: int = 2) -> list[str]:
    width = max(len(name) for name, _ in facts)
    lines = []
    for name, value in facts:
        start = f"{' ' * indent}{name:<{width}}  "
        lines += textwrap.wrap(value, 120, initial_indent=start, subsequent_indent=" " * len(start)) or [start.rstrip()]
    return lines


def _axes(array: Tree) -> list[tuple[str, str]]:
    rows = []
    for axis, count in zip(array["axes"], array["shape"], strict=True):
        first, step, units = axis["origin"], axis["sampling"], axis["units"]
        last = "" if step is None else f" to {first + step * (count - 1):.6g}"
        along = f"{first:.6g}{last} {units}".rstrip() + ("" if step is None else f", step {step:.6g}")
        rows.append((axis["name"], along))
    return rows


def _facts(p: Tree) -> list[tuple[str, str]]:
    """What there is to say of a sample; only a dataset's samples have a material."""
    y, x = p["extent_angstrom"]
    zone = "[" + " ".join(map(str, p["zone_axis"])) + "]" if "zone_axis" in p else ""
    material = [p.get("formula"), p.get("space_group"), zone]
    specimen = [
        *material,
        f"{y:.2f} × {x:.2f} Å (y, x), {p['thickness_angstrom']:.2f} Å thick",
        f"{p['atoms']:,} atoms",
    ]
    lens = [f"{p['energy_ev'] / 1e3:g} keV", f"semiangle {p['semiangle_mrad']:g} mrad", *_given(p, _LENS)]
    lens += [f"{name} {value:g}" for name, value in p["aberrations"].items()]
    (ny, nx), slices = p["grid_shape"], p["slices"]
    grid = f"{ny} × {nx} pixels, {plural(slices, 'slice')} of {p['slice_thickness_angstrom']:.3f} Å"
    if phonons := p.get("frozen_phonons"):
        grid += f", {plural(phonons['configurations'], 'frozen phonon')}"
    return [
        ("specimen", ", ".join(part for part in specimen if part)),
        *([("crystal", p["source"])] if p.get("source") else []),
        ("microscope", ", ".join(lens)),
        *([("detector", ", ".join(_given(p["detector"], _DETECTOR)))] if p.get("detector") else []),
        ("simulation", ", ".join([grid, *_given(p, _SIMULATION)])),
        *(("warning", warning) for warning in p.get("warnings", ())),
        ("made by", ", ".join([f"namsa {p['software']['namsa']}", f"seed {p['seed']}", *_given(p, _ORIGIN)])),
    ]


def _given(values: Mapping[str, Any], phrases: Mapping[str, str]) -> list[str]:
    """The phrases of what was set: zeros, and a binning of 1, are nothing."""
    there = {key: value for key, value in values.items() if np.any(value) and (key, value) != ("binning", 1)}
    return [phrase.format(_plain(there[key])) for key, phrase in phrases.items() if key in there]


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return "(" + ", ".join(map(_plain, value)) + ")"
    return f"{value:g}" if isinstance(value, float) else str(value)
