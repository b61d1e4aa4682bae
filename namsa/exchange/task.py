"""A ptychographic reconstruction in the words that all programs share, in the frame of the
detector.

The frame of the detector is that of the patterns after `flip` has exchanged their axes. Scan and
specimen are turned into it: p = R(−θ) r, where θ is `rotation_deg` and r the position in the scan's
frame from the first one (see `namsa.io.calibration`). Probes and objects are waves exp(+iφ): a lens
multiplies by A exp(−iχ), a slice by exp(+iσV), and the distance Δz by exp(−iπλΔz k²), as everywhere
in namsa.
"""

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import yaml

from namsa.base.arrays import Floats
from namsa.base.errors import InputError, SimulationWarning
from namsa.base.pixels import detector_grid
from namsa.io.calibration import FourDData
from namsa.physics import optics

SQUARE = 1e-3  # relative difference of two steps or pixels that count as equal
# per pattern, where patterns are fractions of the beam and nobody says how many
SIMULATED_ELECTRONS = 1e5


def warn_beyond_limit(scan: FourDData) -> None:
    """Warns if a program would take pixels beyond the band limit of a simulation for dark ones."""
    centre = scan.centre_pixels or tuple((n - 1) / 2 for n in scan.shape[2:])
    if empty := detector_grid(scan.pixel_mrad, centre, scan.limit_mrad).emptiness(scan.shape[2:]):
        remedy = (
            "mask or crop them in the other program, or simulate with a detector, which ends before"
        )
        warnings.warn(f"{empty}: {remedy}", SimulationWarning, stacklevel=3)


@dataclass(frozen=True)
class PtychographyTask:
    """A scan to reconstruct, and how."""

    scan: FourDData  # the patterns with their calibration
    name: str  # name of the task, of its folder
    # Krivanek coefficients at the entrance face, Å and rad; C10 = −defocus
    aberrations: dict[str, float]
    thickness_angstrom: float | None  # thickness of the specimen, Å; `None` if it is not known
    slices: int  # slices of the object
    iterations: int  # iterations that the parameter file asks for
    # electrons per pattern if patterns are fractions of the beam; 1 if they are counts
    electrons: float

    def __post_init__(self) -> None:
        """Raises InputError if pixels are not square, or slices have no thickness, which every
        program needs.
        """
        y, x = self.scan.pixel_mrad
        if abs(y - x) > SQUARE * y:
            raise InputError(
                f"the detector's pixels are {y:g} × {x:g} mrad, and these programs take square ones"
            )
        if self.slices > 1 and not self.thickness_angstrom:
            raise InputError(f"{self.slices} slices need a thickness: give --thickness-angstrom")

    @property
    def wavelength(self) -> float:
        """Wavelength, Å."""
        return optics.wavelength_angstrom(self.scan.energy_ev)

    @property
    def pixel_mrad(self) -> float:
        """The detector's pixel, mrad."""
        return self.scan.pixel_mrad[0]

    @property
    def object_pixel_angstrom(self) -> tuple[float, float]:
        """The object's pixel (y, x): the wavelength over the angle that the detector spans, Å."""
        dy, dx = self.scan.shape[2:]
        return self.wavelength / (dy * self.pixel_mrad * 1e-3), self.wavelength / (
            dx * self.pixel_mrad * 1e-3
        )

    @property
    def centre_pixels(self) -> tuple[float, float]:
        """The optic axis after the exchange of axes, in pixels from the centre of the first; by
        default the middle.
        """
        y, x = self.scan.centre_pixels or tuple((n - 1) / 2 for n in self.scan.shape[2:])
        return (x, y) if self.scan.flip else (y, x)

    @property
    def pattern_shape(self) -> tuple[int, int]:
        """Pixels of a pattern after the exchange of axes."""
        dy, dx = self.scan.shape[2:]
        return (dx, dy) if self.scan.flip else (dy, dx)

    @property
    def slice_thickness_angstrom(self) -> float:
        """Thickness of a slice, Å; 1 if it is not known, of a single slice, where it has no
        effect.
        """
        return (self.thickness_angstrom or 1.0) / self.slices

    @property
    def effective_aberrations(self) -> dict[str, float]:
        """The aberrations in the plane of the first slice: a single one lies in the middle of the
        specimen.
        """
        inside = (self.thickness_angstrom or 0.0) / 2 if self.slices == 1 else 0.0
        return self.aberrations | {"C10": self.aberrations.get("C10", 0.0) + inside}

    def to_detector(self, scan_yx: Floats) -> Floats:
        """Returns positions (..., 2) of the scan's frame in the detector's, as (y, x), Å."""
        angle = np.deg2rad(self.scan.rotation_deg)
        y = scan_yx[..., 0]
        x = scan_yx[..., 1]
        return np.stack(
            [y * np.cos(angle) + x * np.sin(angle), x * np.cos(angle) - y * np.sin(angle)], axis=-1
        )

    def to_scan(self, detector_yx: Floats) -> Floats:
        """Returns positions (..., 2) of the detector's frame in the scan's, as (y, x), Å."""
        angle = np.deg2rad(self.scan.rotation_deg)
        y = detector_yx[..., 0]
        x = detector_yx[..., 1]
        return np.stack(
            [y * np.cos(angle) - x * np.sin(angle), x * np.cos(angle) + y * np.sin(angle)], axis=-1
        )

    def positions(self) -> Floats:
        """Returns the positions (n, 2) in the detector's frame, Å from the first; x is fastest."""
        rows, columns = self.scan.shape[:2]
        indices = np.stack(np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij"), axis=-1)
        return self.to_detector(indices.reshape(-1, 2) * np.asarray(self.scan.scan_step_angstrom))

    def probe(self) -> npt.NDArray[np.complex64]:
        """Returns the probe in real space, its centre at pixel n // 2, Σ|ψ|² = 1.

        Programs take the optic axis to be at pixel n // 2 of a pattern. Where it lies elsewhere,
        the probe has the tilt that puts it there, and no pattern is shifted.
        """
        angles = [
            (np.arange(n) - centre) * self.pixel_mrad * 1e-3
            for n, centre in zip(self.pattern_shape, self.centre_pixels, strict=True)
        ]
        y, x = np.meshgrid(*angles, indexing="ij")
        alpha = np.hypot(y, x)
        inside = np.clip((self.scan.semiangle_mrad - 1e3 * alpha) / self.pixel_mrad + 0.5, 0, 1)
        phase = optics.aberration_phase(
            alpha, np.arctan2(y, x), self.wavelength, self.detector_aberrations
        )
        wave = np.fft.fftshift(np.fft.ifft2(np.fft.ifftshift(inside * np.exp(-1j * phase))))
        return (wave / np.linalg.norm(wave)).astype(np.complex64)

    @property
    def detector_aberrations(self) -> dict[str, float]:
        """The effective aberrations with azimuths from the detector's x, which are known from the
        scan's.
        """
        angle = np.deg2rad(self.scan.rotation_deg)
        turned: dict[str, float] = dict(self.effective_aberrations)
        return {
            name: value + angle if name.startswith("phi") else value
            for name, value in turned.items()
        }


def write_yaml(path: Path, comment: str, values: dict[str, object]) -> None:
    """Writes values in their order under a comment."""
    text = yaml.safe_dump(
        values, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120
    )
    path.write_text(f"# {comment}\n{text}", encoding="utf-8")
