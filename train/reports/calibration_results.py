"""Types of `calibration.json`: how often errors are within the uncertainty. It holds exactly these keys."""

from pathlib import Path
from typing import NotRequired

from pydantic import TypeAdapter
from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from namsa.dataset.typed_values import read_typed

from ..measure.coverage import Coverage
from ..program import PROGRAM


class CoverageGroup(Coverage):
    """Coverage of the windows that have something in common.

    Attributes:
        by: The quantity: "kind" of the specimen, "familiarity", or a name of the configuration, with its unit.
        group: Its value, or its least and largest value, in words.
        windows: Number of windows.
        least_68: The least fraction, of any of these windows, within one standard deviation.
        ssim: Mean SSIM of the mean predictions. Absent where no window has one, as the following.
        least_ssim: The least of them.
    """

    by: str
    group: str
    windows: int
    least_68: float
    ssim: NotRequired[float]
    least_ssim: NotRequired[float]


class ToldApart(TypedDict):
    """How well windows outside of what was learnt are told from windows inside.

    Attributes:
        windows_inside: Number of windows of the test split, under conditions that were learnt.
        windows_outside: Number of windows of the test split with one quantity beyond its range.
        auroc: Area under the curve: probability that a window outside is farther than one inside.
        auroc_alike: The same where all features count alike.
        flagged_outside: Fraction of the windows outside that are flagged.
    """

    windows_inside: int
    windows_outside: int
    auroc: float
    auroc_alike: float
    flagged_outside: float


class WrongWindows(TypedDict):
    """How well windows whose density is wrong are told from others without knowing it.

    Wrong: the mean absolute error is more than half of the standard deviation of the true density.

    Attributes:
        windows: Number of windows of the test split whose density has contrast.
        wrong: Number of those that are wrong.
        auroc_contrast: Area under the curve by the stated error over the contrast (`train.apply.contrast`).
        auroc_familiarity: The same by the distance that familiarity is made from.
    """

    windows: int
    wrong: int
    auroc_contrast: float
    auroc_familiarity: float


class Calibration(Coverage):
    """Contents of `calibration.json`. The coverage is that of the dev split.

    Attributes:
        scale: Factor from the standard deviation that the network's answers say to that of their mean's error.
        uncertainty_factor: The same; the key that reconstruction reads.
        two_sigma_factor: Multiple of the uncertainty within which 95.45 % of the errors of the dev split lie; what
            "two standard deviations" are in the coverages. Files of earlier versions lack it; there they are two.
        method: How the answers were made, in words.
        members: Number of answers per sample.
        split: Split that the factor was chosen on.
        samples: Number of windows: of the split's samples as they are stored, and with imperfections and dose drawn.
        predicted_weight: Weight of the variance that the network predicts, beside that between its answers. Absent in
            files of earlier versions: 1.
        test: Coverage on the test split. Absent without test samples.
        test_flagged: Fraction of the windows of the test split that are not familiar. Absent without test samples.
        wrong_windows: How well wrong windows of the test split are told from others. Absent where all are alike.
        outside: How well windows outside are told apart. Absent where there are none.
        groups: Coverage by groups of windows. Absent in files of earlier versions, as the following.
        groups_split: Split of these windows.
        windows_68: The middle two thirds of these windows have coverages within one standard deviation between these
            two. Absent in files of earlier versions.
        data: Folder of the dataset, if it is not the run's.
        step: Step of the weights. Absent in shipped files of earlier versions.
        transmitted_fraction: Mean fraction of the beam that the patterns hold.
    """

    scale: float
    uncertainty_factor: float
    method: str
    members: int
    split: str
    samples: int
    two_sigma_factor: NotRequired[float]
    predicted_weight: NotRequired[float]
    test: NotRequired[Coverage]
    test_flagged: NotRequired[float]
    wrong_windows: NotRequired[WrongWindows]
    outside: NotRequired[ToldApart]
    groups: NotRequired[list[CoverageGroup]]
    groups_split: NotRequired[str]
    windows_68: NotRequired[list[float]]
    data: NotRequired[str]
    step: NotRequired[int]
    transmitted_fraction: NotRequired[float]


def read_calibration(path: Path) -> Calibration:
    """Returns the contents of a `calibration.json`.

    Raises:
        InputError: If the file cannot be read or holds something else.
    """
    return read_typed(TypeAdapter(Calibration), path, f"run {PROGRAM} calibrate again")
