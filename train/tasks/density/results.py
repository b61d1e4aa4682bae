"""Types of the results of a density: `evaluation.json`, and rows of its model card.

Lengths are in Å, densities in e/Å². A number that is not defined for a sample is `None` (null in JSON); see
`train.measure.metrics`.
"""

import json
from pathlib import Path
from typing import Literal, NotRequired

from pydantic import TypeAdapter
from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from namsa.dataset.typed_values import parse_typed
from namsa.errors import InputError
from namsa.json_files import read_json
from namsa.text import shorten

from ...measure.results import PerformanceSummary, RunFacts
from ...reports.results import EVALUATE_AGAIN
from .depth_metrics import DepthScores, DepthSummary

# Of the summary of a run's performance; later versions added others.
PERFORMANCE_KEYS = (
    *("t_comp_s", "t_comm_s", "t_misc_s", "waiting_for_data_s", "samples_per_s", "step_s"),
    *("sustained_flop_per_s", "memory_mib_per_rank"),
)

MetricName = Literal["huber", "mae", "psnr", "ssim", "pearson", "r_factor"]


class Scores(TypedDict):
    """Metrics of one density, or their means over samples.

    Attributes:
        huber: Huber loss of `train.measure.metrics`, in the units of the training.
        mae: Mean absolute error, e/Å².
        psnr: Peak signal-to-noise ratio, dB.
        ssim: Structural similarity.
        pearson: Correlation coefficient of the pixels.
        r_factor: Σ|error| / Σ|truth|.
        column_error_angstrom: Median position error of the atomic columns that were found, Å. This and the following
            keys are present only if the atoms are known; see `train.measure.atomic_columns`.
        columns_found: Fraction of the columns that were found.
        columns_spurious: Fraction of the maxima that belong to no column.
        column_rank: Rank correlation of peak heights and electrons per column.
    """

    huber: float | None
    mae: float | None
    psnr: float | None
    ssim: float | None
    pearson: float | None
    r_factor: float | None
    column_error_angstrom: NotRequired[float | None]
    columns_found: NotRequired[float | None]
    columns_spurious: NotRequired[float | None]
    column_rank: NotRequired[float | None]


class ComparedScores(Scores):
    """Scores of the network, with those of the mean-image predictor.

    Attributes:
        mean_predictor: Scores of the mean of the training targets.
    """

    mean_predictor: Scores


# ---- evaluation.json ------------------------------------------------------------------------------------------------


class SampleRow(ComparedScores):
    """One held-out sample.

    Attributes:
        id: Identifier of the sample in its dataset.
        material: Name of the material.
        formula: Chemical formula.
        space_group: Hermann–Mauguin symbol.
        split: "dev" or "test", from the manifest in use.
        zone_axis: Miller indices of the beam direction.
        thickness_angstrom: Thickness of the simulated specimen, Å.
        wanted_thickness_angstrom: Nominal thickness of the sample, Å.
        conditions: Kind of the specimen, nominal thickness and magnitudes of the varied quantities, by the
            configuration's names. Absent in files of earlier versions.
        consistency_r: R factor between the patterns and those simulated from the estimated density; see
            `namsa.inverse.consistency`. Written by `train calibrate`.
        consistency_empty_r: The same for no specimen.
        by_depth: Scores of a density by depth; see `train.tasks.density.depth_metrics`.
    """

    id: str
    material: str
    formula: str
    space_group: str
    split: str
    zone_axis: list[int]
    thickness_angstrom: float
    wanted_thickness_angstrom: float
    conditions: NotRequired[dict[str, str | float]]
    consistency_r: NotRequired[float]
    consistency_empty_r: NotRequired[float]
    by_depth: NotRequired[DepthScores]


class GroupRow(ComparedScores):
    """Means over a group of samples.

    Attributes:
        samples: Number of samples in the group.
    """

    samples: int


class SplitRow(GroupRow):
    """Means over a split."""

    split: str


class MaterialRow(GroupRow):
    """Means over the samples of a material."""

    material: str
    formula: str
    space_group: str
    split: str


class ThicknessRow(GroupRow):
    """Means over the samples of the reported split with one nominal thickness, Å."""

    wanted_thickness_angstrom: float


class ConditionRow(GroupRow):
    """Means over the samples of the reported split that have something in common.

    Attributes:
        by: The quantity, as in `SampleRow.conditions`.
        group: Its value, or its least and largest value, in words.
        least_ssim: The least SSIM of any of these samples; `None` if none is defined.
    """

    by: str
    group: str
    least_ssim: float | None


class Summary(TypedDict):
    """Means over the reported split and over groups of samples.

    Attributes:
        split: The reported split: "test" if it has samples, otherwise "dev"; `None` if neither has.
        mean: Means of the network's scores over the reported split.
        mean_predictor: Means of the mean image's scores over the reported split.
        by_split: One row per split.
        by_material: One row per material.
        by_thickness: One row per nominal thickness of the reported split; none if there are many, as of thicknesses
            from a range. `train.tasks.density.summary.by_condition` divides these into ranges.
    """

    split: str | None
    mean: Scores
    mean_predictor: Scores
    by_split: list[SplitRow]
    by_material: list[MaterialRow]
    by_thickness: list[ThicknessRow]


class HeldOutResults(Summary):
    """Results on held-out samples.

    Attributes:
        samples: One row per held-out sample, ordered by id.
        by_depth: Of a network of densities by depth, means over the reported split.
    """

    samples: list[SampleRow]
    by_depth: NotRequired[DepthSummary]


class Evaluation(HeldOutResults):
    """Contents of `evaluation.json`.

    Attributes:
        run: Facts about the run. Files of earlier versions lack some of them.
    """

    run: RunFacts


class DoseRow(Scores):
    """Mean scores at one dose and thickness.

    Attributes:
        electrons: Electrons per pattern; `None` without noise.
        thickness_angstrom: Nominal thickness, Å, or a range of thicknesses, in words.
        samples: Number of samples.
    """

    electrons: float | None
    thickness_angstrom: str
    samples: int


def read_evaluation(path: Path) -> Evaluation:
    """Returns the contents of an `evaluation.json`.

    Values have their types. Of the facts about the run, those that earlier versions did not write are absent.

    Args:
        path: The file.

    Raises:
        InputError: If the file cannot be read or holds something else.
    """
    evaluation = read_json(path)
    run = evaluation.get("run") if isinstance(evaluation, dict) else None
    if not isinstance(run, dict):
        raise InputError(f"{path} has no results of a run: {EVALUATE_AGAIN}")
    performance = run.get("performance") or {}
    parse_typed(TypeAdapter(HeldOutResults), json.dumps(evaluation), str(path), EVALUATE_AGAIN)
    parse_typed(TypeAdapter(PerformanceSummary), json.dumps(performance), f"{path}: run.performance", EVALUATE_AGAIN)
    absent = [key for key in PERFORMANCE_KEYS if key not in performance] if performance else []
    if absent or type(run.get("ranks", 1)) is not int:
        raise InputError(f"{path}: run has no {', '.join(absent) or 'number of ranks'}: {EVALUATE_AGAIN}")
    checked: Evaluation = evaluation
    measured = {row["material"] for row in checked["samples"]}
    for row in checked["by_material"]:
        if row["material"] not in measured:
            raise InputError(f"{path}: by_material has {shorten(row['material'])}, and no sample has: {EVALUATE_AGAIN}")
    return checked
