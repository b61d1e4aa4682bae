"""Opens a scan for a network, the same for every task.

The scan is checked and measured, and it is planned how it is brought onto the network's detector
and positions. `open_scan` takes a file or an array. `fit_scan` is its part that reads no patterns,
for a scan that is recorded.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console

from namsa.base.arrays import Array
from namsa.base.errors import InputError, WorkError, issue_warnings
from namsa.base.long_calls import StageTimer
from namsa.base.notebook_progress import Report, notebook_bar
from namsa.base.pixels import PixelGrid
from namsa.base.text import shorten
from namsa.base.version import __version__
from namsa.io.calibration import CalibrationOverrides, FourDData
from namsa.io.lost import Losses, filled
from namsa.io.reading import open_patterns

from ..experiment.conditions import Conditions, describe_edge, describe_unchecked
from ..measure import telemetry
from ..program import PROGRAM
from . import reading, resampling
from .digests import DIGESTS
from .models import Model, load_model
from .resampling import ResamplingPlan
from .weights import weights_digest

Limits = tuple[float, float]

BEAM_INTENSITY: Limits = (1e-15, 1e18)
NEGATIVE = 0.01  # fraction of the intensity that a subtracted dark level may leave negative


class Notes:
    """Collects lines about what was done to the data or assumed about them, and prints them, with
    the progress of the work.

    Attributes:
        lines: The lines.
        console: Where they are printed.
        on_progress: Takes the progress, `(stage, done, total)`. `None` shows a bar in a notebook.
    """

    def __init__(self, console: Console | None, on_progress: Report | None = None) -> None:
        self.lines: list[str] = []
        self.console = console or Console(quiet=True)
        self.on_progress = on_progress

    def __call__(self, line: str) -> None:
        """Adds a line."""
        self.lines.append(line)
        self.console.print(line, highlight=False, soft_wrap=True)

    @contextmanager
    def progress(self) -> Iterator[None]:
        """Shows the bar of a notebook, if there is no `on_progress`, until the `with` statement
        ends.
        """
        given = self.on_progress
        with notebook_bar(given) as self.on_progress:
            yield
        self.on_progress = given

    @contextmanager
    def counter(self, stage: str) -> Iterator[Callable[[int, int], None]]:
        """Yields `count(done, total)`, which prints the progress of a stage and reports it.

        Nothing is printed without a console: a stage that takes long then warns how long, by the
        speed of its first part.
        """
        timer = StageTimer()
        with telemetry.counter(self.console, stage) as count:

            def count_and_report(done: int, total: int) -> None:
                count(done, total)
                if self.on_progress is not None:
                    self.on_progress(stage, done, total)
                line = timer.note(stage, done, total)
                if line and self.console.quiet:
                    issue_warnings((), [line], stacklevel=2)

            yield count_and_report


def network_for(task: str, model: Model | str | Path) -> Model:
    """Returns a network of a task.

    Args:
        model: The network, or what `train.load_model` finds it by.

    Raises:
        InputError: If the network is of another task.
    """
    loaded = model if isinstance(model, Model) else load_model(model)
    if loaded.experiment.training.task != task:
        raise loaded.wrong_task(task)
    return loaded


def check_answer(model: Model, *answers: Array) -> None:
    """Raises WorkError if what a network says of a scan is not finite."""
    if not all(np.isfinite(answer).all() for answer in answers):
        raise WorkError(f"the answer of {model.name} is not finite: it says nothing of this scan")


@dataclass(frozen=True, eq=False)  # arrays have no single truth value
class FittedScan:
    """A scan and how it is brought onto a network's detector and positions."""

    data: FourDData  # the scan
    model: Model  # the network
    name: str  # name of the scan in error messages
    origin: str  # where the data are from, for the provenance
    pattern: Array  # mean pattern, `(dy, dx)`, in the data's units
    centre: tuple[float, float]  # optic axis, (y, x), pixels of the data
    scale: float  # factor from intensities to fractions of the beam
    plan: ResamplingPlan  # how the scan is resampled
    weights_digest: str  # digest of the network's weights
    note: Notes  # what was done to it or assumed about it
    # what was not recorded, as far as the scan was read
    losses: Losses = field(default_factory=Losses)

    @property
    def pixels(self) -> PixelGrid:
        """Pixels of the network's positions, Å."""
        return PixelGrid(self.plan.step_angstrom, self.data.scan_origin_angstrom)

    @property
    def provenance(self) -> dict[str, object]:
        """The data and the network, as a result's file holds them; JSON types only."""
        return {
            "data": self.origin,
            "model": self.model.name,
            "weights": self.model.weights.name,
            "weights_digest": self.weights_digest,
            "namsa": __version__,
        }

    @property
    def beam(self) -> dict[str, float]:
        """The network's beam, as a result's file holds it."""
        return {
            name: getattr(self.model.conditions, name) for name in ("energy_ev", "semiangle_mrad")
        }

    @contextmanager
    def bands(
        self, lost: str = "the mean of their neighbours is used"
    ) -> Iterator[Iterator[Array]]:
        """Yields the bands of `train.apply.reading.read_bands`, prints how many rows were read, and
        notes what is lost.

        Args:
            lost: What becomes of lost patterns, for the note.
        """
        rows = self.data.shape[0]
        with (
            self.note.counter("scan rows") as count,
            self.bands_without_progress(lambda row: count(row, rows), lost) as bands,
        ):
            yield bands

    @contextmanager
    def bands_without_progress(
        self,
        on_row: Callable[[int], None] = lambda row: None,
        lost: str = "the mean of their neighbours is used",
    ) -> Iterator[Iterator[Array]]:
        """Yields the bands as `bands` does, and notes what is lost. The caller prints progress.

        Args:
            on_row: Takes the number of rows that were read.
            lost: What becomes of lost patterns, for the note.
        """
        with closing(
            reading.read_bands(self.data, self.plan, self.scale, on_row, self.losses)
        ) as bands:
            yield bands
        for line in self.losses.lines(lost):
            self.note(line)

    def bands_again(self) -> AbstractContextManager[Iterator[Array]]:
        """Yields `bands` once more. What is lost was noted before."""
        return closing(
            reading.read_bands(self.data, self.plan, self.scale, lambda row: None, Losses())
        )

    @contextmanager
    def patterns(self) -> Iterator[Iterator[Array]]:
        """Yields `bands` as patterns, `(rows, positions along x, dy, dx)`; see
        `nonnegative_patterns`.
        """
        detector = self.model.conditions.detector_shape
        intensity = np.zeros(2)
        with self.bands() as bands:
            yield (nonnegative_patterns(band, detector, intensity) for band in bands)


