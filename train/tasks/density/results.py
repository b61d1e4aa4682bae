"""Types of the results of a density: `evaluation.json`, and rows of its model card.

Lengths are in Å, densities in e/Å². A number that is not defined for a sample is `None` (null in
JSON); see `train.measure.metrics`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, NotRequired, cast

import numpy as np
import numpy.typing as npt
from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from namsa.base.arrays import Array
from namsa.base.errors import InputError
from namsa.base.json_files import parse_typed, read_json
from namsa.base.text import shorten
from namsa.dataset.records import Record
from namsa.inverse.mott_bethe import potential_like_density

from ...measure.results import Evaluation as AnyEvaluation
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
    """Metrics of one density, or their means over samples."""

    huber: float | None  # Huber loss of `train.measure.metrics`, in the units of the training
    mae: float | None  # mean absolute error, e/Å²
    psnr: float | None  # peak signal-to-noise ratio, dB
    ssim: float | None  # structural similarity
    pearson: float | None  # correlation coefficient of the pixels
    r_factor: float | None  # Σ|error| / Σ|truth|
    # Median position error of the atomic columns that were found, Å. This and the following keys
    # are present only if the atoms are known; see `train.measure.atomic_columns`.
    column_error_angstrom: NotRequired[float | None]
    columns_found: NotRequired[float | None]  # fraction of the columns that were found
    columns_spurious: NotRequired[float | None]  # fraction of the maxima that belong to no column
    # rank correlation of peak heights and electrons per column
    column_rank: NotRequired[float | None]


class ComparedScores(Scores):
    """Scores of the network, with those of the mean-image predictor."""

    mean_predictor: Scores  # scores of the mean of the training targets


# ---- evaluation.json
# ------------------------------------------------------------------------------------------------


class SampleRow(ComparedScores):
    """One held-out sample."""

    id: str  # identifier of the sample in its dataset
    material: str  # name of the material
    formula: str  # chemical formula
    space_group: str  # Hermann–Mauguin symbol
    split: str  # "dev" or "test", from the manifest in use
    zone_axis: list[int]  # Miller indices of the beam direction
    thickness_angstrom: float  # thickness of the simulated specimen, Å
    wanted_thickness_angstrom: float  # nominal thickness of the sample, Å
    # Kind of the specimen, nominal thickness and magnitudes of the varied quantities, by the
    # configuration's names. Absent in files of earlier versions.
    conditions: NotRequired[dict[str, str | float]]
    # R factor between the patterns and those simulated from the estimated density; see
    # `namsa.inverse.consistency`. Written by `train calibrate`.
    consistency_r: NotRequired[float]
    consistency_empty_r: NotRequired[float]  # the same for no specimen
    # scores of a density by depth; see `train.tasks.density.depth_metrics`
    by_depth: NotRequired[DepthScores]


class GroupRow(ComparedScores):
    """Means over a group of samples."""

    samples: int  # number of samples in the group


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
    """Means over the samples of the reported split that have something in common."""

    by: str  # the quantity, as in `SampleRow.conditions`
    group: str  # its value, or its least and largest value, in words
    least_ssim: float | None  # the least SSIM of any of these samples; `None` if none is defined


class Summary(TypedDict):
    """Means over the reported split and over groups of samples."""

    # the reported split: "test" if it has samples, otherwise "dev"; `None` if neither has
    split: str | None
    mean: Scores  # means of the network's scores over the reported split
    mean_predictor: Scores  # means of the mean image's scores over the reported split
    by_split: list[SplitRow]  # one row per split
    by_material: list[MaterialRow]  # one row per material
    # One row per nominal thickness of the reported split; none if there are many, as of thicknesses
    # from a range. `train.tasks.density.report.summary.by_condition` divides these into
    # ranges.
    by_thickness: list[ThicknessRow]


class HeldOutResults(Summary):
    """Results on held-out samples."""

    samples: list[SampleRow]  # one row per held-out sample, ordered by id
    # of a network of densities by depth, means over the reported split
    by_depth: NotRequired[DepthSummary]


class Evaluation(HeldOutResults):
    """Contents of `evaluation.json`."""

    target: NotRequired[str]  # target.kind, whose unit images and `mae` have. Absent of densities
    run: RunFacts  # facts about the run. Files of earlier versions lack some of them


class DoseRow(Scores):
    """Mean scores at one dose and thickness."""

    electrons: float | None  # electrons per pattern; `None` without noise
    thickness_angstrom: str  # nominal thickness, Å, or a range of thicknesses, in words
    samples: int  # number of samples


def read_evaluation(path: Path) -> Evaluation:
    """Returns the contents of an `evaluation.json`. Raises InputError if it cannot be read or holds
    something else.

    Of the facts about the run, those that earlier versions did not write are absent.
    """
    evaluation = read_json(path)
    run = evaluation.get("run") if isinstance(evaluation, dict) else None
    if not isinstance(run, dict):
        raise InputError(f"{path} has no results of a run: {EVALUATE_AGAIN}")
    parse_typed(HeldOutResults, json.dumps(evaluation), str(path), EVALUATE_AGAIN)
    _check_run(run, path)
    checked = cast(Evaluation, evaluation)
    measured = {row["material"] for row in checked["samples"]}
    for row in checked["by_material"]:
        if row["material"] not in measured:
            raise InputError(
                f"{path}: by_material has {shorten(row['material'])}, and no sample has: "
                f"{EVALUATE_AGAIN}"
            )
    return checked


def _check_run(run: Mapping[str, Any], path: Path) -> None:
    """Raises InputError for facts about a run that lack some of its performance, or whose number of
    ranks is none.
    """
    performance = run.get("performance") or {}
    parse_typed(
        PerformanceSummary, json.dumps(performance), f"{path}: run.performance", EVALUATE_AGAIN
    )
    absent = []
    if performance:
        absent = [key for key in PERFORMANCE_KEYS if key not in performance]
    if absent or type(run.get("ranks", 1)) is not int:
        raise InputError(
            f"{path}: run has no {', '.join(absent) or 'number of ranks'}: {EVALUATE_AGAIN}"
        )


class TargetQuantity(NamedTuple):
    """Name of an image in results."""

    words: str
    unit: str


QUANTITIES = {
    "density": TargetQuantity("projected electron density", "e/Å²"),
    "potential": TargetQuantity("projected potential", "V·Å"),
    "standardised_potential": TargetQuantity("standardised projected potential", ""),
}


def quantity_of(evaluation: AnyEvaluation | None) -> TargetQuantity:
    """Returns what the results of an `evaluation.json` are about; a density where it does not say
    it.
    """
    return QUANTITIES.get((evaluation or {}).get("target", "density"), QUANTITIES["density"])


def target_image(record: Record, kind: str) -> npt.NDArray[np.float32]:
    """Returns the target of a sample, `(ty, tx)`.

    The potential has the band of the density. Where a sample says none, it is an image as it was
    stored.
    """
    if kind == "density":
        return record.density
    image: Array = record.projected_potential
    if "density_max_q_per_angstrom" in record.header["provenance"]:
        image = potential_like_density(record)
    return (standardised(image) if kind == "standardised_potential" else image).astype(np.float32)


def standardised(image: Array) -> npt.NDArray[np.float64]:
    """Returns an image less its mean, over its deviation or 1/√size if that is larger, as the
    paper's authors do it.
    """
    values = image.astype(np.float64)
    return (values - values.mean()) / max(values.std(), values.size**-0.5)
