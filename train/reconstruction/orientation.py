"""Whether the patterns contradict the orientation of the detector that a scan was reconstructed with.

Where the bright disk overlaps with itself depends on the detector's orientation (`namsa.inspection.disk_overlaps`).
With a mirrored detector, or one that is turned by a quarter, aberrations explain less of how the patterns vary along
the scan. The orientation is contradicted if aberrations explain less than `ALIKE` of what they explain in another
orientation, and if the difference is at least `LEAST_GAIN` of the variation of the patterns.

Half a turn cannot be told this way: it explains as much, with the opposite focus. It is told by familiarity: some
windows are predicted with the detector turned, too. The orientation is contradicted if they are nearer to the training
data then, by a factor of `LEAST_RATIO` in the median.

Other angles are not looked for, because the overlaps of crystals are alike at some of them.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from namsa.inspection.aberrations import ALIKE, explained_share
from namsa.inspection.disk_overlaps import DiskOverlaps
from train.reconstruction.aberrations import LEAST_GAIN
from train.reconstruction.mirrors import mirrored_images

Array = npt.NDArray[Any]

HALF_TURN = 3  # number of the symmetry that mirrors y and x
LEAST_RATIO = 1.1  # of the distances from the training data
OTHERS = (  # orientations: what the detector is then; matrices of (y, x)
    ("turned by a quarter", ((0, 1), (-1, 0))),
    ("mirrored", ((-1, 0), (0, 1))),
    ("mirrored", ((0, 1), (1, 0))),  # y and x exchanged
)


def turned_by_half(patterns: Array) -> Array:
    """Returns patterns `(..., dy, dx)` as a detector that is turned by half a turn would have them."""
    return mirrored_images(patterns, HALF_TURN)


def orientation_facts(
    overlaps: DiskOverlaps, transforms: Array, known: Mapping[str, float], told: float, distances: Array
) -> dict[str, Any]:
    """Returns how well a scan goes with the detector as it was told and otherwise.

    Args:
        overlaps: The bright disk, for parts of the scan.
        transforms: Of the parts, `(parts, q, k)`.
        known: Aberrations that are not measured, such as C30, Å and rad.
        told: Share that aberrations explain with the detector as it was told: `MeasuredAberrations.most`.
        distances: Of windows from the training data, as told and with the detector turned by half a turn, `(n, 2)`.
            There may be none.

    Returns:
        Shares of the variation's power by name, from 0 to 1: "explained" as told, "explained_otherwise" in the other
        orientation that explains most, and "otherwise", which says what that is. "half_turn" is the median ratio of the
        distances, turned over as told; it is missing if there are none.
    """
    others = other_shares(overlaps, transforms, known)
    best = int(np.argmax(others))
    facts = {"explained": told, "explained_otherwise": others[best], "otherwise": OTHERS[best][0]}
    return facts | ({"half_turn": float(np.median(distances[:, 1] / distances[:, 0]))} if len(distances) else {})


def other_shares(overlaps: DiskOverlaps, transforms: Array, known: Mapping[str, float]) -> list[float]:
    """Returns the share of the variation's power that aberrations explain, in each of `OTHERS`.

    Arguments as for `orientation_facts`.
    """
    # Turning the scan is turning the detector, but for the frame in which aberrations are given.
    turned = (replace(overlaps, shifts=np.array(turn) @ overlaps.shifts) for _, turn in OTHERS)
    return [explained_share(each, transforms, known) for each in turned]


def is_contradicted(facts: Mapping[str, Any] | None) -> bool:
    """Returns whether the patterns contradict the orientation, by `orientation_facts`. False for `None`."""
    return facts is not None and (_overlaps_contradict(facts) or _familiarity_contradicts(facts))


def _overlaps_contradict(facts: Mapping[str, Any]) -> bool:
    told, otherwise = facts["explained"], facts["explained_otherwise"]
    return bool(told < ALIKE * otherwise and otherwise - told >= LEAST_GAIN)


def _familiarity_contradicts(facts: Mapping[str, Any]) -> bool:
    return bool(LEAST_RATIO * facts.get("half_turn", 1.0) < 1)


def orientation_line(facts: Mapping[str, Any] | None) -> str:
    """Returns the line about an orientation that the patterns contradict; empty if they do not.

    Args:
        facts: From `orientation_facts`; `None` if they were not measured.
    """
    if facts is None or not is_contradicted(facts):
        return ""
    if _overlaps_contradict(facts):
        reason = (
            f"Aberrations explain {100 * facts['explained']:.0f} % of how they vary along the scan, and "
            f"{100 * facts['explained_otherwise']:.0f} % with a detector that is {facts['otherwise']}"
        )
    else:
        reason = (
            "With the detector turned by 180° they are nearer to what the network learnt: the distance is "
            f"{facts['half_turn']:.2f} of that as told"
        )
    return (
        f"orientation: the patterns contradict it. {reason}. Do not rely on the density: check rotation and mirror, "
        "which namsa inspect measures"
    )
