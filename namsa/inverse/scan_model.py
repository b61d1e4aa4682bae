"""The patterns of a scan as a function of a projected potential and of the microscope.

Probes propagate through equal slices of the potential (`namsa.inverse.scan_waves`). The source is a
Gaussian blur of the patterns along the scan (`namsa.inverse.source_blur`). The difference from
measured patterns has a gradient.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from namsa.base.arrays import Array, Floats
from namsa.base.pixels import PixelGrid
from namsa.inverse import source_blur
from namsa.inverse.microscope import MicroscopeValues
from namsa.inverse.scan_geometry import ScanGeometry, object_grid, probe_box
from namsa.inverse.scan_waves import ScanWaves, SliceWaves
from namsa.physics import optics

LARGEST_BYTES = 2**30  # of waves that are kept for the gradient; more are computed twice
BATCH = 64  # positions at a time
DARK = 1e-6  # fraction of the beam that is added to each pixel: what no elastic model explains
LEAST_SUM = 1e-30  # of what divergences are relative to


class Divergences(NamedTuple):
    """Distance of patterns from the measured ones."""

    # Kullback–Leibler divergence at the positions that are used, of their whole intensity
    used: float
    kept_out: float  # the same at the others
    residual: float  # R of `namsa.inverse.consistency` at the others


class Misfit(NamedTuple):
    """Distance of a model's patterns from the measured ones, with its gradient."""

    divergences: Divergences
    by_potential: Floats  # gradient of `used` by the potential, `(ny, nx)`, 1/(V·Å)
    by_microscope: MicroscopeValues  # gradient of `used` by the microscope


def divergences(simulated: Array, measured: Array, used: Array, known: Array) -> Divergences:
    """Compares patterns with measured ones.

    Args:
        simulated: `(n, dy, dx)`, fractions of the beam.
        measured: The same.
        used: Which positions the fit uses, `(n,)`.
        known: At which positions a pattern was recorded, `(n,)`.
    """
    terms = position_divergences(simulated, measured)
    intensities = measured.sum(axis=(1, 2), dtype=np.float64)
    kept_out = known & ~used
    roots = np.sqrt(measured[kept_out])
    differences = abs(np.sqrt(np.maximum(simulated[kept_out], 0)) - roots)
    residual = differences.sum(dtype=np.float64) / max(float(roots.sum()), LEAST_SUM)
    return Divergences(
        _relative_sum(terms, intensities, used & known),
        _relative_sum(terms, intensities, kept_out),
        float(residual),
    )


def position_divergences(simulated: Array, measured: Array) -> Floats:
    """Returns the divergence of each position's pattern, `(n,)`, fractions of the beam."""
    model = np.maximum(simulated, 0) + DARK
    data = measured + DARK
    terms = model - data + data * np.log(data / model)
    return np.asarray(terms.sum(axis=(1, 2), dtype=np.float64))


def _relative_sum(terms: Floats, intensities: Floats, chosen: Array) -> float:
    """Returns the sum of the terms of some positions, relative to their intensity."""
    return float(terms[chosen].sum() / max(intensities[chosen].sum(), LEAST_SUM))


@dataclass(frozen=True)
class ScanModel(ScanGeometry):
    """A raster of positions over an object, and its patterns."""

    def patterns(self, potential: Floats, microscope: MicroscopeValues, indices: Array) -> Array:
        """Returns the patterns of a point source at some positions.

        Args:
            potential: Of the whole thickness, `(ny, nx)`, V·Å.
            indices: The positions, `(n,)`.

        Returns:
            `(n, dy, dx)`.
        """
        waves = ScanWaves(self, potential, microscope)
        simulated = np.empty((len(indices), *self.detector_shape), np.float32)
        for start in range(0, len(indices), BATCH):
            batch = slice(start, start + BATCH)
            simulated[batch] = waves.forward(indices[batch])[0]
        return simulated

    def misfit(
        self,
        potential: Floats,  # of the whole thickness, `(ny, nx)`, V·Å
        microscope: MicroscopeValues,
        measured: Array,  # `(n, dy, dx)`, fractions of the beam
        used: Array,  # whether a position counts for the gradient, `(n,)`
        known: Array,  # whether a position's pattern was recorded, `(n,)`
        added: Array | float = 0.0,  # to the patterns of a point source, in the shape of `measured`
    ) -> Misfit:
        """Compares the patterns with measured ones."""
        waves = ScanWaves(self, potential, microscope)
        positions = np.arange(len(measured))
        batches = [positions[start : start + BATCH] for start in range(0, len(measured), BATCH)]
        wave_bytes = 16 * len(measured) * self.slices * self.box.shape[0] ** 2
        point = np.empty_like(measured)
        kept: list[SliceWaves | None] = []
        for batch in batches:
            point[batch], slice_waves = waves.forward(batch)
            kept.append(slice_waves if wave_bytes <= LARGEST_BYTES else None)
        point += added
        simulated = self.blurred(point, microscope.source)

        slope = _slope(simulated, measured, used & known)
        by_source = float(np.vdot(slope, self.by_variance(point, microscope.source)))
        along_y, along_x = source_blur.blur_matrices(
            self.scan, self.step_angstrom, microscope.source
        )
        by_point = source_blur.apply(along_y.T, along_x.T, self.scan, slope)
        for batch, kept_waves in zip(reversed(batches), reversed(kept), strict=True):
            slice_waves = waves.forward(batch)[1] if kept_waves is None else kept_waves
            waves.backward(batch, slice_waves, by_point[batch])
        by_potential, by_microscope = waves.gradient()
        return Misfit(
            divergences(simulated, measured, used, known),
            by_potential,
            by_microscope._replace(source=by_source),
        )

    def blurred(self, patterns: Array, variance: float) -> Array:
        """Returns the patterns of a source of some variance from those of a point.

        Args:
            patterns: `(n, dy, dx)`.
            variance: Å².
        """
        return source_blur.blurred(patterns, self.scan, self.step_angstrom, variance)

    def by_variance(self, patterns: Array, variance: float) -> Array:
        """Returns the derivative of what `blurred` returns by the variance."""
        return source_blur.by_variance(patterns, self.scan, self.step_angstrom, variance)


def _slope(simulated: Array, measured: Array, used: Array) -> Array:
    """Returns the gradient of `Divergences.used` by the simulated patterns."""
    ratio = (measured + DARK) / (np.maximum(simulated, 0) + DARK)
    intensity = measured.sum(axis=(1, 2), dtype=np.float64)[used].sum()
    counts = used[:, None, None] & (simulated > 0)
    return (np.where(counts, 1 - ratio, 0) / intensity).astype(np.float32)


def scan_model(
    beam: optics.BeamSettings,  # with the aberrations that are known
    detector: PixelGrid,  # its pixels, mrad
    detector_shape: tuple[int, int],  # its number of pixels (y, x)
    scan: tuple[int, int],  # positions (y, x)
    step_angstrom: tuple[float, float],  # between positions, (y, x)
    slices: int,  # of equal thickness
    reach_angstrom: float,  # how far a probe's intensity reaches from its middle, at any depth
    # by how many times λ/h the box is wider than needed, for a detector pixel of h rad
    wider: int = 0,
) -> ScanModel:
    """Returns the model of a scan, whose box holds the probes and the tails of the aperture."""
    box = probe_box(beam, detector, detector_shape, reach_angstrom, wider)
    grid = object_grid(scan, step_angstrom, box)
    return ScanModel(beam, detector, detector_shape, scan, step_angstrom, slices, box, grid)
