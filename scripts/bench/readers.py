"""Checks that py4DSTEM and HyperSpy open namsa's HDF5 files with the axes and units that were
written.

    scripts/uv run python scripts/bench/readers.py [--json]

There are four files: a scan with equal steps as `namsa simulate` writes it, one with different
steps, patterns without a raster, and two samples of which the name of one ends with that of the
other. Both readers are GPL and run in an environment that uv creates. Length, name, units, scale
and offset of every axis are compared, and the origin and the semiangle of py4DSTEM's calibration.
"ratio" is the fraction of checks that passed; the exit code is 1 if it is not 1.

py4DSTEM's DataCube has its own names for its axes, and no origin for a scan. Its reciprocal axes
begin at the origin in pixels but have steps in mrad (0.14.18: DataCube.calibrate mixes the two), so
the origin is checked where it is stored.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import frame
import numpy as np

from namsa.base.pixels import UNITS, ArrayAxis, array_axes
from namsa.io import hdf5
from namsa.samples import sample_file
from namsa.samples.sample import Sample

READERS = ("py4dstem==0.14.18", "hyperspy==2.5.0", "rosettasciio==0.15.0", "numpy<2")
CONFIG = frame.ROOT / "configs/quickstart.yaml"
RASTER = (
    "scan.shape=[24, 20]",
    "scan.step_angstrom=[0.4, 0.4]",
    "detector.shape=[20, 18]",
    "specimen.thickness_angstrom=[6]",
)
UNEVEN = (*RASTER, "scan.step_angstrom=[0.4, 0.3]")


def main() -> int:
    options = frame.parser(__doc__).parse_args()
    readers = frame.environment(READERS, "py4DSTEM")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = list(files(folder))
        worker = subprocess.run(
            [*readers, str(frame.WORKERS / "foreign_readers.py")],
            input="".join(f"{path}\n" for path in paths),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        answers = frame.json_lines(worker.stdout)
        rows: list[dict[str, Any]] = []
        for path, answer in zip(paths, answers, strict=True):
            rows += compare(path, answer)
    passed = sum(not row["faults"] for row in rows)
    table = frame.table("file", "reader", "array", "opens as", "shape", "axes")
    for row in rows:
        result = "; ".join(row["faults"]) or row["says"]
        table.add_row(row["file"], row["reader"], row["array"], row["class"], row["shape"], result)
    frame.show(table)
    versions = {reader: answers[0][reader]["version"] for reader in answers[0]}
    programs = ", ".join(f"{reader} {version}" for reader, version in versions.items())
    print(f"{passed} of {len(rows)} as written; {programs}")
    frame.finish(options, {"ratio": passed / len(rows), "versions": versions, "checks": rows})
    return 0 if passed == len(rows) else 1


def files(folder: Path) -> Iterator[Path]:
    """Writes the files to be read, and yields their paths."""
    positions = folder / "positions.csv"
    np.savetxt(positions, np.random.default_rng(1).uniform(0, 10, (7, 2)), delimiter=",")
    loose = ("scan={file: " + str(positions) + "}", "target.at=grid", *RASTER[2:])
    for name, overrides in (("raster.emd", RASTER), ("uneven.emd", UNEVEN), ("loose.emd", loose)):
        path = folder / name
        settings = frame.override_words(overrides)
        command = [sys.executable, "-m", "namsa", "simulate", str(CONFIG), *settings]
        command += ["--out", str(path)]
        subprocess.run(command, check=True, stdout=sys.stderr)
        yield path
    ((_, sample),) = sample_file.read_samples(folder / "raster.emd")
    several = folder / "several.emd"
    hdf5.write_samples(
        several, [("C-diamond", sample), ("SiC-diamond", replace(sample, cbed=sample.cbed[::-1]))]
    )
    yield several


def compare(path: Path, answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A row for each array that each reader should have found in `path`."""
    for tree, sample in sample_file.read_samples(path):
        shapes = {name: getattr(sample, name).shape for name in UNITS}
        for reader, contents in answer.items():
            for name, written in array_axes(sample.provenance, shapes).items():
                seen = contents["trees"].get(tree, {}).get(name)
                row = {"file": path.name, "reader": reader, "array": f"{tree}/{name}"}
                if seen is None:
                    yield row | {"class": "", "shape": "", "faults": ["not found"]}
                    continue
                shape = "×".join(map(str, seen["shape"]))
                axes = []
                for a in seen["axes"]:
                    axes.append(f"{a['name']} {a['offset']:.4g} + {a['scale']:.4g} {a['units']}")
                yield row | {
                    "class": seen["class"],
                    "shape": shape,
                    "says": ", ".join(axes),
                    "faults": [*faults(sample, written, seen)],
                }


def faults(sample: Sample, written: list[ArrayAxis], seen: dict[str, Any]) -> Iterator[str]:
    if seen["shape"] != [len(along) for _, _, along in written]:
        yield f"shape {seen['shape']}"
        return
    cube = seen["class"] == "DataCube"
    for axis_index, ((name, units, along), axis) in enumerate(
        zip(written, seen["axes"], strict=True)
    ):
        wanted: dict[str, str | float] = {
            "units": units.replace("Å", "A") if cube else units,
            "scale": float(np.diff(along).mean()),
        }
        if not cube:
            wanted |= {"name": name, "offset": float(along[0])}
        for key, value in wanted.items():
            if isinstance(value, str):
                same = axis[key] == value
            else:
                same = bool(np.isclose(axis[key], float(value), rtol=1e-6))
            if not same:
                yield f"axis {axis_index}: {key} {axis[key]!r} instead of {value!r}"
    if cube:
        pitch = sample.provenance["detector_sampling_mrad"]
        origin = sample.provenance["detector_origin_mrad"]
        if not np.allclose(np.multiply(seen["origin_pixels"], pitch), np.negative(origin)):
            yield f"origin {seen['origin_pixels']} pixels"
        if not np.isclose(seen["semiangle_pixels"] * pitch[0], sample.provenance["semiangle_mrad"]):
            yield f"semiangle {seen['semiangle_pixels']} pixels"


if __name__ == "__main__":
    sys.exit(main())
