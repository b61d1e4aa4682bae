"""Variation of the bright disk's patterns along a scan, as measured and for a weak phase
object.

A weak phase object of spatial frequency q scatters the beam by ±λq. In the transform of the
patterns along the scan, the pixel at the angle k then has

    G(k, q) ∝ B(k, q) = a*(k) a(k − λq) − a(k) a*(k + λq),    a(k) = A(k) exp(−iχ(k)),

with the aperture A and the aberration phase χ (Rodenburg, McCallum & Nellist, Ultramicroscopy 48,
304 (1993)).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import fft

from namsa.base.arrays import Array, Floats
from namsa.base.pixels import PixelGrid
from namsa.physics.grid import hann_window
from namsa.physics.optics import aberration_phase, wavelength_angstrom

# least and largest λq, semiangles: the disks overlap nearly everywhere, or hardly anywhere
SHIFTS = (0.15, 1.8)
FREQUENCIES = 120  # that are compared: those with the most power
_FLOOR = 1e-3  # added to |B|² of a pixel: where the overlaps cancel each other, B is zero


@dataclass(frozen=True, eq=False)  # arrays have no single truth value
class DiskOverlaps:
    """The bright disk and its overlaps with itself, for parts of a scan of one shape and step."""

    lit: Array  # pixels inside the disk, `(dy, dx)`
    angles: Floats  # of these pixels, (y, x), `(2, k)`, rad
    used: Array  # frequencies at which disks overlap, `(sy, sx)`; one of each pair ±q
    shifts: Floats  # shifts λq of the disk at these frequencies, (y, x), `(2, q)`, rad
    energy_ev: float  # energy, eV
    radius: float  # convergence semiangle, rad

    @classmethod
    def of(
        cls,
        scan_shape: tuple[int, int],  # positions of a part of the scan, (y, x)
        step_angstrom: tuple[float, float],  # their distance, (y, x), Å
        detector_shape: tuple[int, int],  # pixels of the detector, (y, x)
        detector: PixelGrid,  # the pixels, mrad from the optic axis
        energy_ev: float,  # energy, eV
        semiangle_mrad: float,  # convergence semiangle, mrad
        # Matrix from the angles on the detector to those in the directions of the scan, (y, x),
        # `(2, 2)`. `None` if they are the same.
        frame: Floats | None = None,
    ) -> "DiskOverlaps":
        """Prepares the overlaps."""
        radius = 1e-3 * semiangle_mrad
        wavelength = wavelength_angstrom(energy_ev)
        angles = np.stack(
            np.meshgrid(
                *(1e-3 * axis for axis in detector.coordinates(detector_shape)), indexing="ij"
            )
        )
        if frame is not None:
            angles = np.tensordot(frame, angles, axes=1)
        lit = np.hypot(*angles) < radius
        frequencies = (
            fft.fftfreq(n, step) for n, step in zip(scan_shape, step_angstrom, strict=True)
        )
        qy, qx = np.meshgrid(*(wavelength * frequency for frequency in frequencies), indexing="ij")
        shift = np.hypot(qy, qx) / radius
        half = (qy > 0) | ((qy == 0) & (qx > 0))
        used = half & (shift > SHIFTS[0]) & (shift < SHIFTS[1])
        return cls(lit, angles[:, lit], used, np.stack([qy[used], qx[used]]), energy_ev, radius)

    def transform(self, patterns: Array) -> npt.NDArray[np.complex64]:
        """Returns G `(q, k)` of a part of the scan, `(sy, sx, dy, dx)`."""
        taper = hann_window(patterns.shape[:2])[..., None].astype(np.float32)
        bright = patterns[..., self.lit].astype(np.float32)
        waves = fft.fft2((bright - bright.mean(axis=(0, 1))) * taper, axes=(0, 1))
        return np.asarray(waves[self.used], np.complex64)


class OverlapModel(NamedTuple):
    """Correlation of the patterns with those of a weak phase object, in single precision."""

    transforms: Array  # G, `(q, parts, k)`
    inside: Array  # 1 where k − λq and −1 where k + λq is inside the disk, otherwise 0, `(2, q, k)`
    fixed: Array  # χ(k) − χ(k − λq) and χ(k + λq) − χ(k) of the known aberrations, `(2, q, k)`, rad
    terms: Array  # the same of each term that is measured, `(terms, 2, q, k)`
    floor: Array  # what is added to Σ|B|², `(q,)`
    power: float  # Σ|G|² in the overlaps

    @classmethod
    def of(
        cls,
        overlaps: DiskOverlaps,
        transforms: Array,  # of parts of the scan, `(parts, q, k)`
        known: Mapping[str, float],  # aberrations that are not measured, Å and rad
        # aberrations that are measured, with a coefficient of 1 Å
        terms: Sequence[Mapping[str, float]],
        units: Floats,  # Å that their coefficients are given in, `(terms,)`
    ) -> "OverlapModel":
        """Prepares the comparison at the frequencies with the most power."""
        power = np.square(np.abs(transforms)).sum(axis=(0, 2), dtype=np.float64)
        chosen = np.sort(np.argsort(power, kind="stable")[-FREQUENCIES:])
        (ky, kx), (qy, qx) = overlaps.angles, overlaps.shifts[:, chosen, None]
        wavelength = wavelength_angstrom(overlaps.energy_ev)

        def chi(y: Floats, x: Floats) -> Floats:
            alpha = np.hypot(y, x)
            phi = np.arctan2(y, x)
            return np.stack(
                [aberration_phase(alpha, phi, wavelength, term) for term in (known, *terms)]
            )

        here = chi(ky, kx)[:, None]
        inside = []
        phases = []
        for sign in (1, -1):
            beside = ky - sign * qy, kx - sign * qx
            inside.append(sign * (np.hypot(*beside) < overlaps.radius))
            phases.append(sign * (here - chi(*beside)))
        compared = np.ascontiguousarray(transforms[:, chosen].swapaxes(0, 1))
        lit = np.any(inside, axis=0)
        scaled = (np.stack(phases, axis=1) * np.array([1, *units])[:, None, None, None]).astype(
            np.float32
        )
        power_inside = float(np.square(np.abs(compared * lit[:, None])).sum(dtype=np.float64))
        floor = (_FLOOR * lit.sum(axis=1)).astype(np.float32)
        return cls(
            compared,
            np.stack(inside).astype(np.float32),
            scaled[0],
            scaled[1:],
            floor,
            power_inside,
        )

    def explained(self, coefficients: Floats) -> float:
        """Returns the share of the power that aberrations explain."""
        return self._share(self._compare(coefficients).value)

    def explained_with_slopes(self, coefficients: Floats) -> tuple[float, Floats]:
        """Returns the share of the power that aberrations explain, and its derivatives by them."""
        scattered, model, norm, overlap, value = self._compare(coefficients)
        # dB/dc is i times `scattered` times the phase of the term, summed over the two disks.
        residual = ((overlap.conj() / norm[:, None])[:, None] @ self.transforms)[:, 0]
        residual -= (value / norm)[:, None] * model
        slopes = (
            self.terms.reshape(len(self.terms), -1)
            @ (2 * (residual * scattered.conj()).imag).ravel()
        )
        return self._share(value), slopes.astype(np.float64) / self.power

    def _share(self, value: Array) -> float:
        return float(value.sum(dtype=np.float64)) / self.power

    def _compare(self, coefficients: Floats) -> "_ComparedDisks":
        phases = self.fixed + np.tensordot(coefficients.astype(np.float32), self.terms, axes=1)
        scattered = np.empty(phases.shape, np.complex64)
        scattered.real = self.inside * np.cos(phases)
        scattered.imag = self.inside * np.sin(phases)
        model = scattered.sum(axis=0)
        norm = np.square(np.abs(model)).sum(axis=1) + self.floor
        overlap = (self.transforms @ model.conj()[..., None])[..., 0]
        return _ComparedDisks(
            scattered, model, norm, overlap, np.square(np.abs(overlap)).sum(axis=1) / norm
        )


class _ComparedDisks(NamedTuple):
    """Aberrations and what they explain."""

    scattered: Array  # the two parts of B, `(2, q, k)`
    model: Array  # B, `(q, k)`
    norm: Array  # Σ|B|², `(q,)`
    overlap: Array  # Σ G B*, `(q, parts)`
    value: Array  # what they explain of the power, `(q,)`
