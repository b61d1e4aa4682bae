"""Refinement of a density against the patterns: its columns of atoms, and the microscope.

Columns are found in the density (`namsa.inverse.columns`). What all positions share is fitted
first, with the columns as they are: lens, source, thickness, tilt, the affine change of the scan,
the thermal displacement of each element (`namsa.inverse.unknowns`). Then place and electrons of
each column are fitted with it. A maximum that is longer than wide becomes two columns if the
patterns agree better with two after the first fit.

The patterns' divergence D is minimised as (n/2) log D with Gaussian priors: the size of the errors,
of counting or of the model, is not known. n is the number of pixels of the bright disk at all
positions, times the share of them that is independent (`namsa.inverse.model_error`).

Every eighth position is kept out. A place takes the columns by what they gain there beyond the
first fit, and otherwise keeps the density (`namsa.inverse.acceptance`). Without the fit of columns
the density stays as it is.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from namsa.base.arrays import Array, Floats
from namsa.base.pixels import PixelGrid
from namsa.inverse.acceptance import acceptance, on_the_scan, without_contradicted
from namsa.inverse.column_model import ColumnDensity
from namsa.inverse.fitted_density import fitted_density
from namsa.inverse.microscope import MicroscopeValues
from namsa.inverse.refined_error import DISAGREEMENT, column_errors, refined_error
from namsa.inverse.refinement_facts import RefinementFacts, fitted_numbers
from namsa.inverse.scan_fit import Compared, KnownScan, MeasuredPatterns, ScanFit, least_kept_out
from namsa.inverse.unknowns import SOURCE, State, Unknowns

SMALLEST = 16  # positions of a part of a scan, along each axis
KEPT_OUT = 8  # of so many positions, one
PAIR_ANGSTROM = 0.45  # least distance of two columns in a maximum
CLOSE_PAIR_ANGSTROM = 0.25  # the same, if the patterns agree better
PAIR_GAIN = 0.05  # by this part of the divergence after the shared fit
MOST_THICKNESS_ERRORS = 3.0  # standard deviations of the thickness that a fit may change it by
MOST_LEFT = 0.5  # of a density's standard deviation: what columns may leave of it


class Refined(NamedTuple):
    """A refined density."""

    density: Floats  # `(sy, sx)`, e/Å²
    uncertainty: Floats | None  # one standard deviation of its error; `None` if none was given
    facts: RefinementFacts


class _SharedFit(NamedTuple):
    """The fit of what all positions share to a scan."""

    fit: ScanFit
    vector: Floats  # of the unknowns
    compared: Compared

    @property
    def steps_tried(self) -> int:
        return self.compared.state.steps


class _ColumnFit(NamedTuple):
    """The fit of columns and microscope to a scan."""

    fit: ScanFit
    compared: Compared
    steps_tried: int

    @property
    def state(self) -> State:
        """The fitted values."""
        return self.fit.unknowns.state(self.compared.state.vector)

    def density(self, scan: "_Scan", edges_angstrom: Floats) -> Floats:
        """Returns the density of the fitted columns, `(sy, sx)`, e/Å²."""
        columns = self.fit.unknowns.columns
        model = self.fit.coarse.scan
        return fitted_density(
            scan.density, scan.uncertainty, columns, self.state, model, edges_angstrom
        )


def _silent(done: int, total: int) -> None:
    """Shows no progress."""


def refine(
    density: Floats,  # `(sy, sx)`, e/Å²
    # one standard deviation of its error, in the same shape; `None` if it is not known
    uncertainty: Floats | None,
    patterns: Array,  # `(sy, sx, dy, dx)`, fractions of the beam; NaN where a pattern is lost
    known: KnownScan,
    *,
    steps: int,  # at most
    fit_columns: bool = True,  # otherwise what all positions share is fitted alone
    on_step: Callable[[int, int], None] = _silent,  # called with the steps done and their bound
) -> Refined | None:
    """Refines a density.

    Positions near the scan's edges, whose probes reach columns beyond it, are left out.

    Returns:
        `None` if the density does not consist of columns of atoms, or if all patterns are lost or
        dark.
    """
    margins = _edge_margins(density.shape, known)
    edges_angstrom = np.multiply(margins, known.step_angstrom)
    pixels = PixelGrid(known.step_angstrom, tuple(-edges_angstrom))  # from the first that is used
    measured = _measured(patterns, margins)

    columns = ColumnDensity(density, pixels, known.composition, known.max_q, np.inf)
    has_columns = len(columns.yx) > 0 and columns.left < MOST_LEFT
    if not has_columns or not measured.fitted.any():
        return None
    scan = _Scan(density, uncertainty, pixels, known, measured)
    first_steps = steps // 2 if fit_columns else steps
    shared = scan.fit_shared(columns, first_steps, lambda count: on_step(count, steps))
    unknowns = shared.fit.unknowns
    shared_state = shared.compared.state
    facts: RefinementFacts = {
        "steps": 0,
        "steps_tried": shared.steps_tried,
        "left_out_at_edges": list(margins),
        "kept_out_residual_before": shared_state.residual,
        "kept_out_divergence_before": shared_state.kept_out,
        "independent_share": shared.compared.share,
        **fitted_numbers(unknowns.columns, unknowns.state(shared_state.vector), edges_angstrom),
    }
    if not fit_columns:
        return Refined(np.asarray(density, np.float64), uncertainty, facts)

    def on_later_step(count: int) -> None:
        on_step(shared.steps_tried + count, steps)

    column_fit = scan.fit_columns(shared, steps - first_steps, on_later_step)
    return _with_columns(scan, shared, column_fit, margins, facts)


def _with_columns(
    scan: "_Scan",
    shared: _SharedFit,
    column_fit: _ColumnFit,
    margins: tuple[int, int],  # positions (y, x) at the edges that no fit has used
    facts: RefinementFacts,  # of the shared fit
) -> Refined:
    """Returns the density with the columns of a fit where they are accepted."""
    known = scan.known
    density = scan.density
    edges_angstrom = np.multiply(margins, known.step_angstrom)
    kept_out = scan.measured.recorded & ~scan.measured.used
    accepted = acceptance(
        shared.compared.by_position, column_fit.compared.by_position, kept_out, known.step_angstrom
    )
    weight = on_the_scan(accepted.weight, margins, known.step_angstrom)
    fitted = column_fit.density(scan, edges_angstrom)
    taken = _allowed(scan, column_fit, fitted) * weight
    any_taken = bool(taken.any())
    best = column_fit.compared.state if any_taken else shared.compared.state
    unknowns = column_fit.fit.unknowns
    facts = {
        **facts,
        "steps": best.steps if any_taken else 0,
        "steps_tried": column_fit.steps_tried,
        "kept_out_residual": best.residual,
        "kept_out_divergence": best.kept_out,
        "gain_of_columns": accepted.gain,
        "taken": float(taken.mean()),
        **fitted_numbers(unknowns.columns, unknowns.state(best.vector), edges_angstrom),
    }
    if not any_taken:
        return Refined(np.asarray(density, np.float64), scan.uncertainty, facts)
    error = None
    if scan.uncertainty is not None:
        error = _refined_error(scan, scan.uncertainty, column_fit, fitted, taken)
        # also where the fit contradicts the density and nothing is taken
        error = np.hypot(error, DISAGREEMENT * (weight - taken) * (fitted - density))
    return Refined(density + taken * (fitted - density), error, facts)


def _allowed(scan: "_Scan", column_fit: _ColumnFit, fitted: Floats) -> Floats:
    """Returns factors of the weights of a fitted density, `(sy, sx)`: 0 where what is known
    contradicts the fit.
    """
    state = column_fit.state
    if _contradicts_thickness(state.microscope.thickness, scan.known):
        return np.zeros(scan.density.shape)
    columns = column_fit.fit.unknowns.columns
    return _not_contradicted(fitted, scan.density, scan.uncertainty, columns, scan.pixels)


def _refined_error(
    scan: "_Scan", uncertainty: Floats, column_fit: _ColumnFit, fitted: Floats, taken: Floats
) -> Floats:
    """Returns one standard deviation of the error where columns are taken, `(sy, sx)`, e/Å²."""
    errors = column_errors(column_fit.fit, column_fit.compared)
    columns = column_fit.fit.unknowns.columns
    values = column_fit.state.columns
    return refined_error(
        scan.density, uncertainty, fitted, taken, columns, values, errors, scan.pixels
    )


def _not_contradicted(
    fitted: Floats,
    density: Floats,
    uncertainty: Floats | None,
    columns: ColumnDensity,
    pixels: PixelGrid,
) -> Floats:
    """Returns factors of the weights, `(sy, sx)`: 0 at columns whose fitted density contradicts the
    stated uncertainty; 1 everywhere without one.
    """
    if uncertainty is None:
        return np.ones(density.shape)
    errors = np.maximum(_at_columns(uncertainty, columns, pixels), 1e-12)
    changes = _at_columns(fitted - density, columns, pixels) / errors
    return without_contradicted(columns.yx, changes, pixels, density.shape)


def _contradicts_thickness(fitted_angstrom: float, known: KnownScan) -> bool:
    """Returns whether a fitted thickness is one that the known one hardly allows: a wrong model."""
    change = abs(fitted_angstrom / known.thickness_angstrom - 1)
    return change > MOST_THICKNESS_ERRORS * known.thickness_error


def _edge_margins(scan: tuple[int, ...], known: KnownScan) -> tuple[int, int]:
    """Returns how many positions (y, x) at each edge have probes that reach beyond the scan.

    They are a quarter of the scan at most.
    """
    rows, columns = (
        min(int(np.ceil(known.reach_angstrom / step)), length // 4)
        for step, length in zip(known.step_angstrom, scan, strict=True)
    )
    return rows, columns


def _measured(patterns: Array, margins: tuple[int, int]) -> MeasuredPatterns:
    """Returns the patterns that are used, without those near the edges."""
    my, mx = margins
    sy, sx = patterns.shape[:2]
    inner = patterns[my : sy - my, mx : sx - mx]
    recorded = np.isfinite(inner).all(axis=(2, 3))
    intensities = np.where(recorded[..., None, None], np.maximum(inner, 0), 0).astype(np.float32)
    row, column = np.indices(recorded.shape)
    used = (3 * row + column) % KEPT_OUT != 0
    return MeasuredPatterns(intensities, recorded, used)


class _Scan(NamedTuple):
    """A scan whose columns are fitted."""

    density: Floats  # `(sy, sx)`, e/Å²
    uncertainty: Floats | None  # the same
    pixels: PixelGrid  # of both, Å from the first position that is used
    known: KnownScan
    measured: MeasuredPatterns  # at the positions that are used

    def fit_shared(
        self, columns: ColumnDensity, steps: int, on_step: Callable[[int], None]
    ) -> _SharedFit:
        """Fits what all positions share, in the middle of the scan."""
        middle = self._middle_fit(columns)
        begin = np.zeros(middle.unknowns.size)
        states = middle.descend(begin, steps, on_step, shared_alone=True)
        tried = states[-1].steps
        columns, vector = self._with_pairs(middle, columns, least_kept_out(states).vector)
        fit = ScanFit(self.known, self._unknowns(columns), self.measured, (0, 0))
        return _SharedFit(fit, vector, fit.compared(vector, tried))

    def fit_columns(
        self, shared: _SharedFit, steps: int, on_step: Callable[[int], None]
    ) -> _ColumnFit:
        """Fits the columns, too, to all of the scan."""
        share = shared.compared.share
        fit = ScanFit(self.known, shared.fit.unknowns, self.measured, (0, 0), share)
        states = fit.descend(shared.vector, steps, on_step)
        best = least_kept_out(states)
        tried = shared.steps_tried + states[-1].steps
        return _ColumnFit(fit, fit.compared(best.vector, tried), tried)

    def _with_pairs(
        self, single: ScanFit, columns: ColumnDensity, vector: Floats
    ) -> tuple[ColumnDensity, Floats]:
        """Returns the columns, with pairs if patterns agree better, and the unknowns' vector.

        What all positions share is that of a fit without pairs, so that a tilt is not taken for
        pairs.
        """
        chosen = columns
        least = single.divergence_at(vector)
        shared = vector[single.unknowns.shared]
        best = vector
        for angstrom in (PAIR_ANGSTROM, CLOSE_PAIR_ANGSTROM):
            paired = ColumnDensity(
                self.density, self.pixels, self.known.composition, self.known.max_q, angstrom
            )
            if paired.pairs <= chosen.pairs:
                continue
            fit = self._middle_fit(paired)
            begin = np.zeros(fit.unknowns.size)
            begin[fit.unknowns.shared] = shared
            divergence = fit.divergence_at(begin)
            if divergence < (1 - PAIR_GAIN) * least:
                chosen = paired
                least = divergence
                best = begin
        return chosen, best

    def _unknowns(self, columns: ColumnDensity) -> Unknowns:
        """Returns the unknowns of a fit of columns."""
        errors = None
        if self.uncertainty is not None:
            errors = _at_columns(self.uncertainty, columns, self.pixels) / np.maximum(
                _at_columns(self.density, columns, self.pixels), 1e-12
            )
        known = self.known
        return Unknowns(columns, _first_microscope(known), known.thickness_error, errors)

    def _middle_fit(self, columns: ColumnDensity) -> ScanFit:
        """Returns the fit of columns to the middle of the scan.

        If nothing was recorded there, it is the fit to all of the scan.
        """
        unknowns = self._unknowns(columns)
        length_y, length_x = self.measured.used.shape
        margins = (_middle_margin(length_y), _middle_margin(length_x))
        middle = self.measured.without_edges(margins)
        if not middle.fitted.any():
            return ScanFit(self.known, unknowns, self.measured, (0, 0))
        return ScanFit(self.known, unknowns, middle, margins)


def _at_columns(image: Floats, columns: ColumnDensity, pixels: PixelGrid) -> Floats:
    """Returns an image at the pixels nearest to columns, `(n,)`."""
    places = (columns.yx - np.asarray(pixels.origin)) / np.asarray(pixels.step)
    index = np.clip(np.rint(places).astype(int), 0, np.array(image.shape) - 1)
    return np.asarray(image[index[:, 0], index[:, 1]])


def _middle_margin(length: int) -> int:
    """Returns how many of the positions along an axis lie before its middle half."""
    if length < SMALLEST:
        return 0
    return (length - max(length // 2, SMALLEST)) // 2


def _first_microscope(known: KnownScan) -> MicroscopeValues:
    """Returns the microscope that the fit begins with."""
    lens = known.beam.aberrations
    astigmatism = lens.get("C12", 0.0)
    coma = lens.get("C21", 0.0)
    astigmatism_angle = 2 * lens.get("phi12", 0.0)
    coma_angle = lens.get("phi21", 0.0)
    coefficients = [
        lens.get("C10", 0.0),
        astigmatism * np.cos(astigmatism_angle),
        astigmatism * np.sin(astigmatism_angle),
        coma * np.cos(coma_angle),
        coma * np.sin(coma_angle),
    ]
    return MicroscopeValues(
        lens=np.array(coefficients),
        thickness=known.thickness_angstrom,
        tilt=np.zeros(2),
        scan_change=np.zeros((2, 2)),
        source=SOURCE,
    )
