"""Trials of pixels and slices: a few coherent probes of a specimen, with any pixels and slices.

The choices of a simulation are compared with finer ones here, in two ways.
`namsa.sampling.measurement` tries them before a simulation and makes them smaller where they do not
hold. `namsa.sampling.convergence` says what error they have, by ring and with the statistical error
of thermal displacements.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import ase
import numpy as np

from namsa.base.arrays import Booleans, Floats
from namsa.base.memory import available_memory_bytes, check_memory_for
from namsa.crystals.displacements import displace_atoms
from namsa.engines import dispatch, prism
from namsa.engines.exposure import expose
from namsa.physics import optics, potential, specimen
from namsa.physics.grid import Grid, fast_shape
from namsa.physics.slice_plan import SlicePlan
from namsa.sampling import resolution
from namsa.sampling.slicing import Slicing
from namsa.setup.scan import ProbePositions
from namsa.setup.settings import SimulationSettings

FINER = (2, 3)  # times, of the references: the second one is compared with
# Operations as slow as one of the propagation: of transmissions, and of all else per pixel.
_SLICE_COST = 3.0
_PIXEL_COST = 3000.0
_BYTES_PER_PIXEL = 200  # of a reference with its transmissions on finer pixels
_ROUNDING = 1e-9  # of the size of a pixel
# Of a sequence that fills the cell evenly: powers of 1/1.3247, the plastic number.
_STEPS = (0.7548776662, 0.5698402910)


def probes_of(
    atoms: ase.Atoms,
    extent_angstrom: tuple[float, float],
    count: int,
    positions: Floats | None = None,
) -> Floats:
    """Returns positions (n, 2): one on the strongest column, and others evenly over a scan, Å.

    Args:
        positions: Positions (m, 2) of the scan; by default the whole cell.
    """
    if not len(atoms):
        return np.array([extent_angstrom]) / 2
    strongest = resolution.strongest_column(specimen.atom_list(atoms), extent_angstrom)
    steps = np.outer(np.arange(count), _STEPS) % 1
    if positions is None:
        return np.asarray((strongest + steps * extent_angstrom) % extent_angstrom)
    others = positions[(steps[1:, 0] * len(positions)).astype(int)]
    return np.concatenate([[strongest], others])


def finer_grid(grid: Grid, times: int) -> Grid:
    """Returns a grid with pixels at most a part as large, and the whole Nyquist frequency.

    Its transmissions are on pixels that are finer than those of the choice, by less than its waves.
    """
    pixel = (1 + _ROUNDING) * max(grid.sampling_angstrom) / times
    shape = fast_shape(grid.extent_angstrom, pixel)
    return Grid(shape, grid.extent_angstrom, 1.0, finer=2 if times > 2 else 3)


@dataclass(frozen=True)
class Trial:
    """A few probes of one configuration of a specimen's atoms, with any pixels and slices."""

    slicing: Slicing  # the specimen, and what was chosen for it
    positions: Floats  # of the probes, (n, 2) as (y, x), Å
    reach_mrad: float  # angle with the axis within which patterns are compared, mrad
    snapshot: int = 0  # number of the snapshot
    draw: int = 0  # number of the random displacements

    def patterns(self, grid: Grid, plan: SlicePlan) -> Floats:
        """Returns the patterns within `reach_mrad`, (n, pixels), the same pixels for any grid that
        is not coarser than that of the slicing.
        """
        return self.compared(self.whole_patterns(grid, plan))

    def compared(self, patterns: Floats) -> Floats:
        """Returns the pixels within `reach_mrad` of whole patterns, (n, pixels)."""
        shape = self.slicing.grid.shape
        corner = [
            large // 2 - small // 2 for large, small in zip(patterns.shape[1:], shape, strict=True)
        ]
        rows = slice(corner[0], corner[0] + shape[0])
        columns = slice(corner[1], corner[1] + shape[1])
        return patterns[:, rows, columns][:, self._within_reach()]

    def angles_mrad(self) -> Floats:
        """Returns the angle of each pixel that is compared with the axis, (pixels,), mrad."""
        return self._angles()[self._within_reach()]

    def whole_patterns(self, grid: Grid, plan: SlicePlan) -> Floats:
        """Returns the patterns (n, ny, nx), zero frequency in the centre."""
        slicing = self.slicing
        settings = _coherent(slicing)
        thicknesses = plan.distinct_thicknesses()[0]
        exposure = expose(
            settings,
            grid,
            thicknesses.tolist(),
            slicing.thickness_angstrom,
            ProbePositions(self.positions, None),
            slicing.xp,
        )
        sliced = specimen.build(
            self._atoms(),
            grid,
            slicing.cuts(plan),
            optics.interaction_constant(settings.microscope.energy_ev),
            settings.simulation.form_factors,
            slicing.dtype,
            slicing.xp,
            projection=settings.simulation.projection,
            bonding=slicing.bonding,
        )
        engine = dispatch.make_engine(exposure.setup, sliced.slices)
        patterns = np.zeros((len(self.positions), *grid.shape), slicing.dtype.type(0).real.dtype)
        dispatch.add_patterns(patterns, self.positions, exposure.setup, engine)
        return patterns.astype(np.float64)

    def _atoms(self) -> ase.Atoms:
        """Returns the atoms of the configuration."""
        settings = self.slicing.settings
        atoms = self.slicing.snapshots[self.snapshot]
        if not settings.frozen_phonons:
            return atoms
        rng = np.random.default_rng(settings.seed + self.draw)
        return displace_atoms(atoms, settings.frozen_phonons.displacement_angstrom(), rng)

    def _angles(self) -> Floats:
        """Returns the angle of each pixel of the slicing's grid with the axis, (ny, nx), mrad."""
        wavelength = optics.wavelength_angstrom(self.slicing.settings.microscope.energy_ev)
        ky, kx = self.slicing.grid.frequencies()
        return np.fft.fftshift(1e3 * wavelength * np.hypot(ky, kx))

    def _within_reach(self) -> Booleans:
        """Returns which pixels are compared, (ny, nx), zero frequency in the centre."""
        return np.asarray(self._angles() < self.reach_mrad)


