"""Refines a network's density towards the measured patterns: gradients through multislice.

The forward model is that of `namsa.engines.multislice`, with the same units and optics, which TensorFlow or JAX
differentiates.
The variable is the projected potential on the simulation's grid, cut into equal slices or into a few distinct ones. It
is kept non-negative and is not regularised otherwise. Each step uses a random batch of positions.

Patterns determine the potential and not the density, which lacks the nuclei (Mott–Bethe). The refined potential is
therefore converted by its own ratio to the estimated density, per shell of q: the patterns determine where the density
lies, the network determines how much of it there is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import keras
import numpy as np
import numpy.typing as npt
from keras import ops

from namsa.arrays import Array
from namsa.errors import InputError
from namsa.inverse import consistency
from namsa.inverse.consistency import ScanSimulation
from namsa.inverse.mott_bethe import BINS, DensityToPotential
from namsa.physics import density_target, optics
from namsa.physics.grid import Grid

from ..execution import backend

Tensor = Any

BATCH = 32
RATE = 0.05  # learning rate of Adam, in standard deviations of the potential
_DARK = 1e-7  # fraction of the beam that is added to each pixel: keeps the slope of the root finite


@dataclass(frozen=True)
class DifferentiableMultislice:
    """An experiment as a differentiable function of potentials, in complex64."""

    grid: Grid  # the periodic cell
    sigma: float  # interaction constant, rad/(V·Å)
    # Lens of each mode, `(ny, nx)`, zero frequency first, and its shift (y, x), Å.
    lenses: tuple[tuple[Array, tuple[float, float]], ...]
    fresnel: Array  # propagator over a slice, `(ny, nx)`, zero frequency first
    antialias: Array  # band limit, `(ny, nx)`, zero frequency first
    binning: tuple[Array, Array] | None  # matrices of the detector; `None` if every frequency is a pixel
    counts: tuple[int, ...]  # how many equal slices each distinct slice stands for, from the entrance down

    def patterns(self, slices: Tensor, positions: Array) -> Tensor:
        """Simulates patterns; returns patterns, `(n, dy, dx)`, fractions of the beam.

        Args:
            slices: Projected potential of one slice of each distinct kind, `(len(counts), ny, nx)`, V·Å.
            positions: Probe positions, `(n, 2)` as (y, x), Å.
        """
        return self.propagated(slices, self.probes(positions))

    def probes(self, positions: Array) -> list[Array]:
        """Returns the waves at the entrance in each mode, `(n, ny, nx)`, complex64, zero frequency first."""
        return [optics.probes(lens, self.grid, positions + shift) for lens, shift in self.lenses]

    def propagated(self, slices: Tensor, probes: Sequence[Tensor]) -> Tensor:
        """Returns the patterns of probes; see `patterns`."""
        execution: Any = backend.execution()
        fft2, ifft2 = execution.fft2, execution.ifft2
        phases = ops.cast(self.sigma * slices, "float32")
        bare = execution.complex_of(ops.cos(phases), ops.sin(phases))
        transmissions = ops.unstack(ifft2(fft2(bare) * self.antialias), len(self.counts))
        total: Tensor = 0.0
        for entering in probes:
            waves = entering
            for t, count in zip(transmissions, self.counts, strict=True):
                for _ in range(count):
                    waves = fft2(ifft2(waves) * t) * self.fresnel
            total = total + ops.real(waves) ** 2 + ops.imag(waves) ** 2
        total = ops.roll(total, [size // 2 for size in self.grid.shape], axis=(-2, -1))
        return total if self.binning is None else self.binning[0] @ total @ self.binning[1]


class Refined(NamedTuple):
    """Result of a refinement."""

    density: Array  # density at the pixels of the estimate, e/Å²
    potential: Array  # projected potential on the grid, `(ny, nx)`, V·Å
    scores: tuple[float, float]  # r before and after (`namsa.inverse.consistency`)
    losses: list[float]  # loss of each step


def differentiable_multislice(simulation: ScanSimulation, distinct: int = 1) -> DifferentiableMultislice:
    """Returns the differentiable model of a scan.

    Raises:
        InputError: If there are fewer slices than `distinct`.
    """
    experiment, grid, count = simulation.experiment, simulation.grid, simulation.slice_count
    if not 1 <= distinct <= count:
        raise InputError(f"{distinct} distinct slices of {count}: take 1 to {count}")
    setup = consistency.optical_setup(experiment, grid, simulation.thickness_angstrom / count)
    return DifferentiableMultislice(
        grid,
        optics.interaction_constant(experiment.microscope.energy_ev),
        tuple((setup.lens(mode), mode.shift) for mode in setup.modes),
        setup.fresnel,
        grid.antialias().astype(np.complex64),
        setup.binning,
        tuple(len(part) for part in np.array_split(np.arange(count), distinct)),
    )


def loss(simulated: Tensor, measured: Tensor) -> Tensor:
    """Returns Σ(√I_sim − √I)² / ΣI, a smooth counterpart of R, for patterns `(n, dy, dx)`."""
    roots = ops.sqrt(simulated + _DARK) - ops.sqrt(measured + _DARK)
    return ops.sum(roots**2) / ops.sum(measured)


def descend(
    model: DifferentiableMultislice,
    slices: keras.Variable,  # potential of each distinct slice, `(len(counts), ny, nx)`, V·Å; changed in place
    positions: npt.NDArray[np.float64],  # probe positions, `(n, 2)` as (y, x), Å
    patterns: Array,  # measured patterns, `(n, dy, dx)`, fractions of the beam
    *,
    steps: int,
    batch: int,  # positions per step
    rate: float,  # learning rate, V·Å per step
    seed: int,  # seed of the random batches
    # Called with the number of steps done and their total.
    on_step: Callable[[int, int], None] = lambda done, total: None,
) -> list[float]:
    """Minimises the loss over a variable by Adam and keeps the variable non-negative.

    Returns:
        Loss of each step's batch.
    """
    optimizer = keras.optimizers.Adam(rate)
    rng, losses = np.random.default_rng(seed), []
    differentiated = backend.execution().value_and_gradient(
        lambda slices, probes, measured: loss(model.propagated(slices, probes), measured)
    )
    for step in range(steps):
        chosen = rng.choice(len(patterns), min(batch, len(patterns)), replace=False)
        value, gradient = differentiated(slices.value, model.probes(positions[chosen]), patterns[chosen])
        optimizer.apply_gradients([(gradient, slices)])
        slices.assign(ops.relu(slices))
        losses.append(float(value))
        on_step(step + 1, steps)
    return losses


def refine(
    density: Array,  # as in `consistency.check`
    patterns: npt.ArrayLike,  # as in `consistency.check`
    simulation: ScanSimulation,  # experiment, thickness and geometry
    conversion: DensityToPotential,
    *,
    steps: int = 30,  # number of steps of Adam
    distinct: int = 1,  # number of slices that are refined separately, each standing for its part of the thickness
    batch: int = BATCH,  # positions per step
    rate: float = RATE,  # learning rate, in standard deviations of the potential
    seed: int = 0,  # seed of the random batches
    # Called with the number of steps done and their total.
    on_step: Callable[[int, int], None] = lambda done, total: None,
) -> Refined:
    """Refines a density, starting with the potential that the conversion gives it at its best scale.

    Raises:
        InputError: If shapes do not agree, or if there are fewer slices than `distinct`.
    """
    before = consistency.check(density, patterns, simulation, conversion)
    estimate = simulation.on_grid(density)
    start = before.scale * conversion.potential(estimate, simulation.grid)
    model = differentiable_multislice(simulation, distinct)
    positions, inside = simulation.positions, simulation.inside
    stack = np.asarray(patterns, np.float32)
    stack = stack.reshape(-1, *stack.shape[-2:])
    counts = np.array(model.counts)[:, None, None]
    v = keras.Variable(np.broadcast_to(np.maximum(start, 0) / counts.sum(), (distinct, *start.shape)), dtype="float32")
    step = rate * float(np.std(start)) / int(counts.sum())
    losses = descend(model, v, positions, stack, steps=steps, batch=batch, rate=step, seed=seed, on_step=on_step)
    refined = (counts * np.asarray(v)).sum(axis=0).astype(np.float64)
    simulated = np.concatenate(
        [np.asarray(model.patterns(v.value, part)) for part in np.array_split(positions, -(-len(stack) // batch))]
    )
    after = float(consistency.misfit(simulated[inside], stack[inside]))
    refined_density = scaled_by_shell(refined, estimate, simulation.grid, conversion.max_q_per_angstrom)
    return Refined(simulation.on_target(refined_density), refined, (before.score, after), losses)


def scaled_by_shell(potential: Array, estimate: Array, grid: Grid, max_q: float) -> npt.NDArray[np.float64]:
    """Converts a potential to a density by its ratio to an estimated density, per shell of q.

    The ratio of each shell is fitted by least squares. The mean is that of the estimate, and so is a shell in which the
    fields do not correlate.

    Args:
        potential: Projected potential, `(ny, nx)`, V·Å.
        estimate: Estimated density, `(ny, nx)`, e/Å².

    Returns:
        Density, `(ny, nx)`, e/Å².
    """
    q = np.sqrt(grid.squared_frequency())
    shell = np.minimum((q / max_q * BINS).astype(int), BINS).ravel()  # the last holds all beyond the band
    rho = np.fft.fft2(estimate).ravel()
    v = density_target.band_limited(potential, grid, max_q).ravel()
    v[0] = 0
    weight = np.where(np.arange(v.size) == 0, 0, 1)
    cross = np.bincount(shell, weight * (rho * v.conj()).real, BINS + 1)
    own = np.bincount(shell, abs(v) ** 2, BINS + 1)
    ratio = np.divide(cross, own, out=np.zeros(BINS + 1), where=own > 0)
    spectrum = np.where(ratio[shell] > 0, ratio[shell] * v, rho)
    spectrum[shell == BINS] = 0
    spectrum[0] = rho[0]
    return np.fft.ifft2(spectrum.reshape(grid.shape)).real
