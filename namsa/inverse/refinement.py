"""Refines a density against the patterns: its columns of atoms, and the microscope that they were recorded with.

Columns are found in the density (`namsa.inverse.columns`). What is fitted is the place and the number of electrons of
each, the thermal displacement of each element, lens, source, thickness, tilt, and the affine change of the scan
(`namsa.inverse.scan_model`). The potential is that of atoms, spread along the beam, which is never negative: unlike a
potential of free pixels it has a density, for the elements of each column are known.

The patterns' divergence D is minimised as (n/2) log D with Gaussian priors: the size of the errors, of counting or of
the model, is not known. A pattern counts as as many numbers n as the bright disk has pixels. Every eighth position is
kept out. The result is the state that explains those best, that before the first step included.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.ndimage import gaussian_filter
from scipy.optimize import minimize

from namsa.arrays import Array, Floats
from namsa.inverse.columns import atom_density, find_columns, share_out
from namsa.inverse.scan_model import NAMES, Misfit, ScanModel, scan_model
from namsa.physics import optics
from namsa.physics.coherence import FWHM
from namsa.physics.form_factors import Table, electron
from namsa.physics.potential import POTENTIAL_CONSTANT
from namsa.pixels import PixelGrid

SLICE_ANGSTROM = 5.0
KEPT_OUT = 8  # of so many positions, one
PATIENCE, GAIN = 4, 0.002  # stops after so many steps of less than this relative gain at the positions kept out
MOST_LEFT = 0.5  # of a density's standard deviation: what columns may leave of it
# Priors: standard deviations. Of the columns, then of `NAMES` in units of the same; thickness is relative.
POSITION_ANGSTROM, LOG_ELECTRONS, LOG_AMOUNT = 0.05, 0.1, 0.3
DISPLACEMENT, DISPLACEMENT_ERROR = 0.07**2, 0.07**2  # mean square along one axis, Å²
ERRORS = np.array([20.0, 10.0, 10.0, 200.0, 200.0, 0.03, 3e-3, 3e-3, *[3e-3] * 4, 0.03])
SOURCE = 0.03  # variance that the fit begins with, Å²: 0.4 Å full width at half maximum
LARGEST_SCAN_CHANGE = 0.02
_SMOOTH_ANGSTROM = 2.0  # over which what columns leave is compared with the uncertainty
_RADII = np.linspace(0, 5, 500)  # Å


@dataclass(frozen=True)
class Experiment:
    """What is known of a scan."""

    beam: optics.BeamSettings  # energy, semiangle, and the aberrations that the fit begins with: C10 at the entrance
    detector: PixelGrid  # its pixels, mrad
    step_angstrom: tuple[float, float]  # between positions, (y, x)
    thickness_angstrom: float
    composition: Mapping[int, float]  # number of atoms of each atomic number
    max_q: float  # where the window of the density ends, 1/Å
    form_factors: Table = "lobato"


class Refined(NamedTuple):
    """A refined density."""

    density: Floats  # `(sy, sx)`, e/Å²
    facts: dict[str, Any]  # steps, residuals and the fitted microscope; JSON types


class _Columns:
    """The columns' potential on a model's grid, with its gradient, and their density."""

    def __init__(self, density: Floats, origin: Floats, model: ScanModel, known: Experiment) -> None:
        self.known, self.grid = known, model.grid
        pixels = PixelGrid(known.step_angstrom, tuple(origin))
        found = find_columns(density, pixels, known.composition, known.max_q)
        self.yx, self.electrons, self.left = found.yx, found.electrons, found.left
        self.numbers = sorted(known.composition, reverse=True)
        shares = share_out(self.electrons, known.composition) if len(self.electrons) else {}
        self.shares = np.array([shares.get(z, np.zeros(0)) for z in self.numbers]) / np.maximum(self.electrons, 1e-9)
        self.q2, area = self.grid.squared_frequency(), np.prod(self.grid.sampling_angstrom)
        factors = [electron(z, self.q2, known.form_factors) / z for z in self.numbers]
        self.factors = POTENTIAL_CONSTANT * np.stack(factors) / area
        self.ky, self.kx = self.grid.frequencies()

    def potential(self, yx: Floats, electrons: Floats, displacements: Floats) -> tuple[Floats, tuple[Any, ...]]:
        """Returns the projected potential, V·Å, and what `gradient` needs; mean square displacements by element, Å²."""
        rows, columns = np.exp(-2j * np.pi * self.ky * yx[:, 0]), np.exp(-2j * np.pi * self.kx * yx[:, 1:])
        structure = np.stack([rows @ ((share * electrons)[:, None] * columns) for share in self.shares])
        factors = self.factors * np.exp(-2 * np.pi**2 * displacements[:, None, None] * self.q2)
        potential = np.fft.ifft2((factors * structure).sum(axis=0)).real
        return potential, (rows, columns, structure, factors, electrons)

    def gradient(self, slope: Floats, kept: tuple[Any, ...]) -> tuple[Floats, Floats, Floats]:
        """Returns the gradients by places, electrons and displacements from that by the potential."""
        rows, columns, structure, factors, electrons = kept
        by_structure = np.fft.fft2(slope).conj() / slope.size * factors
        by_yx, by_electrons = np.zeros((len(electrons), 2)), np.zeros(len(electrons))
        for share, each in zip(self.shares, by_structure, strict=True):
            along, weight = each @ columns.T, share * electrons
            by_electrons += share * (rows * along).sum(axis=0).real
            by_yx[:, 0] += weight * 2 * np.pi * (self.ky * rows * along).sum(axis=0).imag
            by_yx[:, 1] += weight * 2 * np.pi * (rows * (each @ (self.kx * columns).T)).sum(axis=0).imag
        by_displacement = (-2 * np.pi**2 * self.q2 * (by_structure * structure).real).sum(axis=(1, 2))
        return by_yx, by_electrons, by_displacement

    def density(self, positions: Floats, yx: Floats, electrons: Floats, displacements: Floats) -> Floats:
        """Returns the density of the columns at positions `(n, 2)`, `(n,)`, e/Å²."""
        distance = np.hypot(*(positions[:, None] - yx).transpose(2, 0, 1))
        total = np.zeros(len(positions))
        for z, share, squared in zip(self.numbers, self.shares, displacements, strict=True):
            of_atom = atom_density(_RADII, z, self.known.max_q, float(np.sqrt(squared)))
            total += np.interp(distance, _RADII, of_atom, right=0.0) @ (share * electrons)
        return total


class _State(NamedTuple):
    """Values of the unknowns."""

    yx: Floats
    electrons: Floats
    displacements: Floats
    microscope: Floats


class _Unknowns:
    """The unknowns as a vector in units of their priors' standard deviations, about the priors' middles."""

    def __init__(self, columns: _Columns, microscope: Floats) -> None:
        self.columns, self.microscope = columns, microscope
        self.errors = np.where(np.array(NAMES) == "thickness", microscope * ERRORS, ERRORS)
        self.count, self.elements = len(columns.electrons), len(columns.numbers)
        self.size = 3 * self.count + self.elements + len(NAMES) + 1
        low, high = np.full(self.size, -np.inf), np.full(self.size, np.inf)
        low[3 * self.count : 3 * self.count + self.elements] = -DISPLACEMENT / DISPLACEMENT_ERROR
        of_scan = slice(-1 - len(NAMES) + 8, -1 - len(NAMES) + 12)
        low[of_scan], high[of_scan] = -LARGEST_SCAN_CHANGE / ERRORS[8], LARGEST_SCAN_CHANGE / ERRORS[8]
        low[-2] = -SOURCE / ERRORS[12]
        self.bounds = list(zip(low, high, strict=True))

    def state(self, x: Floats) -> _State:
        """Returns the values of a vector."""
        n, e = self.count, self.elements
        yx = self.columns.yx + POSITION_ANGSTROM * x[: 2 * n].reshape(n, 2)
        electrons = self.columns.electrons * np.exp(LOG_ELECTRONS * x[2 * n : 3 * n] + LOG_AMOUNT * x[-1])
        displacements = np.maximum(DISPLACEMENT + DISPLACEMENT_ERROR * x[3 * n : 3 * n + e], 0)
        return _State(yx, electrons, displacements, self.microscope + self.errors * x[3 * n + e : -1])

    def gradient(self, state: _State, by_yx: Floats, by_electrons: Floats, by_u: Floats, by_m: Floats) -> Floats:
        """Returns the gradient by the vector from those by the values."""
        relative = state.electrons * by_electrons
        parts = (POSITION_ANGSTROM * by_yx.ravel(), LOG_ELECTRONS * relative, DISPLACEMENT_ERROR * by_u)
        return np.concatenate([*parts, self.errors * by_m, [LOG_AMOUNT * relative.sum()]])


def refine(
    density: Floats,  # `(sy, sx)`, e/Å²
    uncertainty: Floats | None,  # one standard deviation of its error, in the same shape; `None` if it is not known
    patterns: Array,  # `(sy, sx, dy, dx)`, fractions of the beam; NaN where a pattern is lost
    known: Experiment,
    *,
    steps: int,  # at most
    on_step: Callable[[int, int], None] = lambda done, total: None,  # called with the steps done and their bound
) -> Refined | None:
    """Refines a density.

    Positions near the scan's edges, whose probes reach columns beyond it, are left out.

    Returns:
        `None` if the density does not consist of columns of atoms, or if all patterns are lost.
    """
    focus = known.beam
    reach = optics.probe_diameter_angstrom(focus, known.thickness_angstrom) / 2
    margin = [min(int(np.ceil(reach / d)), n // 4) for d, n in zip(known.step_angstrom, density.shape, strict=True)]
    inside = tuple(slice(m, n - m) for m, n in zip(margin, density.shape, strict=True))
    part = patterns[inside]
    scan, detector = (part.shape[0], part.shape[1]), (part.shape[2], part.shape[3])
    slices = max(2, round(known.thickness_angstrom / SLICE_ANGSTROM))
    fixed = {name: value for name, value in focus.aberrations.items() if name[-2:] not in ("10", "12", "21")}
    beam = optics.BeamSettings(focus.energy_ev, focus.semiangle_mrad, fixed)
    model = scan_model(beam, known.detector, detector, scan, known.step_angstrom, slices, reach)
    origin = model.first - np.multiply(margin, known.step_angstrom)
    columns = _Columns(density, origin, model, known)
    measured = np.ascontiguousarray(part.reshape(-1, *detector), np.float32)
    recorded = np.isfinite(measured).all(axis=(1, 2))
    measured = np.where(recorded[:, None, None], np.maximum(measured, 0), 0)
    unknowns = _Unknowns(columns, _microscope(known))
    row, column = np.indices(scan)
    used = ((3 * row + column) % KEPT_OUT != 0).ravel()
    if not columns.left < MOST_LEFT or not (used & recorded).any():
        return None
    path = _descend(model, unknowns, measured, used, recorded, steps, on_step)
    best = min(range(len(path)), key=lambda number: path[number][1].kept_out)
    state = unknowns.state(path[best][0])
    before, after = path[0][1], path[best][1]
    facts = {
        "steps": best,
        "steps_tried": len(path) - 1,
        "kept_out_residual_before": before.residual,
        "kept_out_residual": after.residual,
        "kept_out_divergence_before": before.kept_out,
        "kept_out_divergence": after.kept_out,
        **_described(columns, state),
    }
    if best == 0:
        return Refined(np.asarray(density, np.float64), facts)
    return Refined(_refined(density, uncertainty, columns, state, model, known, margin), facts)


def _descend(
    model: ScanModel,
    unknowns: _Unknowns,
    measured: Array,
    used: Array,
    recorded: Array,
    steps: int,
    on_step: Callable[[int, int], None],
) -> list[tuple[Floats, Misfit]]:
    """Returns the states after 0, 1, ... steps with their misfits."""
    columns, evaluated = unknowns.columns, dict[bytes, Misfit]()
    disk = np.pi * model.beam.semiangle_mrad**2 / np.prod(model.detector.step)
    numbers = float((used & recorded).sum() * max(disk, 1.0))

    def objective(x: Floats) -> tuple[float, Floats]:
        state = unknowns.state(x)
        potential, kept = columns.potential(*state[:3])
        misfit = model.misfit(potential, state.microscope, measured, used, recorded)
        evaluated[x.tobytes()] = misfit
        slope = unknowns.gradient(state, *columns.gradient(misfit.potential, kept), misfit.microscope)
        value = numbers / 2 * np.log(misfit.used) + x @ x / 2
        return float(value), numbers / 2 / misfit.used * slope + x

    start = np.zeros(unknowns.size)
    objective(start)
    path = [(start, evaluated[start.tobytes()])]

    def after_step(x: Floats) -> None:
        path.append((x.copy(), evaluated[x.tobytes()]))
        on_step(len(path) - 1, steps)
        kept_out = [misfit.kept_out for _, misfit in path]
        if len(path) > PATIENCE and min(kept_out[-PATIENCE:]) > (1 - GAIN) * min(kept_out[:-PATIENCE]):
            raise StopIteration  # ends the fit

    minimizer: Any = minimize
    options = {"maxiter": steps, "maxfun": 3 * steps}
    kind = {"method": "L-BFGS-B", "bounds": unknowns.bounds, "callback": after_step, "options": options}
    minimizer(objective, start, jac=True, **kind)
    return path


def _microscope(known: Experiment) -> Floats:
    """Returns the numbers of the microscope that the fit begins with."""
    lens = known.beam.aberrations
    turned = [
        lens.get(name, 0.0) * turn(m * lens.get(f"phi{name[1:]}", 0.0))
        for name, m in (("C12", 2), ("C21", 1))
        for turn in (np.cos, np.sin)
    ]
    return np.array([lens.get("C10", 0.0), *turned, known.thickness_angstrom, *[0.0] * 6, SOURCE])


def _described(columns: _Columns, state: _State) -> dict[str, Any]:
    """Returns the fitted numbers as a result's file holds them: Å, rad, mrad."""
    values = dict(zip(NAMES, state.microscope.tolist(), strict=True))
    lens = {"C10": values["C10"]}
    for name, m in (("C12", 2), ("C21", 1)):
        x, y = values[f"{name}_x"], values[f"{name}_y"]
        lens |= {name: float(np.hypot(x, y)), f"phi{name[1:]}": float(np.arctan2(y, x) / m)}
    displacements = np.sqrt(state.displacements)
    return lens | {
        "source_size_angstrom": float(FWHM * np.sqrt(max(values["source"], 0.0))),
        "thickness_angstrom": values["thickness"],
        "tilt_mrad": [1e3 * values["tilt_y"], 1e3 * values["tilt_x"]],
        "scan_change": [[values["scan_yy"], values["scan_yx"]], [values["scan_xy"], values["scan_xx"]]],
        "displacement_angstrom": {str(z): float(u) for z, u in zip(columns.numbers, displacements, strict=True)},
        "amount": float(state.electrons.sum() / columns.electrons.sum()),
        "atomic_columns": len(columns.electrons),
    }


def _refined(
    density: Floats,
    uncertainty: Floats | None,
    columns: _Columns,
    state: _State,
    model: ScanModel,
    known: Experiment,
    margin: list[int],
) -> Floats:
    """Returns the density of the columns, and of what they left as much as exceeds the stated uncertainty."""
    places = np.stack(np.meshgrid(*(np.arange(n) for n in density.shape), indexing="ij"), axis=-1) - margin
    stated = model.first + places.reshape(-1, 2) * known.step_angstrom
    positions = model.moved(stated, state.microscope)
    found = columns.density(stated, columns.yx, columns.electrons, np.zeros(len(columns.numbers)))
    left, amount = density - found.reshape(density.shape), state.electrons.sum() / columns.electrons.sum()
    if uncertainty is not None:
        width = np.divide(_SMOOTH_ANGSTROM, known.step_angstrom)
        power, noise = (gaussian_filter(each**2, width, mode="reflect") for each in (left, uncertainty))
        left = left * np.clip(1 - noise / np.maximum(power, 1e-30), 0, 1)
    return columns.density(positions, *state[:3]).reshape(density.shape) + amount * left
