"""Vacancies, dopants and adatoms: places of an image that differ from their equals.

The median over the equal places is taken off the image, and at each pixel the profile of an atom is
fitted by least squares, with a constant. For a density the amount is in electrons. The scatter of
the amounts in the image itself is the error to compare them with
(docs/benchmarks/reconstruction.md, "Planted defects"): what is stated of a density's error mostly
is the same at equal places.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.ndimage import correlate
from skimage.feature import peak_local_max

from namsa.base.arrays import Array, Floats
from namsa.base.errors import InputError
from namsa.base.pixels import PixelGrid
from namsa.inverse.columns import atom_density
from namsa.inverse.lattice import REPEATS, repeating_translations, translated

# Å: of the profile, of the edge that is left out, of two places
REACH = 1.6
BORDER = 1.2
APART = 0.8
MEDIAN_TO_DEVIATION = 1.4826  # standard deviation over median magnitude of a normal distribution
VIBRATION = 0.07  # Å, rms along one axis, of the profile


class Excess(NamedTuple):
    """By how much each place of an image differs from its equals.

    Attributes:
        amount: Integral of the atom that is there and not at the equal places, `(ny, nx)`, in the
            image's units times Å²; electrons for a density. NaN near the edge and where nothing is
            equal.
        spreads: The same over its spread in the image, 1.48 times the median magnitude.
        pixels: The image's pixels, Å.
    """

    amount: Floats
    spreads: Floats
    pixels: PixelGrid

    def places(self, beyond: float = 0.0) -> Floats:
        """Returns the places whose magnitude is largest around, the largest first.

        Args:
            beyond: The least magnitude, in spreads.

        Returns:
            `(n, 4)`: y and x in Å, amount, spreads.
        """
        magnitude = np.nan_to_num(np.abs(self.spreads))
        apart = max(1, round(APART / max(self.pixels.step)))
        i, j = peak_local_max(
            magnitude, min_distance=apart, threshold_abs=beyond, exclude_border=False
        ).T
        y, x = self.pixels.coordinates(magnitude.shape)
        return np.stack([y[i], x[j], self.amount[i, j], self.spreads[i, j]], axis=1)


def find_excess(
    image: Array,
    pixels: PixelGrid,
    number: int,
    basis: Sequence[Sequence[float]] | None = None,
    max_q: float | None = None,
) -> Excess:
    """Compares each place of an image with those that the lattice makes equal.

    It finds vacancies, dopants and adatoms, whether there is a column or not.

    Args:
        image: `(ny, nx)`: a density in e/Å², a phase, or any other.
        pixels: Its pixels, Å.
        number: Atomic number of the profile that is fitted.
        basis: The two vectors (y, x) of the lattice, Å. `None` takes all translations that repeat
            the image (correlation above 0.9). These do not tell columns of similar elements apart:
            of SrTiO₃ along [001] that from Sr to Ti is one of them.
        max_q: Where the image's frequencies end, 1/Å. `None` takes the most that its pixels hold.

    Returns:
        The excess of each place, in electrons for a density.

    Raises:
        InputError: If the image is not finite, or if nothing repeats it.

    Example:
        >>> from namsa.base.pixels import PixelGrid
        >>> y, x = np.indices((40, 40)) * 0.4  # Å; the lattice repeats every 4 Å
        >>> image = 5 + np.cos(2 * np.pi * y / 4) + np.cos(2 * np.pi * x / 4)
        >>> image += np.random.default_rng(0).normal(0, 0.01, image.shape)
        >>> image[18:23, 18:23] -= 1  # e/Å², about y = x = 8 Å
        >>> found = namsa.find_excess(
        ...     image, PixelGrid((0.4, 0.4), (0.0, 0.0)), number=14, basis=[(4, 0), (0, 4)]
        ... )
        >>> y, x, electrons, spreads = found.places()[0]
        >>> round(float(y)), round(float(x)), bool(electrons < 0)
        (8, 8, True)
    """
    values = np.asarray(image, np.float64)
    if values.ndim != 2 or not np.isfinite(values).all():
        raise InputError(
            "places are compared in an image of two axes without NaN: cut its edges or lost "
            "places off"
        )
    if basis is None:
        vectors = repeating_translations(values, pixels)
    else:
        vectors = _translations(values.shape, pixels, basis)
    if not len(vectors):
        raise InputError(
            f"no translation repeats the image (correlation above {REPEATS}): give the lattice's "
            "basis"
        )
    equal = np.stack([translated(values, pixels, vector) for vector in vectors])
    left = np.full_like(values, np.nan)
    known = np.isfinite(equal).any(axis=0)
    left[known] = values[known] - np.nanmedian(equal[:, known], axis=0)
    amount = correlate(left, atom_filter(pixels, number, max_q), mode="mirror")
    edge_y, edge_x = (int(np.ceil(BORDER / step)) for step in pixels.step)
    inner = np.full_like(amount, np.nan)
    inner[edge_y:-edge_y, edge_x:-edge_x] = amount[edge_y:-edge_y, edge_x:-edge_x]
    spread = MEDIAN_TO_DEVIATION * float(np.nanmedian(np.abs(inner)))
    return Excess(inner, inner / max(spread, 1e-30), pixels)


def atom_filter(pixels: PixelGrid, number: int, max_q: float | None = None) -> Floats:
    """Returns weights whose correlation with an image is the amount of an atom at each pixel.

    The amount is that of least squares, with a constant.

    Returns:
        `(h, w)`, odd.
    """
    step_y, step_x = pixels.step
    half_y = int(REACH / step_y)
    half_x = int(REACH / step_x)
    y = step_y * np.arange(-half_y, half_y + 1)
    x = step_x * np.arange(-half_x, half_x + 1)
    distance = np.hypot(y[:, None], x)
    near = distance <= REACH
    weights = np.zeros_like(distance)
    band = max_q or 0.5 / max(pixels.step)
    profile = atom_density(distance[near], number, band, VIBRATION)
    weights[near] = np.linalg.pinv(np.stack([profile, np.ones_like(profile)], axis=1))[0]
    return weights


def _translations(
    shape: tuple[int, ...], pixels: PixelGrid, basis: Sequence[Sequence[float]]
) -> Floats:
    """Returns the translations of a lattice, without zero, by less than the image, `(n, 2)`, Å."""
    vectors = np.asarray(basis, np.float64)
    size = np.multiply(shape, pixels.step)
    if vectors.shape != (2, 2) or abs(np.linalg.det(vectors)) < APART**2:
        raise InputError(
            f"basis is {basis}: give two vectors (y, x) in Å that are not along one line"
        )
    reach_a, reach_b = np.ceil(np.abs(np.linalg.inv(vectors)).T @ size).astype(int)
    a = np.arange(-reach_a, reach_a + 1)
    b = np.arange(-reach_b, reach_b + 1)
    steps = np.stack(np.meshgrid(a, b, indexing="ij"), -1).reshape(-1, 2)
    translations = steps @ vectors
    is_zero = np.all(steps == 0, axis=1)
    within = np.all(np.abs(translations) < size, axis=1)
    return np.asarray(translations[within & ~is_zero])
