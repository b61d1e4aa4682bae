"""Places of an image that differ from those that its lattice makes equal: vacancies, dopants and adatoms.

The median over the equal places is taken off the image, and at each pixel the profile of an atom is fitted by least
squares, with a constant. For a density the amount is in electrons. The scatter of the amounts in the image itself is
the error to compare them with (docs/benchmarks/reconstruction.md, "Planted defects"): what is stated of a density's
error mostly is the same at equal places.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.ndimage import correlate
from skimage.feature import peak_local_max

from namsa.arrays import Array, Floats
from namsa.errors import InputError
from namsa.inverse.columns import REPEATS, atom_density, repeating_translations, translated
from namsa.pixels import PixelGrid

REACH, BORDER, APART = 1.6, 1.2, 0.8  # Å: of the profile, of the edge that is left out, of two places
VIBRATION = 0.07  # Å, rms along one axis, of the profile


class Excess(NamedTuple):
    """By how much each place of an image differs from its equals.

    Attributes:
        amount: Integral of the atom that is there and not at the equal places, `(ny, nx)`, in the image's units times
            Å²; electrons for a density. NaN near the edge and where nothing is equal.
        spreads: The same over its spread in the image, 1.48 times the median magnitude.
        pixels: The image's pixels, Å.
    """

    amount: Floats
    spreads: Floats
    pixels: PixelGrid

    def places(self, beyond: float = 0.0) -> Floats:
        """Returns the places whose magnitude is largest around: `(n, 4)`, y and x in Å, amount, spreads; largest first.

        Args:
            beyond: The least magnitude, in spreads.
        """
        magnitude = np.nan_to_num(np.abs(self.spreads))
        apart = max(1, round(APART / max(self.pixels.step)))
        i, j = peak_local_max(magnitude, min_distance=apart, threshold_abs=beyond, exclude_border=False).T
        y, x = self.pixels.coordinates(magnitude.shape)
        return np.stack([y[i], x[j], self.amount[i, j], self.spreads[i, j]], axis=1)


def find_excess(
    image: Array,  # `(ny, nx)`: a density in e/Å², a phase, any other
    pixels: PixelGrid,  # its pixels, Å
    number: int,  # atomic number of the profile
    basis: Sequence[Sequence[float]] | None = None,
    max_q: float | None = None,  # where the image's frequencies end, 1/Å; `None` takes the most that its pixels hold
) -> Excess:
    """Compares each place of an image with its equals.

    Args:
        basis: The two vectors (y, x) of the lattice, Å. `None` takes all translations that repeat the image
            (correlation above `REPEATS`). These do not tell columns of similar elements apart: of SrTiO3 along [001]
            that from Sr to Ti is one of them.

    Raises:
        InputError: If the image is not finite, or if nothing repeats it.
    """
    values = np.asarray(image, np.float64)
    if values.ndim != 2 or not np.isfinite(values).all():
        raise InputError("places are compared in an image of two axes without NaN: cut its edges or lost places off")
    vectors = repeating_translations(values, pixels) if basis is None else _translations(values.shape, pixels, basis)
    if not len(vectors):
        raise InputError(f"no translation repeats the image (correlation above {REPEATS}): give the lattice's basis")
    equal = np.stack([translated(values, pixels, vector) for vector in vectors])
    left, known = np.full_like(values, np.nan), np.isfinite(equal).any(axis=0)
    left[known] = values[known] - np.nanmedian(equal[:, known], axis=0)
    border = [int(np.ceil(BORDER / step)) for step in pixels.step]
    amount = correlate(left, atom_filter(pixels, number, max_q), mode="mirror")
    for axis, width in enumerate(border):
        np.moveaxis(amount, axis, 0)[np.r_[:width, -width:0]] = np.nan
    return Excess(amount, amount / max(1.4826 * float(np.nanmedian(np.abs(amount))), 1e-30), pixels)


def atom_filter(pixels: PixelGrid, number: int, max_q: float | None = None) -> Floats:
    """Returns weights `(h, w)` whose correlation with an image is the least-squares amount of an atom at each pixel."""
    half = [int(REACH / step) for step in pixels.step]
    y, x = (step * np.arange(-n, n + 1) for n, step in zip(half, pixels.step, strict=True))
    distance = np.hypot(y[:, None], x)
    near, weights = distance <= REACH, np.zeros_like(distance)
    profile = atom_density(distance[near], number, max_q or 0.5 / max(pixels.step), VIBRATION)
    weights[near] = np.linalg.pinv(np.stack([profile, np.ones_like(profile)], axis=1))[0]
    return weights


def _translations(shape: tuple[int, ...], pixels: PixelGrid, basis: Sequence[Sequence[float]]) -> Floats:
    """Returns the translations of a lattice, without zero, by less than the image, `(n, 2)`, Å."""
    vectors, size = np.asarray(basis, np.float64), np.multiply(shape, pixels.step)
    if vectors.shape != (2, 2) or abs(np.linalg.det(vectors)) < APART**2:
        raise InputError(f"basis is {basis}: give two vectors (y, x) in Å that are not along one line")
    reach = np.ceil(np.abs(np.linalg.inv(vectors)).T @ size).astype(int)
    steps = np.stack(np.meshgrid(*(np.arange(-n, n + 1) for n in reach), indexing="ij"), -1).reshape(-1, 2)
    found = steps @ vectors
    return np.asarray(found[np.any(steps != 0, axis=1) & np.all(np.abs(found) < size, axis=1)])
