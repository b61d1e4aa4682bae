"""PRISM with interpolation: every f-th plane wave along each axis, for large scans of large cells.

A sum of every f-th plane wave of the lens is the probe, repeated with 1/f of the cell's sides.
Times f² it is one probe in a window of that size about the probe position, and its exit wave is cut
to the window (Ophus, Adv. Struct. Chem. Imaging 3 (2017) 13). The plane waves, and the memory of
their exit waves, are f² times fewer. What is neglected is what the probe has beyond the window: the
error falls with the size of the window, and f = 1 is exact.

The window is filled up with zeros to the cell, so that patterns have the pixels of the simulation.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from namsa.base.arrays import Booleans, Floats
from namsa.base.errors import InputError
from namsa.base.memory import check_memory_for
from namsa.engines.dispatch import Implementation
from namsa.engines.interface import BatchedProbes, PlaneWaves, waves_per_batch
from namsa.engines.multislice import intensity
from namsa.physics.backend import array_module, fft_module, run_in_batches
from namsa.physics.grid import Array, Grid
from namsa.physics.optics import BeamSettings, is_parallel, lens, probe_diameter_angstrom
from namsa.physics.potential import Slices


def check_interpolation(interpolation: int, shape: tuple[int, int], method: str) -> None:
    """Raises InputError if a grid of (ny, nx) pixels, or a method, has no such interpolation."""
    if interpolation > 1 and method == "multislice":
        raise InputError(
            f"interpolation {interpolation} is one of PRISM, and method is 'multislice': use "
            "'prism' or 'auto'"
        )
    if any(count % interpolation for count in shape):
        raise InputError(
            f"interpolation {interpolation} does not divide the grid of {shape[0]}×{shape[1]} "
            "pixels: give grid_shape as multiples of it"
        )


def sparse_beams(beams: Booleans, interpolation: int) -> Booleans:
    """Returns every f-th of the plane waves of a lens, (ny, nx), zero frequency first."""
    kept = np.zeros_like(beams)
    kept[::interpolation, ::interpolation] = beams[::interpolation, ::interpolation]
    return kept


class InterpolatedEngine:
    """Adds probes up, in their windows, from the exit waves of every f-th plane wave.

    Args:
        grid: The sampling of the waves.
        plane_waves: Propagates the plane waves of the specimen.
        fresnel: The propagator over one slice, (ny, nx); the waves have its type.
        beams: Plane waves of all lenses, (ny, nx), zero frequency first.
        interpolation: The factor f.
        slices: Number of slices.

    Raises:
        OutOfMemoryError: If the exit waves do not fit into memory.
    """

    def __init__(
        self,
        grid: Grid,
        plane_waves: PlaneWaves,
        fresnel: Array,
        beams: Booleans,
        interpolation: int,
        slices: int,
    ) -> None:
        xp = array_module(fresnel)
        ny, nx = grid.shape
        rows, columns = np.nonzero(sparse_beams(beams, interpolation))
        check_memory_for(
            float(len(rows) * ny * nx * fresnel.dtype.itemsize),
            f"exit waves of {len(rows)} plane waves on {ny}×{nx} pixels",
            "use a larger interpolation or larger pixels",
        )
        self.grid = grid
        self.factor = interpolation
        self.window = (ny // interpolation, nx // interpolation)
        self.rows = xp.asarray(rows)
        self.columns = xp.asarray(columns)
        ky, kx = grid.frequencies()
        self.ky = ky[rows, 0]
        self.kx = kx[0, columns]
        # (ny, beams, nx): a window is a stack of matrices, which need no copy
        self.waves = xp.empty((ny, len(rows), nx), fresnel.dtype)
        indices = rows * nx + columns
        pixels = np.flatnonzero(np.asarray(fresnel != 0 if xp is np else (fresnel != 0).get()))

        def work(batch: slice) -> None:
            behind = plane_waves.exit_waves(indices[batch], [slices], pixels)[0]
            spectra = xp.zeros((len(behind), ny * nx), fresnel.dtype)
            spectra[:, xp.asarray(pixels)] = behind
            fields = fft_module(spectra).ifft2(spectra.reshape(-1, ny, nx), norm="forward")
            self.waves[:, batch] = fields.swapaxes(0, 1)

        run_in_batches(
            work, len(indices), waves_per_batch(fresnel), xp is np, lambda done, total: None
        )

    def prepare(self, lens: Array) -> "InterpolatedProbes":
        """Returns the probes of `lens` (ny, nx); see `namsa.engines.interface.Engine.prepare`."""
        return InterpolatedProbes(self, lens)


class InterpolatedProbes(BatchedProbes):
    """The probes of one lens, added up by an `InterpolatedEngine`."""

    def __init__(self, engine: InterpolatedEngine, lens: Array) -> None:
        super().__init__(waves_per_batch(lens), isinstance(lens, np.ndarray))
        self._engine = engine
        self._amplitudes = engine.factor**2 * lens[engine.rows, engine.columns]

    def patterns(self, positions: Floats) -> Array:
        """Returns the patterns (n, ny, nx) of probes at `positions` (n, 2), in the precision of the
        propagator.
        """
        engine = self._engine
        xp = array_module(engine.waves)
        ny, nx = engine.grid.shape
        height, width = engine.window
        step_y, step_x = engine.grid.sampling_angstrom
        waves = xp.zeros((len(positions), ny, nx), engine.waves.dtype)
        for wave, (y, x) in zip(waves, positions.tolist(), strict=True):
            phases = np.exp(-2j * np.pi * (y * engine.ky + x * engine.kx))
            beams = self._amplitudes * xp.asarray(phases).astype(waves.dtype)
            rows = _Span(round(y / step_y) - height // 2, height, ny)
            columns = _Span(round(x / step_x) - width // 2, width, nx)
            for along_y in rows.parts():
                for along_x in columns.parts():
                    wave[along_y, along_x] = beams @ engine.waves[along_y, :, along_x]
        fft = fft_module(waves)
        return intensity(fft.fft2(waves, norm="forward"))


class _Span(NamedTuple):
    """Consecutive pixels of a periodic axis."""

    start: int
    length: int
    period: int

    def parts(self) -> Iterator[slice]:
        """Yields them as one or two slices of the axis."""
        start = self.start % self.period
        stop = start + self.length
        yield slice(start, min(stop, self.period))
        if stop > self.period:
            yield slice(0, stop - self.period)


def interpolated(
    implementation: Implementation, beams: Booleans, interpolation: int
) -> Implementation:
    """Returns an implementation whose engine adds probes up from every f-th plane wave.

    Args:
        implementation: Propagates the plane waves.
        beams: Plane waves of all lenses, (ny, nx), zero frequency first.
        interpolation: The factor f.
    """

    def engine(grid: Grid, slices: Slices, propagators: Array) -> InterpolatedEngine:
        plane_waves = implementation.plane_waves(grid, slices, propagators)
        return InterpolatedEngine(
            grid, plane_waves, propagators[0], beams, interpolation, len(slices.order)
        )

    return Implementation(implementation.name, engine, implementation.plane_waves)


def window_doubt(grid: Grid, beam: BeamSettings, thickness_angstrom: float, factor: int) -> str:
    """Returns a warning if the probe is wider than its window; else nothing."""
    if is_parallel(grid, beam):
        return ""
    diameter = probe_diameter_angstrom(beam, thickness_angstrom)
    width = min(grid.extent_angstrom) / factor
    if diameter <= width:
        return ""
    return (
        f"the probe spreads to {diameter:.1f} Å, and interpolation {factor} cuts its exit wave to "
        f"{width:.1f} Å: use a smaller interpolation or a larger cell"
    )


def approximation(grid: Grid, beam: BeamSettings, factor: int, accuracy: float) -> str:
    """Returns how far interpolation misses an accuracy, which does not count it; else nothing.

    What the probe has beyond the window at the entrance is cut off, and what its repetitions have
    there is added. Patterns of silicon were wrong by the root of twice that intensity, those of GaP
    and gold by 0.8 to 1.7 times this.
    """
    if is_parallel(grid, beam):
        return ""
    share = share_beyond_window(grid, beam, factor)
    error = float(np.sqrt(2 * share))
    if error <= accuracy:
        return ""
    return (
        f"interpolation {factor} leaves out the {share:.2%} of the probe that is beyond its window:"
        f" patterns on the reciprocal grid are wrong by about {error:.0%}, those on larger pixels "
        f"by less, which the accuracy of {accuracy:.1%} does not count: use a smaller interpolation"
        " or a larger cell"
    )


def share_beyond_window(grid: Grid, beam: BeamSettings, factor: int) -> float:
    """Returns the part of the probe's intensity, at the entrance, beyond the window about it."""
    probe = np.fft.fftshift(np.abs(np.fft.ifft2(lens(grid, beam))) ** 2)
    inside = []
    for count in grid.shape:
        start = count // 2 - count // factor // 2
        inside.append(slice(start, start + count // factor))
    return float(1 - probe[inside[0], inside[1]].sum() / probe.sum())
