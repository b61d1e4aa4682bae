"""The trivial baseline of an embedding: as many principal components as there are latent numbers.

The components are the eigenvectors of the covariance C of the training patterns with the largest
eigenvalues. C itself has the square of the number of pixels. Of large patterns it is known by its
products with random vectors, from which Nyström's approximation gives the components (Halko et al.,
SIAM Review 2011, section 5.4). Of small patterns the vectors are the unit vectors, and the
components exact.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Floats

EXACT_PIXELS = 1024  # up to which all of C is measured
RANDOM_VECTORS = 256  # by which C is known above; the larger ones of its eigenvalues must be fewer


@dataclass(frozen=True)
class PrincipalComponents:
    """A linear embedding."""

    mean: Floats  # mean pattern, `(pixels,)`
    # orthonormal columns, `(pixels, components)`; fewer than asked for if patterns vary along fewer
    components: Floats

    def encode(self, patterns: npt.NDArray[np.float32]) -> Floats:
        """Returns the coordinates of patterns, `(n, components)`."""
        return np.asarray((patterns.reshape(len(patterns), -1) - self.mean) @ self.components)

    def decode(self, coordinates: Floats) -> Floats:
        """Returns the patterns of coordinates, `(n, pixels)`."""
        return np.asarray(self.mean + coordinates @ self.components.T)


def vectors(pixels: int) -> Floats:
    """Returns the vectors that C is multiplied with, orthonormal columns `(pixels, vectors)`."""
    if pixels <= EXACT_PIXELS:
        return np.eye(pixels)
    return np.linalg.qr(np.random.default_rng(0).standard_normal((pixels, RANDOM_VECTORS)))[0]


def moments(patterns: npt.NDArray[np.float32], probes: Floats) -> Floats:
    """Returns what `fit` needs of patterns `(n, ...)`, as a mean over them, `(1 + vectors,
    pixels)`.
    """
    flat = patterns.reshape(len(patterns), -1).astype(np.float64)
    return np.concatenate([flat.mean(axis=0)[None], (flat @ probes).T @ flat / len(flat)])


def fit(mean_moments: Floats, probes: Floats, count: int) -> PrincipalComponents:
    """Returns the first principal components, from the mean of `moments` over all patterns."""
    mean = mean_moments[0]
    products = mean_moments[1:].T
    sketch = products - np.outer(mean, mean @ probes)  # C times the vectors
    core = probes.T @ sketch
    variances, directions = np.linalg.eigh((core + core.T) / 2)
    # the others are rounding
    known = variances > len(mean) * np.finfo(float).eps * np.linalg.norm(products)
    if not known.any():  # all patterns are the same
        return PrincipalComponents(mean, probes[:, :count])
    root = directions[:, known] / np.sqrt(variances[known])
    components, _, _ = np.linalg.svd(sketch @ root, full_matrices=False)
    return PrincipalComponents(mean, np.asarray(components[:, :count]))
