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
first fit, and otherwise keeps the density (`namsa.inverse.acceptance`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.ndimage import gaussian_filter

from namsa.base.arrays import Array, Floats
from namsa.base.pixels import PixelGrid
from namsa.inverse.acceptance import Acceptance, acceptance, on_the_scan, without_contradicted
from namsa.inverse.column_model import ColumnDensity, ColumnValues
from namsa.inverse.microscope import Microscope
from namsa.inverse.refined_error import DISAGREEMENT, column_errors, refined_error
from namsa.inverse.scan_fit import Compared, KnownScan, MeasuredPatterns, ScanFit, least_kept_out
from namsa.inverse.scan_model import ScanModel
from namsa.inverse.unknowns import SOURCE, State, Unknowns
from namsa.physics.coherence import FWHM

SMALLEST = 16  # positions of a part of a scan, along each axis
KEPT_OUT = 8  # of so many positions, one
PAIR_ANGSTROM = 0.45  # least distance of two columns in a maximum
CLOSE_PAIR_ANGSTROM = 0.25  # the same, if the patterns agree better
PAIR_GAIN = 0.05  # by this part of the divergence after the shared fit
MOST_THICKNESS_ERRORS = 3.0  # standard deviations of the thickness that a fit may change it by
MOST_LEFT = 0.5  # of a density's standard deviation: what columns may leave of it
_SMOOTH_ANGSTROM = 2.0  # over which what columns leave is compared with the uncertainty


class Refined(NamedTuple):
    """A refined density."""

    density: Floats  # `(sy, sx)`, e/Å²
    uncertainty: Floats | None  # one standard deviation of its error; `None` if none was given
    facts: dict[str, Any]  # steps, residuals and the fitted microscope; JSON types


class _Fit(NamedTuple):
    """The fit of columns and microscope to a scan."""

    whole: ScanFit
    shared: Compared  # after the fit of what all positions share
    columns: Compared  # after the fit of the columns
    steps_tried: int


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
    fit = scan.fit(columns, steps, on_step)

    accepted = _accepted(fit, measured, known)
    weight = on_the_scan(accepted.weight, margins, known.step_angstrom)
    unknowns = fit.whole.unknowns
    columns = unknowns.columns
    after = unknowns.state(fit.columns.state.vector)
    model = fit.whole.coarse.scan
    fitted = _fitted_density(density, uncertainty, columns, after, model, edges_angstrom)
    allowed = _not_contradicted(fitted, density, uncertainty, columns, pixels)
    if _contradicts_thickness(after.microscope.thickness, known):
        allowed = np.zeros(density.shape)
    taken = allowed * weight
    best = fit.columns if taken.any() else fit.shared
    facts = {
        "steps": best.state.steps if taken.any() else 0,
        "steps_tried": fit.steps_tried,
        "left_out_at_edges": list(margins),
        "kept_out_residual_before": fit.shared.state.residual,
        "kept_out_residual": best.state.residual,
        "kept_out_divergence_before": fit.shared.state.kept_out,
        "kept_out_divergence": best.state.kept_out,
        "gain_of_columns": accepted.gain,
        "taken": float(taken.mean()),
        "independent_share": fit.shared.share,
        **_described(columns, unknowns.state(best.state.vector), edges_angstrom),
    }
    if not taken.any():
        return Refined(np.asarray(density, np.float64), uncertainty, facts)
    error = None
    if uncertainty is not None:
        errors = column_errors(fit.whole, fit.columns)
        error = refined_error(
            density, uncertainty, fitted, taken, columns, after.columns, errors, pixels
        )
        # also where the fit contradicts the density and nothing is taken
        error = np.hypot(error, DISAGREEMENT * (weight - taken) * (fitted - density))
    return Refined(density + taken * (fitted - density), error, facts)


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


def _accepted(fit: _Fit, measured: MeasuredPatterns, known: KnownScan) -> Acceptance:
    """Returns how far the places that were used take the columns."""
    kept_out = measured.recorded & ~measured.used
    return acceptance(
        fit.shared.by_position, fit.columns.by_position, kept_out, known.step_angstrom
    )


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

    def fit(self, columns: ColumnDensity, steps: int, on_step: Callable[[int, int], None]) -> _Fit:
        """Fits what all positions share, in the middle of the scan, and then the columns, too."""
        middle = self._middle_fit(columns)
        begin = np.zeros(middle.unknowns.size)
        states = middle.descend(
            begin, steps // 2, lambda count: on_step(count, steps), shared_alone=True
        )
        tried = states[-1].steps
        vector = least_kept_out(states).vector

        columns, vector = self._with_pairs(middle, columns, vector)
        shared = ScanFit(self.known, self._unknowns(columns), self.measured, (0, 0))
        compared = shared.compared(vector, tried)
        whole = ScanFit(self.known, shared.unknowns, self.measured, (0, 0), compared.share)
        more = whole.descend(
            vector, steps - steps // 2, lambda count: on_step(tried + count, steps)
        )
        best = least_kept_out(more)
        tried += more[-1].steps
        return _Fit(whole, compared, whole.compared(best.vector, tried), tried)

    def _with_pairs(
        self, single: ScanFit, columns: ColumnDensity, vector: Floats
    ) -> tuple[ColumnDensity, Floats]:
        """Returns the columns, with pairs if patterns agree better, and the unknowns' vector.

        What all positions share is that of a fit without pairs, so that a tilt is not taken for
        pairs.
        """
        found = columns
        least = single.divergence_at(vector)
        shared = vector[single.unknowns.shared]
        best = vector
        for angstrom in (PAIR_ANGSTROM, CLOSE_PAIR_ANGSTROM):
            paired = ColumnDensity(
                self.density, self.pixels, self.known.composition, self.known.max_q, angstrom
            )
            if paired.pairs <= found.pairs:
                continue
            fit = self._middle_fit(paired)
            begin = np.zeros(fit.unknowns.size)
            begin[fit.unknowns.shared] = shared
            divergence = fit.divergence_at(begin)
            if divergence < (1 - PAIR_GAIN) * least:
                found = paired
                least = divergence
                best = begin
        return found, best

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


def _first_microscope(known: KnownScan) -> Microscope:
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
    return Microscope(
        lens=np.array(coefficients),
        thickness=known.thickness_angstrom,
        tilt=np.zeros(2),
        scan_change=np.zeros((2, 2)),
        source=SOURCE,
    )


def _described(columns: ColumnDensity, state: State, edges_angstrom: Floats) -> dict[str, Any]:
    """Returns the fitted numbers as a result's file holds them: Å, rad, mrad.

    Columns' places begin at the scan's first position.
    """
    microscope = state.microscope
    c10, c12_x, c12_y, c21_x, c21_y = microscope.lens.tolist()
    displacements = {}
    for number, squared in zip(columns.numbers, state.columns.displacements, strict=True):
        displacements[str(number)] = float(np.sqrt(squared))
    return {
        "C10": c10,
        "C12": float(np.hypot(c12_x, c12_y)),
        "phi12": float(np.arctan2(c12_y, c12_x) / 2),
        "C21": float(np.hypot(c21_x, c21_y)),
        "phi21": float(np.arctan2(c21_y, c21_x)),
        "source_size_angstrom": float(FWHM * np.sqrt(max(microscope.source, 0.0))),
        "thickness_angstrom": microscope.thickness,
        "tilt_mrad": (1e3 * microscope.tilt).tolist(),
        "scan_change": microscope.scan_change.tolist(),
        "displacement_angstrom": displacements,
        "amount": float(state.columns.electrons.sum() / columns.electrons.sum()),
        "atomic_columns": len(columns.electrons),
        "pairs": columns.pairs,
        "column_yx_angstrom": np.round(state.columns.yx + edges_angstrom, 4).tolist(),
        "column_electrons": np.round(state.columns.electrons, 3).tolist(),
    }


def _fitted_density(
    density: Floats,
    uncertainty: Floats | None,
    columns: ColumnDensity,  # as they were found
    state: State,
    scan: ScanModel,
    edges_angstrom: Floats,  # distance of the scan's first position from the first that is used
) -> Floats:
    """Returns the density of the columns, and of what they left as much as is significant.

    That is what exceeds the stated uncertainty.
    """
    rows, row_columns = np.indices(density.shape)
    indices = np.stack([rows, row_columns], axis=-1).reshape(-1, 2)
    stated = indices * np.array(scan.step_angstrom) - edges_angstrom
    positions = scan.moved(stated + scan.first, state.microscope) - scan.first

    still = np.zeros(len(columns.numbers))
    before = columns.density(stated, ColumnValues(columns.yx, columns.electrons, still))
    left = density - before.reshape(density.shape)
    if uncertainty is not None:
        left = left * _significance(left, uncertainty, scan.step_angstrom)
    amount = state.columns.electrons.sum() / columns.electrons.sum()
    return columns.density(positions, state.columns).reshape(density.shape) + amount * left


def _significance(image: Floats, uncertainty: Floats, step_angstrom: tuple[float, float]) -> Floats:
    """Returns the fraction of an image's power beyond that of its uncertainty, `(ny, nx)`."""
    width = np.divide(_SMOOTH_ANGSTROM, step_angstrom)
    power = gaussian_filter(image**2, width, mode="reflect")
    noise = gaussian_filter(uncertainty**2, width, mode="reflect")
    return np.clip(1 - noise / np.maximum(power, 1e-30), 0, 1)
