"""Shot noise of noiseless patterns at a finite dose: counted electrons, drawn anew for each sample
and epoch.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Array
from namsa.base.errors import InputError
from namsa.base.provenance_values import value
from namsa.physics.backend import available_cores

Dose = float | tuple[float, float]

# streams of random numbers, beside that of the symmetries
_DOSE = 1
_COUNTS = 2
_CHUNK = 2**20  # pixels per random generator: it determines the random numbers, so it never changes


def draw_electrons(dose: Dose, seed: int, epoch: int) -> float:
    """Returns the electrons per pattern of a sample. In a range their logarithm is uniformly
    distributed.
    """
    low, high = dose if isinstance(dose, tuple) else (dose, dose)
    return float(low * (high / low) ** np.random.default_rng([seed, epoch, _DOSE]).random())


def count_electrons(
    stored: Array, scale: float, electrons: float, seed: int, epoch: int
) -> npt.NDArray[np.float32]:
    """Draws patterns with shot noise; returns patterns in the same shape, fractions of the beam.

    Every pixel is an independent Poisson number of mean I · electrons, divided by the electrons.
    NumPy draws one in 10 to 40 ns, depending on the mean, without the interpreter's lock. Chunks of
    2^20 pixels are drawn in parallel. The patterns are stored as fractions of the beam times
    `scale`.
    """
    mean = np.float32(electrons / scale)
    patterns = stored.reshape(-1)
    noisy = np.empty(stored.size, np.float32)

    def draw(start: int) -> None:
        chunk = slice(start, start + _CHUNK)
        rng = np.random.default_rng([seed, epoch, _COUNTS, start // _CHUNK])
        np.divide(
            rng.poisson(patterns[chunk] * mean),
            np.float32(electrons),
            out=noisy[chunk],
            casting="same_kind",
        )

    starts = range(0, patterns.size, _CHUNK)
    if len(starts) == 1:
        draw(0)
    else:
        with ThreadPoolExecutor(available_cores()) as pool:
            list(pool.map(draw, starts))
    return noisy.reshape(stored.shape)


def check_noiseless(provenance: Mapping[str, object]) -> None:
    """Raises InputError if a sample was simulated with noise: the sum of two noises is the noise of
    no dose.
    """
    if present := describe_dose(provenance):
        raise InputError(
            f"the samples have the noise of {present} already, and noise drawn on top is that of "
            "no dose: unset training.inputs.dose_electrons_per_pattern, or simulate without noise"
        )


def describe_dose(provenance: Mapping[str, object]) -> str | None:
    """Returns the dose of a sample's noise, as `detector.key=value`. `None` for a sample without
    noise.
    """
    detector = value(provenance, "detector", None) or {}
    for name in ("electrons_per_pattern", "dose_electrons_per_angstrom2"):
        if detector.get(name):
            return f"detector.{name}={detector[name]:g}"
    return None
