"""How far the spread of a network's answers is the error of their mean, measured on materials it never saw.

A sample is answered in all the guises that keep it true (`train.reconstruction.ensemble`): mirrored, and where that
cannot be, with
dropout. The answers' standard deviation times one factor is the uncertainty. The factor is chosen on the dev split so
that 68.27 % of the pixels have an error within it; what it then covers is measured on the test split, and written down
beside it. Its only use is in the mean over pixels: no pixel's own coverage is known.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from namsa.dataset.records import Record
from namsa.errors import WorkError

Array = npt.NDArray[Any]
Answers = Callable[[Array], Array]  # (n, sy, sx, dy, dx) -> (members, n, h, w), as `ensemble.members`

ONE_SIGMA = 0.6827


def errors(answers: Answers, records: Iterable[Record]) -> tuple[Array, Array]:
    """|mean answer − truth| and the answers' standard deviation, e/Å², of all pixels of all `records`."""
    found: list[tuple[Array, Array]] = []
    for record in records:
        sy, sx = record.header["provenance"]["scan_shape"]
        given = answers(record.patterns().reshape(1, sy, sx, *record.cbed.shape[1:]))[:, 0].astype(np.float64)
        error = np.abs(given.mean(axis=0) - record.density)
        found.append((error.ravel(), given.std(axis=0, ddof=1).ravel()))
    if not found:
        return np.zeros(0), np.zeros(0)
    return np.concatenate([e for e, _ in found]), np.concatenate([s for _, s in found])


def factor(error: Array, spread: Array) -> float:
    """What `spread` (n,) is multiplied by so that 68.27 % of `error` (n,) are within it.

    Raises WorkError where too many answers are alike for there to be one.
    """
    ratio = np.divide(error, spread, out=np.full(len(error), np.inf), where=spread > 0)
    found = float(np.quantile(ratio, ONE_SIGMA, method="higher"))
    if not np.isfinite(found):
        raise WorkError("the network's answers do not differ in a third of the pixels: their spread says nothing")
    return found


def coverage(error: Array, spread: Array) -> dict[str, float]:
    """The parts of `error` within one and two of `spread`; of a Gaussian 0.683 and 0.954."""
    return {f"coverage_{name}": float(np.mean(error <= k * spread)) for k, name in ((1, "68"), (2, "95"))}


def calibration(
    answers: Answers, dev: Sequence[Record], test: Iterable[Record], method: str, count: int
) -> dict[str, Any]:
    """What calibration.json says of uncertainty: the factor of the dev samples and its coverage on dev and test."""
    error, spread = errors(answers, dev)
    scale = factor(error, spread)
    unseen, its_spread = errors(answers, test)
    found: dict[str, Any] = {
        "scale": scale,
        "uncertainty_factor": scale,
        "method": method,
        "members": count,
        "split": "dev",
        "samples": len(dev),
        **coverage(error, scale * spread),
    }
    if len(unseen):
        found["test"] = coverage(unseen, scale * its_spread)
    return found
