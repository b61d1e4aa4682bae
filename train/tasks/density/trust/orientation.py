"""Whether the patterns contradict the orientation of the detector that a scan was reconstructed
with.

Where the bright disk overlaps with itself depends on the detector's orientation
(`namsa.inspection.disk_overlaps`). With a mirrored detector, or one that is turned by a quarter,
aberrations explain less of how the patterns vary along the scan, if they are within the ranges that
the network has learnt: a focus looks like strong astigmatism in the mirror. The orientation is
contradicted if such aberrations explain less than `ALIKE` of what they explain in another
orientation, and if the difference is more than `aberrations.LEAST_GAIN` of the variation of the
patterns. If other aberrations explain as much in the stated orientation, either it or the
lens is wrong.

Half a turn cannot be recognised this way: it explains as much, with the opposite focus. It is
shown by familiarity: some windows are predicted with the detector turned, too. The orientation is
contradicted if they are nearer to the training data then, by a factor of `LEAST_RATIO` in the
median. If the aberrations lie outside of what was learnt, this says nothing: the opposite of such a
focus may be one that was learnt.

Other angles are not looked for, because the overlaps of crystals are alike at some of them.
"""

import math
from dataclasses import replace
from typing import NotRequired, TypedDict

import numpy as np

from namsa.base.arrays import Array
from namsa.inspection.aberrations import ALIKE, MeasuredAberrations, explained_within
from namsa.inspection.disk_overlaps import DiskOverlaps

from ..scan.mirrors import mirrored_images
from .aberrations import AberrationsOfScan, LearntAberrations, is_beyond, shortfall_score

HALF_TURN = 3  # number of the symmetry that mirrors y and x
LEAST_RATIO = 1.1  # of the distances from the training data
OTHERS = (  # orientations: what the detector is then; matrices of (y, x)
    ("turned by a quarter", ((0, 1), (-1, 0))),
    ("mirrored", ((-1, 0), (0, 1))),
    ("mirrored", ((0, 1), (1, 0))),  # y and x exchanged
)


def turned_by_half(patterns: Array) -> Array:
    """Returns patterns `(..., dy, dx)` as a detector that is turned by half a turn would have
    them.
    """
    return mirrored_images(patterns, HALF_TURN)


class OrientationFacts(TypedDict):
    """Agreement of a scan with the detector as stated and otherwise, as a result's file holds it.

    What is explained is a share of the power of the patterns' variation, from 0 to 1.
    """

    explained: float  # by learnt aberrations, with the detector as stated
    # By any aberrations. Absent in files of earlier versions, as `otherwise` and `lens_outside`.
    explained_by_any: NotRequired[float]
    # by learnt ones, in the other orientation in which they explain most
    explained_otherwise: float
    otherwise: NotRequired[str]  # that orientation, in words
    lens_outside: NotRequired[bool]  # whether the aberrations lie outside of what was learnt
    # Median ratio of the distances to the training data, turned by half a turn over as stated.
    # Absent without windows.
    half_turn: NotRequired[float]


def orientation_facts(
    overlaps: DiskOverlaps,  # the bright disk, for parts of the scan
    transforms: Array,  # of the parts, `(parts, q, k)`
    learnt: LearntAberrations,  # the aberrations that the network has learnt
    measured: MeasuredAberrations | None,  # those that the scan shows with the detector as stated
    # Of windows from the training data, as stated and with the detector turned by half a turn, `(n,
    # 2)`. There may be none.
    distances: Array,
) -> OrientationFacts:
    """Returns how well a scan goes with the detector as stated and otherwise."""
    stated, *others = explained_shares(overlaps, transforms, learnt)
    best = int(np.argmax(others))
    facts: OrientationFacts = {
        "explained": stated,
        "explained_by_any": measured.most if measured else 0.0,
        "explained_otherwise": others[best],
        "otherwise": OTHERS[best][0],
        "lens_outside": is_beyond(AberrationsOfScan.facts(measured)),
    }
    if len(distances):
        facts["half_turn"] = float(np.median(distances[:, 1] / distances[:, 0]))
    return facts


def explained_shares(
    overlaps: DiskOverlaps, transforms: Array, learnt: LearntAberrations
) -> list[float]:
    """Returns the share of the variation's power that learnt aberrations explain, as stated and in
    each of `OTHERS`.

    Those of the opposite sign count as learnt, so that half a turn changes nothing. Arguments as
    for `orientation_facts`.
    """
    limits = learnt.limits.of_either_sign()
    # Turning the scan is turning the detector, but for the frame in which aberrations are given.
    turned = (replace(overlaps, shifts=np.array(turn) @ overlaps.shifts) for _, turn in OTHERS)
    return [
        explained_within(spectrum, transforms, learnt.known, limits)
        for spectrum in (overlaps, *turned)
    ]


def orientation_score(facts: OrientationFacts | None) -> float:
    """Returns a number above 1 if the patterns contradict the orientation, by `orientation_facts`;
    0 for `None`.
    """
    if facts is None:
        return 0.0
    score = max(0.0, _overlaps_score(facts))
    if facts.get("lens_outside"):
        return score
    return max(score, _half_turn_score(facts))


def is_contradicted(facts: OrientationFacts | None) -> bool:
    """Returns whether the patterns contradict the orientation, by `orientation_facts`. False for
    `None`.
    """
    return orientation_score(facts) > 1


def _half_turn_score(facts: OrientationFacts) -> float:
    """Returns a number above 1 if patterns look more like the training data after half a turn."""
    return -math.log(max(facts.get("half_turn", 1.0), 1e-6)) / math.log(LEAST_RATIO)


def _overlaps_score(facts: OrientationFacts) -> float:
    stated = float(facts["explained"])
    otherwise = float(facts["explained_otherwise"])
    if stated < otherwise:
        return shortfall_score(stated / otherwise, otherwise)
    return 0.0


def orientation_line(facts: OrientationFacts | None) -> str:
    """Returns the line about an orientation that patterns contradict, by `orientation_facts`; empty
    if they do not.
    """
    if facts is None:
        return ""
    if not is_contradicted(facts):
        if _half_turn_score(facts) > 1:
            return (
                "orientation: half a turn of the detector cannot be told from a focus outside of "
                "what the network learnt: check the rotation, which namsa inspect measures"
            )
        return ""
    verdict = "the patterns contradict it"
    advice = "check rotation and mirror, which namsa inspect measures"
    if _overlaps_score(facts) > 1:
        reason = (
            f"Aberrations that the network learnt explain {100 * facts['explained']:.0f} % of how "
            f"the patterns vary along the scan, and {100 * facts['explained_otherwise']:.0f} % "
            f"with a detector that is {facts['otherwise']}"
        )
        if (by_any := facts.get("explained_by_any", 0.0)) >= ALIKE * facts["explained_otherwise"]:
            verdict = "it or the lens is wrong"
            advice = f"{advice}, and correct the lens if they are right"
            reason += f"; other aberrations explain {100 * by_any:.0f} % with the stated one"
    else:
        reason = (
            "With the detector turned by 180° the patterns are nearer to what the network learnt: "
            f"the distance is {facts['half_turn']:.2f} of that with the stated one"
        )
    return f"orientation: {verdict}. {reason}. Do not rely on the density: {advice}"
