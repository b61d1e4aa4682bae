"""The network of a scan: loaded for its windows, with its views of them."""

from dataclasses import dataclass

from namsa.base.errors import InputError
from namsa.base.text import plural

from ....apply import tiles, weights
from ....apply.models import Model
from ....apply.reading import AddNote
from ....apply.resampling import ResamplingPlan
from ....experiment.conditions import Conditions
from ..trust.aberrations import LearntAberrations
from ..trust.familiarity import Familiarity, read_familiarity
from ..trust.orientation import HALF_TURN
from . import ensemble


@dataclass(frozen=True)
class ScanNetwork:
    """A network that is ready to predict the windows of a scan."""

    predict: ensemble.Predict  # predicts densities from windows
    members: int  # number of predictions per window
    has_uncertainty: bool  # whether predictions differ, or have errors of their own
    predicted_weight: float  # weight of the variances that predictions have of their own
    # from the standard deviation to the uncertainty; 1 for a model that is not calibrated
    uncertainty_factor: float
    familiarity: Familiarity | None  # what the network has learnt; `None` if it was not measured
    conditions: Conditions  # what the network was trained on
    window: tuple[int, int]  # positions of a window, (y, x)
    multiple: int  # windows begin at multiples of this many positions
    image_shape: tuple[int, int]  # shape of a predicted image
    learnt: LearntAberrations  # aberrations that the network has learnt
    half_turn_valid: bool  # whether the detector turned by half a turn has the same pixels
    # Whether the only window is the whole scan and the image is not on its positions (layout
    # detector).
    whole_scan: bool
    bins_shape: tuple[int, ...] = ()  # `(n,)` if the network predicts n bins along the beam


def prepare_network(
    model: Model,
    plan: ResamplingPlan,
    passes: int | None,
    note: AddNote,
    thickness_angstrom: float | None = None,
    digest: str | None = None,
) -> ScanNetwork:
    """Loads a network for a scan.

    Args:
        passes: Predictions with dropout per symmetry; see
            `train.tasks.density.scan.ensemble.choose_views`.
        thickness_angstrom: Of the specimen; `None` if it is not known.
        digest: As for `train.apply.weights.build_loaded`.

    Raises:
        InputError: If the scan is too small or, for layout detector, does not have the trained
            number of positions.
    """
    whole_scan = model.experiment.training.inputs.layout == "detector"
    window, multiple = _window(plan.scan_shape, model, whole_scan)
    image_shape = model.conditions.detector_shape if whole_scan else window
    views = ensemble.choose_views(model, window, plan.step_angstrom, passes)
    familiarity = read_familiarity(model.folder)
    network = weights.load_network(model, image_shape, digest=digest)
    predict = ensemble.ensemble_predictor(network, model, views, with_maps=familiarity is not None)
    dropout = f"times {views.passes} with dropout" if views.passes else "without dropout"
    note(
        f"{model.name}: windows of {window[0]}×{window[1]} positions, "
        f"{plural(views.members, 'prediction')} of each: {len(views.symmetries)} by symmetry, "
        f"{dropout}"
    )
    return ScanNetwork(
        predict=predict,
        members=views.members,
        has_uncertainty=views.members > 1 or model.predicts_its_error,
        predicted_weight=model.calibration.predicted_weight or 1.0,
        uncertainty_factor=model.calibration.uncertainty_factor or 1.0,
        familiarity=familiarity,
        conditions=model.conditions,
        window=window,
        multiple=multiple,
        image_shape=image_shape,
        learnt=LearntAberrations.of(model.experiment, thickness_angstrom),
        half_turn_valid=HALF_TURN in views.symmetries,
        whole_scan=whole_scan,
        bins_shape=model.experiment.bins_shape(),
    )


def _window(scan: tuple[int, int], model: Model, whole_scan: bool) -> tuple[tuple[int, int], int]:
    """Returns the positions of a window, and the multiple of positions at which windows begin."""
    trained = model.conditions.scan_shape
    if whole_scan:
        if scan != trained:
            raise InputError(
                f"{model.name} takes exactly {trained[0]}×{trained[1]} positions at once (layout "
                f"detector), not {scan[0]}×{scan[1]}: use a network of layout scan"
            )
        return scan, 1
    multiple = 2**model.network.pools
    if model.experiment.training.inputs.layout == "depth" and (
        scan[0] < trained[0] or scan[1] < trained[1]
    ):
        raise InputError(
            f"{model.name} refocuses windows of {trained[0]}×{trained[1]} positions (layout "
            f"depth), and the scan has {scan[0]}×{scan[1]}: use a network of layout scan"
        )
    height = tiles.window_side(scan[0], trained[0], multiple)
    width = tiles.window_side(scan[1], trained[1], multiple)
    return (height, width), multiple
