"""What a dose leaves of noiseless patterns: counted electrons, drawn anew for each sample and epoch."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from namsa.errors import InputError
from namsa.physics.backend import available_cores

Dose = float | tuple[float, float]

_DOSE, _COUNTS = 1, 2  # streams of random numbers beside that of the symmetries
_PART = 2**20  # pixels that one generator counts: it sets the bits, so it never changes


def electrons(dose: Dose, seed: int, epoch: int) -> float:
    """Electrons a pattern for a sample of `seed` in `epoch`: `dose` itself, or evenly in its range's logarithm."""
    low, high = dose if isinstance(dose, tuple) else (dose, dose)
    return float(low * (high / low) ** np.random.default_rng([seed, epoch, _DOSE]).random())


def counted(stored: npt.NDArray[Any], scale: float, electrons: float, seed: int, epoch: int) -> npt.NDArray[np.float32]:
    """Patterns as a beam of `electrons` a pattern leaves them, fractions of the beam; `stored` is these times `scale`.

    Every pixel is an independent Poisson number of mean I · electrons, over `electrons`. NumPy draws one in 10 to 40
    ns, by its mean, without the interpreter's lock; parts of 2^20 pixels are drawn side by side.
    """
    mean = np.float32(electrons / scale)
    patterns, noisy = stored.reshape(-1), np.empty(stored.size, np.float32)

    def part(start: int) -> None:
        piece = slice(start, start + _PART)
        rng = np.random.default_rng([seed, epoch, _COUNTS, start // _PART])
        np.divide(rng.poisson(patterns[piece] * mean), np.float32(electrons), out=noisy[piece], casting="same_kind")

    starts = range(0, patterns.size, _PART)
    if len(starts) == 1:
        part(0)
    else:
        with ThreadPoolExecutor(available_cores()) as pool:
            list(pool.map(part, starts))
    return noisy.reshape(stored.shape)


def check_noiseless(provenance: dict[str, Any]) -> None:
    """Raises InputError where a sample was simulated with noise: noise on noise is that of no dose."""
    already = dose_of(provenance)
    if already:
        raise InputError(
            f"the samples have the noise of {already} already, and noise drawn on top is that of no dose: unset "
            "training.inputs.dose_electrons_per_pattern, or simulate without noise"
        )


def dose_of(provenance: dict[str, Any]) -> str | None:
    """The dose that a sample's patterns were counted with, in words; None where they have no noise."""
    detector = provenance.get("detector") or {}
    for name in ("electrons_per_pattern", "dose_electrons_per_angstrom2"):
        if detector.get(name):
            return f"detector.{name}={detector[name]:g}"
    return None