def nonnegative_patterns(band: Array, detector: tuple[int, int], intensity: Array) -> Array:
    """Returns rows of a scan as patterns. Negative values, which a subtracted dark level may leave,
    become zero.

    A network needs a pattern at every position: the mean of the nearest ones is in the place of one
    that is lost.

    Args:
        band: `(rows, positions along x, network's pixels)`, fractions of the beam; NaN where a
            pattern is lost.
        detector: Pixels of the network's detector, (y, x).
        intensity: Sums over the scan of the negative intensity, as a positive number, and of all,
            `(2,)`. Those of the band are added.

    Returns:
        `(rows, positions along x, dy, dx)`.

    Raises:
        InputError: If too much of the intensity is negative.
    """
    band = filled(band, np.isnan(band[..., 0]))
    intensity += -float(band[band < 0].sum(dtype=np.float64)), float(band.sum(dtype=np.float64))
    if intensity[0] > NEGATIVE * intensity[1]:
        raise InputError(
            f"more than {100 * NEGATIVE:g} % of the intensity is negative: subtract no more than "
            "the dark level"
        )
    return np.maximum(band, 0).reshape(*band.shape[:2], *detector)


@contextmanager
def open_scan(
    data: str
    | Path
    | npt.ArrayLike,  # path of a file that `namsa.read` opens, or patterns `(sy, sx, dy, dx)`
    model: Model,
    calibration: CalibrationOverrides,  # what the file does not state, or states wrongly
    note: Notes,  # takes a line about each thing that is done or assumed
    *,
    # Sum of a pattern without a specimen, in the data's units; `None` if it is not known.
    beam_intensity: float | None = None,
    # How the patterns lie in a file that does not say it, as `namsa.read` takes it.
    layout: Mapping[str, object] | None = None,
    keeps_positions: bool = False,  # as for `fit_scan`
    estimated: Collection[str] = (),  # as for `fit_scan`
    estimates: Sequence[str] = (),  # as for `fit_scan`
) -> Iterator[FittedScan]:
    """Opens a scan for a network.

    Yields:
        The scan. It is valid until the `with` statement ends.

    Raises:
        InputError: If the data do not fit the network, or if their calibration is not complete.
        WorkError: If the file is damaged.
    """
    check_number("beam_intensity", beam_intensity, BEAM_INTENSITY)
    if isinstance(data, str | Path):
        data = Path(data)
        name = str(data)
        origin = data.name
    else:
        name = origin = "array"
    with open_patterns(data, calibration, **(layout or {})) as scan, note.progress():
        sy, sx, dy, dx = scan.shape
        note(f"{origin}: {sy}×{sx} patterns of {dy}×{dx} pixels, {scan.data.dtype}")
        conditions = _conditions(scan, model, keeps_positions)
        resampling.check_fit(scan, conditions, name, model.experiment.training.task)
        reading.check_memory(scan, conditions, name)
        pattern = reading.mean_pattern(scan, name)
        yield fit_scan(
            scan,
            model,
            pattern,
            name,
            origin,
            beam_intensity,
            note,
            keeps_positions=keeps_positions,
            estimated=estimated,
            estimates=estimates,
        )


