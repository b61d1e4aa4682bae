"""Whether the patterns contradict the orientation of the detector that a scan was reconstructed with.

Where the bright disk overlaps with itself depends on the detector's orientation (`namsa.inspection.disk_overlaps`).
With a mirrored detector, or one that is turned by a quarter, aberrations explain less of how the patterns vary along
the scan. The orientation is contradicted if aberrations explain less than `ALIKE` of what they explain in another
orientation, and if the difference is at least `LEAST_GAIN` of the variation of the patterns.

Half a turn cannot be told this way: it explains as much, with the opposite focus. Nor are other angles looked for,
because the overlaps of crystals are alike at some of them.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from namsa.inspection.aberrations import ALIKE, explained_share
from namsa.inspection.disk_overlaps import DiskOverlaps
from train.reconstruction.aberrations import LEAST_GAIN

Array = npt.NDArray[Any]

ORIENTATIONS = (  # what the detector is then; matrices of (y, x)
    ("as told", ((1, 0), (0, 1))),
    ("turned by a quarter", ((0, 1), (-1, 0))),
    ("mirrored", ((-1, 0), (0, 1))),
    ("mirrored", ((0, 1), (1, 0))),  # y and x exchanged
)


def orientation_facts(overlaps: DiskOverlaps, transforms: Array, known: Mapping[str, float]) -> dict[str, Any]:
    """Returns what aberrations explain of a scan, with the detector as it was told and otherwise.

    Args:
        overlaps: The bright disk, for parts of the scan.
        transforms: Of the parts, `(parts, q, k)`.
        known: Aberrations that are not measured, such as C30, Å and rad.

    Returns:
        Shares of the variation's power by name, from 0 to 1: "explained" as told, "explained_otherwise" in the other
        orientation that explains most, and "otherwise", which says what that is.
    """
    told, *others = shares_by_orientation(overlaps, transforms, known)
    best = int(np.argmax(others))
    return {"explained": told, "explained_otherwise": others[best], "otherwise": ORIENTATIONS[1 + best][0]}


def shares_by_orientation(overlaps: DiskOverlaps, transforms: Array, known: Mapping[str, float]) -> list[float]:
    """Returns the share of the variation's power that aberrations explain, in each of `ORIENTATIONS`.

    Arguments as for `orientation_facts`.
    """
    # Turning the scan is turning the detector, but for the frame in which aberrations are given.
    turned = (replace(overlaps, shifts=np.array(turn) @ overlaps.shifts) for _, turn in ORIENTATIONS)
    return [explained_share(each, transforms, known) for each in turned]


def is_contradicted(facts: Mapping[str, Any] | None) -> bool:
    """Returns whether the patterns contradict the orientation, by `orientation_facts`. False for `None`."""
    if facts is None:
        return False
    told, otherwise = facts["explained"], facts["explained_otherwise"]
    return bool(told < ALIKE * otherwise and otherwise - told >= LEAST_GAIN)


def orientation_line(facts: Mapping[str, Any] | None) -> str:
    """Returns the line about an orientation that the patterns contradict; empty if they do not.

    Args:
        facts: From `orientation_facts`; `None` if they were not measured.
    """
    if facts is None or not is_contradicted(facts):
        return ""
    return (
        f"orientation: the patterns contradict it. Aberrations explain {100 * facts['explained']:.0f} % of how they "
        f"vary along the scan, and {100 * facts['explained_otherwise']:.0f} % with a detector that is "
        f"{facts['otherwise']}. Do not rely on the density: measure rotation and mirror with namsa inspect"
    )
