"""The trivial baseline of an embedding: as many principal components as there are latent numbers.

The components are the eigenvectors of the covariance C of the training patterns with the largest eigenvalues. C itself
has the square of the number of pixels. It is known by its products with at most `PROBES` vectors, from which Nyström's
approximation gives the components (Halko et al., SIAM Review 2011, section 5.4). With as many vectors as pixels, which
are then the unit vectors, they are exact.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

PROBES = 1024  # vectors, if there are as many pixels or more


@dataclass(frozen=True)
class PrincipalComponents:
    """A linear embedding.

    Attributes:
        mean: Mean pattern, `(pixels,)`.
        components: Orthonormal columns, `(pixels, components)`; fewer than asked for if patterns vary along fewer.
    """

    mean: Array
    components: Array

    def encode(self, patterns: npt.NDArray[np.float32]) -> Array:
        """Returns the coordinates of patterns, `(n, components)`."""
        return np.asarray((patterns.reshape(len(patterns), -1) - self.mean) @ self.components)

    def decode(self, coordinates: Array) -> Array:
        """Returns the patterns of coordinates, `(n, pixels)`."""
        return np.asarray(self.mean + coordinates @ self.components.T)


def moments(patterns: npt.NDArray[np.float32]) -> Array:
    """Returns what `fit` needs of patterns `(n, ...)`, as a mean over them: `(1 + vectors, pixels)`."""
    flat = patterns.reshape(len(patterns), -1).astype(np.float64)
    probed = flat if flat.shape[1] <= PROBES else flat @ _probes(flat.shape[1])
    return np.concatenate([flat.mean(axis=0)[None], probed.T @ flat / len(flat)])


def fit(mean_moments: Array, count: int) -> PrincipalComponents:
    """Returns the first principal components.

    Args:
        mean_moments: Mean of `moments` over all patterns.
        count: Number of components.
    """
    mean, products = mean_moments[0], mean_moments[1:].T
    probes = _probes(len(mean))
    sketch = products - np.outer(mean, mean @ probes)  # C times the vectors
    core = probes.T @ sketch
    variances, directions = np.linalg.eigh((core + core.T) / 2)
    known = variances > len(mean) * np.finfo(float).eps * np.linalg.norm(products)  # the others are rounding
    if not known.any():  # all patterns are the same
        return PrincipalComponents(mean, probes[:, :count])
    root = directions[:, known] / np.sqrt(variances[known])
    vectors, _, _ = np.linalg.svd(sketch @ root, full_matrices=False)
    return PrincipalComponents(mean, np.asarray(vectors[:, :count]))


def _probes(pixels: int) -> Array:
    """Returns the vectors, `(pixels, vectors)`."""
    if pixels <= PROBES:
        return np.eye(pixels)
    return np.linalg.qr(np.random.default_rng(0).standard_normal((pixels, PROBES)))[0]