def fit_scan(
    scan: FourDData,  # the scan; its patterns are not read
    model: Model,
    # Mean pattern, `(dy, dx)`, from which the optic axis and the scale are taken where they are not
    # known.
    pattern: Array,
    name: str,  # name of the scan in error messages
    origin: str,  # where the data are from, for the provenance
    beam_intensity: float
    | None,  # sum of a pattern without a specimen, in the data's units; `None` if it is not known
    note: Notes,  # takes a line about each thing that is done or assumed
    *,
    # whether the network sees one pattern at a time, so that the scan may have any step
    keeps_positions: bool = False,
    estimated: Collection[str] = (),  # settings that are estimated from the data
    estimates: Sequence[str] = (),  # lines about what was estimated
) -> FittedScan:
    """Finds the optic axis and the scale of a scan, and plans its resampling. Raises InputError if
    it does not fit.
    """
    pattern = reading.without_hot_pixels(scan, pattern, note)
    centre = reading.optic_axis(scan, pattern, note)
    scale = reading.intensity_scale(scan, pattern, beam_intensity, model, note)
    plan = resampling.plan_resampling(scan, centre, _conditions(scan, model, keeps_positions), name)
    lines = plan.notes[:-1] if keeps_positions else plan.notes  # the last one is about the step
    if model.unchecked:
        note(f"{model.name}: its folder has no {DIGESTS}, so that its files are not checked")
    for file in model.undigested:
        note(
            f"{model.name}: its {file} is of an earlier version and has no digest, so that it is "
            f"not checked: run {PROGRAM} calibrate again"
        )
    edge = describe_edge(scan.aperture_edge, model.experiment)
    for line in (
        *lines,
        *([edge] if edge else []),
        *estimates,
        describe_unchecked(model.experiment, model.experiment.training.inputs, estimated),
    ):
        note(line)
    return FittedScan(
        scan, model, name, origin, pattern, centre, scale, plan, weights_digest(model), note
    )


def check_number(name: str, value: float | None, limits: Limits) -> None:
    """Raises InputError if an argument is given and not within its limits."""
    low, high = limits
    if value is not None and not low <= value <= high:
        raise InputError(f"{name} is {shorten(value)}: give a number from {low:g} to {high:g}")


def _conditions(scan: FourDData, model: Model, keeps_positions: bool) -> Conditions:
    """Returns what the scan is brought to: what the network was trained on, and the scan's own step
    if it keeps it.
    """
    if keeps_positions:
        return replace(model.conditions, scan_step_angstrom=scan.scan_step_angstrom)
    return model.conditions
