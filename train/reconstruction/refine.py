"""A few steps from the network's estimate towards the patterns: gradients through multislice, in TensorFlow.

The forward model is `namsa.engines.multislice`'s, in the same units and with the same optics, differentiated by
TensorFlow.
What is refined is the projected potential on the simulation's grid, cut into equal slices or into a few distinct ones;
it stays non-negative and is not regularised otherwise. A step sees a random batch of positions.

Patterns determine the potential, not the density: by Mott–Bethe the nuclei are missing. The refined density is
therefore the refined potential over its own ratio to the estimated density, shell by shell of q: where the density lies
comes from the patterns, how much of it from the network.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from namsa.config.simulation import SimulationConfig
from namsa.errors import InputError
from namsa.inverse import consistency
from namsa.inverse.consistency import Scene
from namsa.inverse.mott_bethe import BINS, Transfer
from namsa.physics import density_target as target
from namsa.physics import optics, potential
from namsa.physics.grid import Grid

Array = npt.NDArray[Any]
Tensor = Any

BATCH = 32
RATE = 0.05  # Adam's, in root mean squares of the potential about its mean
_DARK = 1e-7  # of the beam in a pixel: keeps the root's slope finite


@dataclass(frozen=True)
class Multislice:
    """The experiment as a function of potentials, in complex64.

    lenses: a mode's lens (ny, nx) and its shift (y, x) in Å; fresnel, antialias: (ny, nx), zero frequency first
    counts: how many equal slices each distinct one stands for, from the entrance down
    """

    grid: Grid
    sigma: float
    lenses: tuple[tuple[Array, tuple[float, float]], ...]
    fresnel: Array
    antialias: Array
    binning: tuple[Array, Array] | None
    counts: tuple[int, ...]

    def patterns(self, slices: Tensor, positions: Array) -> Tensor:
        """(n, dy, dx) at `positions` (n, 2) of `slices` (len(counts), ny, nx): V·Å of one slice each."""
        phases = tf.cast(self.sigma * slices, tf.float32)
        bare = tf.complex(tf.cos(phases), tf.sin(phases))
        transmissions = tf.unstack(tf.signal.ifft2d(tf.signal.fft2d(bare) * self.antialias), len(self.counts))
        total: Tensor = 0.0
        for lens, shift in self.lenses:
            waves = tf.constant(optics.probes(lens, self.grid, positions + shift))
            for t, count in zip(transmissions, self.counts, strict=True):
                for _ in range(count):
                    waves = tf.signal.fft2d(tf.signal.ifft2d(waves) * t) * self.fresnel
            total = total + tf.math.real(waves) ** 2 + tf.math.imag(waves) ** 2
        total = tf.signal.fftshift(total, axes=(-2, -1))
        return total if self.binning is None else self.binning[0] @ total @ self.binning[1]


class Refined(NamedTuple):
    """density: at the target's pixels, e/Å²; potential: (ny, nx), V·Å; scores: R before and after; losses: a step's."""

    density: Array
    potential: Array
    scores: tuple[float, float]
    losses: list[float]


def multislice(experiment: SimulationConfig, thickness_angstrom: float, grid: Grid, distinct: int = 1) -> Multislice:
    """The model of `experiment` with `distinct` different slices. Raises InputError where there are not that many."""
    count = potential.slice_count(thickness_angstrom, experiment.simulation.slice_thickness_angstrom)
    if not 1 <= distinct <= count:
        raise InputError(f"{distinct} distinct slices of {count}: take 1 to {count}")
    beam = consistency.beam_of(experiment, grid, thickness_angstrom / count)
    return Multislice(
        grid,
        optics.interaction_constant(experiment.microscope.energy_ev),
        tuple((beam.lens(mode), mode.shift) for mode in beam.modes),
        beam.fresnel,
        grid.antialias().astype(np.complex64),
        beam.binning,
        tuple(len(part) for part in np.array_split(np.arange(count), distinct)),
    )


def loss(simulated: Tensor, measured: Tensor) -> Tensor:
    """Σ(√I_sim − √I)² / ΣI: the smooth sister of the score."""
    roots = tf.sqrt(simulated + _DARK) - tf.sqrt(measured + _DARK)
    return tf.reduce_sum(roots**2) / tf.reduce_sum(measured)


def descend(
    model: Multislice,
    slices: Any,
    positions: npt.NDArray[np.float64],
    patterns: Array,
    *,
    steps: int,
    batch: int,
    rate: float,
    seed: int,
    on_step: Callable[[int, int], None] = lambda done, total: None,
) -> list[float]:
    """Takes the variable `slices` down the loss by Adam, never below 0; the loss of each step's positions.

    rate: V·Å a step
    """
    optimizer = keras.optimizers.Adam(rate)
    rng, losses = np.random.default_rng(seed), []
    for step in range(steps):
        chosen = rng.choice(len(patterns), min(batch, len(patterns)), replace=False)
        with tf.GradientTape() as tape:
            value = loss(model.patterns(slices, positions[chosen]), patterns[chosen])
        optimizer.apply_gradients([(tape.gradient(value, slices), slices)])
        slices.assign(tf.nn.relu(slices))
        losses.append(float(value))
        on_step(step + 1, steps)
    return losses


def refine(
    density: npt.NDArray[Any],
    patterns: npt.ArrayLike,
    experiment: SimulationConfig,
    thickness_angstrom: float,
    transfer: Transfer,
    where: Scene,
    *,
    steps: int = 30,
    distinct: int = 1,
    batch: int = BATCH,
    rate: float = RATE,
    seed: int = 0,
    on_step: Callable[[int, int], None] = lambda done, total: None,
) -> Refined:
    """`density` after `steps` of Adam, beginning with the potential that `transfer` makes of it at its best scale.

    The arguments are `consistency.check`'s. `distinct` slices are refined apart, each standing for its part of the
    thickness. Raises InputError as `check` and `multislice` do.
    """
    before = consistency.check(density, patterns, experiment, thickness_angstrom, transfer, where)
    estimate = where.on_grid(density)
    start = before.scale * transfer.potential(estimate, where.grid)
    model = multislice(experiment, thickness_angstrom, where.grid, distinct)
    stack = np.asarray(patterns, np.float32)
    stack = stack.reshape(-1, *stack.shape[-2:])
    shares = np.array(model.counts)[:, None, None]
    v = tf.Variable(np.broadcast_to(np.maximum(start, 0) / shares.sum(), (distinct, *start.shape)).astype(np.float32))
    step = rate * float(np.std(start)) / int(shares.sum())
    losses = descend(model, v, where.positions, stack, steps=steps, batch=batch, rate=step, seed=seed, on_step=on_step)
    refined = (shares * v.numpy()).sum(axis=0).astype(np.float64)
    simulated = np.concatenate(
        [model.patterns(v, part).numpy() for part in np.array_split(where.positions, -(-len(stack) // batch))]
    )
    after = float(consistency.misfit(simulated[where.inside], stack[where.inside]))
    scale = shell_ratio(refined, estimate, where.grid, transfer)
    found = where.on_target(scale(refined))
    return Refined(found, refined, (before.score, after), losses)


def shell_ratio(
    refined: Array, estimate: Array, grid: Grid, transfer: Transfer
) -> Callable[[Array], npt.NDArray[np.float64]]:
    """From a potential to a density, by the ratio of `estimate`'s shells of q to `refined`'s, least squares in each.

    The mean is the estimate's. A shell in which the two have nothing in common stays the estimate's.
    """
    q, max_q = np.sqrt(grid.squared_frequency()), transfer.max_q_per_angstrom
    shell = np.minimum((q / max_q * BINS).astype(int), BINS).ravel()  # the last is beyond the band
    rho = np.fft.fft2(estimate).ravel()

    def to_density(field: Array) -> npt.NDArray[np.float64]:
        v = target.band_limited(field, grid, max_q).ravel()
        v[0] = 0
        weight = np.where(np.arange(v.size) == 0, 0, 1)
        cross = np.bincount(shell, weight * (rho * v.conj()).real, BINS + 1)
        own = np.bincount(shell, abs(v) ** 2, BINS + 1)
        ratio = np.divide(cross, own, out=np.zeros(BINS + 1), where=own > 0)
        spectrum = np.where(ratio[shell] > 0, ratio[shell] * v, rho)
        spectrum[shell == BINS] = 0
        spectrum[0] = rho[0]
        return np.fft.ifft2(spectrum.reshape(grid.shape)).real

    return to_density