def _coherent(slicing: Slicing) -> SimulationSettings:
    """Returns the settings of coherent probes without a detector."""
    settings = slicing.settings
    microscope = settings.microscope.model_copy(
        update={"source_size_angstrom": 0.0, "focal_spread_angstrom": 0.0}
    )
    engine = settings.simulation.model_copy(update={"engine": "auto"})
    return replace(settings, microscope=microscope, simulation=engine, detector=None, plasmons=None)


@dataclass(frozen=True)
class References:
    """The finer pixels and slices that a choice is compared with."""

    grids: tuple[Grid, ...]
    plans: tuple[SlicePlan, ...]  # none if no layers share a slice
    plan_of_pixels: SlicePlan  # with which pixels are compared

    @classmethod
    def of(cls, slicing: Slicing, finer: Sequence[int] = FINER) -> "References":
        """Returns those of a choice, which are finer by each of these factors."""
        grids = tuple(finer_grid(slicing.grid, times) for times in finer)
        plans = tuple(slicing.finer_plan(times) for times in finer)
        if plans[-1].count == slicing.plan.count:
            plans = ()
        thinnest = slicing.settings.simulation.divides_atoms and bool(plans)
        return cls(grids, plans, plans[-1] if thinnest else slicing.plan)

    def operations_per_probe(self, slicing: Slicing) -> float:
        """Returns the floating-point operations of one probe in all of them."""
        total = 0.0
        for grid, plan in self._tried(slicing):
            work = prism.Work(grid.shape, plan.count, 1, 1, 1, 1, 1, 1)
            total += prism.propagation_operations(work, 1)
        return total

    def slice_operations(self, slicing: Slicing) -> float:
        """Returns the operations of all of them that do not depend on the number of probes."""
        atoms = specimen.atom_list(slicing.snapshots[0])
        heaviest = int(atoms.numbers.max(initial=0))
        distinct, _ = potential.distinct_slices(atoms, slicing.plan)
        repeated = len(distinct) / slicing.plan.count
        atoms_summed = float(sum(len(members.z) for members in distinct))
        if slicing.settings.frozen_phonons:
            repeated = 1.0
            atoms_summed = float(len(atoms.z))
        total = 0.0
        for grid, plan in self._tried(slicing):
            pixels = math.prod(grid.refined(heaviest).shape)
            transforms = repeated * plan.count * (10 * math.log2(pixels) + 60)
            total += _SLICE_COST * pixels * (transforms + 2 * atoms_summed)
            total += _PIXEL_COST * math.prod(grid.shape)
        return total

    def fit_into_memory(self) -> bool:
        """Returns whether the finest pixels do."""
        return self._bytes() < available_memory_bytes()

    def check_memory(self) -> None:
        """Raises OutOfMemoryError if the finest pixels do not fit into memory."""
        ny, nx = self.grids[-1].shape
        check_memory_for(
            self._bytes(),
            f"the reference of {ny}×{nx} pixels",
            "use a smaller cell or a smaller detector",
        )

    def _bytes(self) -> float:
        """Returns the memory of the finest pixels, bytes."""
        return float(math.prod(self.grids[-1].shape) * _BYTES_PER_PIXEL)

    def _tried(self, slicing: Slicing) -> list[tuple[Grid, SlicePlan]]:
        """Returns all pixels and slices that are simulated."""
        pixels = [(grid, self.plan_of_pixels) for grid in (slicing.grid, *self.grids)]
        return pixels + [(slicing.grid, plan) for plan in self.plans]
