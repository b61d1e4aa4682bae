"""Aberrations and rotation that `namsa inspect` measures of simulated scans, beside the true ones.

    scripts/uv run python scripts/bench/inspect_cases.py [--names CASE ...] [--work DIR] [--json]

The scans are those of `reality_cases.py`; the files stay in --work. Inspect is told
energy and semiangle. The table has what is measured, the error that is stated of it, and the true
value, Å; C10 is that of the middle of the specimen. The detector is not turned, which the files
state. The rotation is measured from the same patterns without a file. "ratio" is the share of files
whose focus is within its stated error.
"""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import frame
import numpy as np
from reality_cases import CASES, Case, write_cases

import namsa

QUANTITIES = ("defocus_angstrom", "astigmatism_angstrom", "coma_angstrom")
NEAR_DEG = 2.0  # errors of a rotation that is right


class Measured(NamedTuple):
    """A measured value beside the true one, Å."""

    value: float
    stated_error: float
    truth: float

    def error(self) -> float:
        return abs(self.value - self.truth)

    def is_within(self) -> bool:
        """Returns whether the error is within that which is stated."""
        return self.error() <= self.stated_error


class Rotation(NamedTuple):
    """The rotation of the detector that is measured of patterns that state none; the true is 0."""

    deg: float  # NaN where the detector was called mirrored, or no rotation was found
    noted: bool  # whether a note calls 180° unsure


def main() -> int:
    parser = frame.parser(__doc__)
    parser.add_argument("--names", nargs="+", metavar="CASE", help="some cases; default: all")
    parser.add_argument("--work", type=Path, default=Path("data/reality-cases"), metavar="DIR")
    options = parser.parse_args()
    cases = [case for case in CASES if options.names is None or case.name in options.names]
    options.work.mkdir(parents=True, exist_ok=True)
    write_cases(cases, options.work, lambda name: print(f"simulated {name}", file=sys.stderr))
    table = frame.table("case", "defocus, true", "C12, true", "C21, true", "rotation, °")
    rows: list[dict[str, Any]] = []
    for case in cases:
        path = options.work / f"{case.name}.h5"
        values = measured_values(case, path)
        rotation = measured_rotation(case, path)
        cells = []
        for name in QUANTITIES:
            value = values.get(name)
            if value is None:
                cells.append("–")
            else:
                cells.append(f"{value.value:.0f} ± {value.stated_error:.0f}, {value.truth:.0f}")
        unsure = ", 180° unsure" if rotation.noted else ""
        table.add_row(case.name, *cells, f"{rotation.deg:.1f}{unsure}")
        rows.append({"case": case.name, "rotation": rotation._asdict(), **values})
    frame.show(table)
    for name in QUANTITIES:
        tell(name, [row[name] for row in rows if name in row])
    right = sum(abs(row["rotation"]["deg"]) < NEAR_DEG for row in rows)
    turned = sum(abs(row["rotation"]["deg"]) > 90 for row in rows)
    print(
        f"rotation: of {len(rows)} files {right} within {NEAR_DEG:g}°, {turned} turned by more "
        "than 90°"
    )
    focus = [row[QUANTITIES[0]].is_within() for row in rows if QUANTITIES[0] in row]
    frame.finish(options, {"ratio": float(np.mean(focus)), "rows": rows})
    return 0


def measured_values(case: Case, path: Path) -> dict[str, Measured]:
    """Returns the aberrations that are measured of a file as it is."""
    condition = case.condition
    inspection = namsa.inspect(
        path, energy_ev=condition.energy_ev, semiangle_mrad=condition.semiangle_mrad
    ).as_json()
    middle = condition.defocus - case.thickness / 2
    truths = (middle, condition.astigmatism, condition.coma)
    values = {}
    for name, truth in zip(QUANTITIES, truths, strict=True):
        if name in inspection:
            values[name] = Measured(inspection[name], inspection[f"{name}_error"], truth)
    return values


def measured_rotation(case: Case, path: Path) -> Rotation:
    """Returns the rotation that is measured of the patterns of a file alone."""
    with namsa.read(path) as recording:
        inspection = namsa.inspect(
            recording.read(slice(None), slice(None)),
            energy_ev=case.condition.energy_ev,
            semiangle_mrad=case.condition.semiangle_mrad,
            scan_step_angstrom=recording.scan_step_angstrom,
            pixel_mrad=recording.pixel_mrad,
        ).as_json()
    degrees = inspection.get("rotation_deg")
    if degrees is None or inspection["mirrored"]:
        degrees = np.nan
    noted = any("180°" in note for note in inspection["notes"])
    return Rotation(float(degrees), noted)


def tell(name: str, values: list[Measured]) -> None:
    """Prints the errors of a quantity."""
    if not values:
        return
    median, most = np.quantile([value.error() for value in values], (0.5, 0.9))
    within = np.mean([value.is_within() for value in values])
    print(
        f"{name}: {len(values)} files, error {median:.1f} (median), {most:.1f} (90 %), within the "
        f"stated one in {within:.2f}"
    )


if __name__ == "__main__":
    sys.exit(main())
