"""Types of `calibration.json`: how often errors are within the uncertainty. It holds exactly these
keys, and their digest (`namsa.base.digested_json`).
"""

from pathlib import Path
from typing import NotRequired

from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from namsa.base.digested_json import read_digested

from ..measure.coverage import Coverage
from ..program import PROGRAM

CALIBRATE_AGAIN = f"remove it, and run {PROGRAM} calibrate again"


class CoverageGroup(Coverage):
    """Coverage of the windows that have something in common."""

    # the quantity: "kind" of the specimen, "familiarity", or a name of the configuration, with its
    # unit
    by: str
    group: str  # its value, or its least and largest value, in words
    windows: int  # number of windows
    least_68: float  # the least fraction, of any of these windows, within one standard deviation
    # mean SSIM of the mean predictions; absent where no window has one, as the following
    ssim: NotRequired[float]
    least_ssim: NotRequired[float]  # the least of them
    # a tenth of them are below; absent in files of earlier versions, too
    tenth_ssim: NotRequired[float]


class OutsideSeparation(TypedDict):
    """The separation of windows outside of the training ranges from windows inside."""

    windows_inside: int  # number of windows of the test split, under conditions that were learnt
    windows_outside: int  # number of windows of the test split with one quantity beyond its range
    # area under the curve: probability that a window outside is farther than one inside
    auroc: float
    auroc_alike: float  # the same where all features count alike
    flagged_outside: float  # fraction of the windows outside that are flagged


class WrongWindows(TypedDict):
    """The separation of windows whose density is wrong from others, without the truth.

    Wrong: the mean absolute error is more than half of the standard deviation of the true density.
    """

    windows: int  # number of windows of the test split whose density has contrast
    wrong: int  # number of those that are wrong
    # area under the curve by the stated error over the contrast
    # (`train.tasks.density.trust.consistency`)
    auroc_contrast: float
    auroc_familiarity: float  # the same by the distance that familiarity is made from


class UncertaintyCalibration(Coverage):
    """Contents of `calibration.json`. The coverage is that of the dev split."""

    # factor from the standard deviation that the network's answers say to that of their mean's
    # error
    scale: float
    uncertainty_factor: float  # the same; the key that reconstruction reads
    method: str  # how the answers were made, in words
    members: int  # number of answers per sample
    split: str  # split that the factor was chosen on
    # number of windows: of the split's samples as they are stored, and with imperfections and dose
    # drawn
    samples: int
    # Multiple of the uncertainty within which 95.45 % of the errors of the dev split lie; what "two
    # standard deviations" are in the coverages. Files of earlier versions lack it; there they are
    # two.
    two_sigma_factor: NotRequired[float]
    # Weight of the variance that the network predicts, beside that between its answers. Absent in
    # files of earlier versions: 1.
    predicted_weight: NotRequired[float]
    test: NotRequired[Coverage]  # coverage on the test split; absent without test samples
    # Fraction of the windows of the test split that are not familiar. Absent without test samples.
    test_flagged: NotRequired[float]
    # Separation of wrong windows of the test split from others. Absent where all are alike.
    wrong_windows: NotRequired[WrongWindows]
    # separation of windows outside of the training ranges; absent where there are none
    outside: NotRequired[OutsideSeparation]
    # Coverage by groups of windows. Absent in files of earlier versions, as the following.
    groups: NotRequired[list[CoverageGroup]]
    groups_split: NotRequired[str]  # split of these windows
    # The middle two thirds of these windows have coverages within one standard deviation between
    # these two. Absent in files of earlier versions.
    windows_68: NotRequired[list[float]]
    data: NotRequired[str]  # folder of the dataset, if it is not the run's
    # What it follows from (`train.apply.identity`). Absent in files of earlier versions.
    made_of: NotRequired[dict[str, object]]
    step: NotRequired[int]  # step of the weights; absent in shipped files of earlier versions
    transmitted_fraction: NotRequired[float]  # mean fraction of the beam that the patterns hold


def read_calibration(path: Path) -> UncertaintyCalibration:
    """Returns the contents of a `calibration.json`. Raises InputError if it holds something
    else, or is not as it was written.
    """
    return read_digested(UncertaintyCalibration, path, CALIBRATE_AGAIN)
