"""Counts of a scan that is recorded, and the comparison with the reconstruction of the whole."""

from typing import Any

import numpy as np
import numpy.typing as npt

from train.tasks.density.scan.result import Reconstruction
from train.tasks.density.trust.consistency import KnownSpecimen

SCAN = (52, 36)
KNOWN: dict[str, Any] = {"beam_intensity": 900.0, "specimen": KnownSpecimen(20.0, "SrTiO3")}
RAW: dict[str, Any] = {"dtype": "u2", "detector_shape": (4, 4)}
IMAGES = ("density", "uncertainty", "trust", "bright_field", "mean_pattern")


def counts(scan: tuple[int, int] = SCAN) -> npt.NDArray[np.uint16]:
    rng = np.random.default_rng(0)
    return rng.poisson(60 * (1 + rng.random((*scan, 4, 4)))).astype(np.uint16)


def assert_equal(result: Reconstruction, expected: Reconstruction, rtol: float = 0.0) -> None:
    for name in IMAGES:
        np.testing.assert_allclose(
            getattr(result, name), getattr(expected, name), rtol=rtol, err_msg=name
        )
    assert result.pixels == expected.pixels
