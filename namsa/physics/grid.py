"""The sampling of the plane across the beam: one frozen `Grid`, from which every coordinate is
derived.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

# An array on the host or the device: functions take the array module from their arguments.
Array = Any

CONVENTIONAL_BAND = 2 / 3
# pixels of transmissions per pixel of the waves; atomic number
FINER = 3
FINER_OF_HEAVY = 4
HEAVY = 55
# pixel of transmissions on which even those of uranium alias by less than 0.1 % of patterns
FINEST_ANGSTROM = 0.01
# width of the antialias aperture's cosine edge, in units of 1/max(sampling), as abTEM has it
TAPER = 0.01


@dataclass(frozen=True)
class Grid:
    """A periodic rectangle sampled on pixels.

    With a band of 2/3, products of transmission and wave have no aliases below the band limit, and
    the waves lose what scatters beyond it. With a band of 1 they lose less, and what aliases is as
    small as the wave near the band limit. At equal error a pixel may then be about twice as large,
    if transmissions are computed on finer pixels (`refined`).
    """

    shape: tuple[int, int]  # pixels (ny, nx)
    extent_angstrom: tuple[float, float]  # sides (Ly, Lx) of the rectangle, Å
    # the band limit as a fraction of the Nyquist frequency of the coarser axis
    band: float = CONVENTIONAL_BAND
    # Pixels of transmissions per pixel of the waves; `None`: as the heaviest element needs.
    finer: int | None = None

    @property
    def sampling_angstrom(self) -> tuple[float, float]:
        """Pixel size (y, x), Å."""
        return self.extent_angstrom[0] / self.shape[0], self.extent_angstrom[1] / self.shape[1]

    @property
    def band_limit(self) -> float:
        """Band limit, 1/Å."""
        return self.band / (2 * max(self.sampling_angstrom))

    def refined(self, heaviest: int) -> "Grid":
        """Returns the grid on which transmissions are computed.

        exp(iσv) has higher frequencies than v, which alias, those of heavy nuclei most. With a band
        of 2/3 this grid is used as it is, as other programs do; else pixels are smaller.
        """
        if self.band <= CONVENTIONAL_BAND:
            return self
        if self.finer:
            ny, nx = self.shape
            return replace(self, shape=(self.finer * ny, self.finer * nx))
        finest = math.ceil(max(self.sampling_angstrom) / FINEST_ANGSTROM)
        times = min(FINER_OF_HEAVY if heaviest >= HEAVY else FINER, max(2, finest))
        return replace(self, shape=(times * self.shape[0], times * self.shape[1]))

    def frequencies(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Returns the frequencies (ky, kx), shapes (ny, 1) and (1, nx), 1/Å, zero frequency
        first.
        """
        dy, dx = self.sampling_angstrom
        return np.fft.fftfreq(self.shape[0], dy)[:, None], np.fft.fftfreq(self.shape[1], dx)[
            None, :
        ]

    def squared_frequency(self) -> npt.NDArray[np.float64]:
        """Returns k², (ny, nx), 1/Å², zero frequency first."""
        ky, kx = self.frequencies()
        return ky**2 + kx**2

    def antialias(self) -> npt.NDArray[np.float64]:
        """Returns the antialias aperture, (ny, nx): 1 inside, with a narrow cosine taper to 0 at
        `band_limit`.
        """
        k = np.sqrt(self.squared_frequency())
        limit = self.band_limit
        width = TAPER / max(self.sampling_angstrom)
        ramp = np.clip((k - (limit - width)) / width, 0, 1)
        return 0.5 * (1 + np.cos(np.pi * ramp))


def fast_shape(
    extent_angstrom: tuple[float, float], sampling_angstrom: float, multiple: int = 1
) -> tuple[int, int]:
    """Returns the smallest even grid without prime factors beyond 7 whose pixels are not larger
    than requested.

    Every engine transforms such a grid fast. SciPy's own fast lengths also have factors of 11,
    which the fused engines do not support.

    Args:
        extent_angstrom: Sides (Ly, Lx), Å.
        multiple: What the numbers of pixels are multiples of.

    Returns:
        Pixels (ny, nx).
    """
    ny, nx = (
        multiple * _even_smooth(math.ceil(extent / sampling_angstrom / multiple))
        for extent in extent_angstrom
    )
    return ny, nx


def hann_window(shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """Returns a Hann window, `(ny, nx)`, that is zero nowhere."""
    ny, nx = shape
    return np.outer(np.hanning(ny + 2)[1:-1], np.hanning(nx + 2)[1:-1])


def _even_smooth(least: int) -> int:
    """Returns the smallest even number from `least` on without prime factors beyond 7."""
    n = least + least % 2
    while (
        2 * 3 * 5 * 7
    ) ** n.bit_length() % n:  # a number without other factors divides a high power of these
        n += 2
    return n
