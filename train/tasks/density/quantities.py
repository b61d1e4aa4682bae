"""The images that a network of this task can learn, `target.kind`, made from a stored sample."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from namsa.dataset.records import Record
from namsa.inverse.mott_bethe import potential_like_density


class Quantity(NamedTuple):
    """How an image is named in results."""

    words: str
    unit: str


QUANTITIES = {
    "density": Quantity("projected electron density", "e/Å²"),
    "potential": Quantity("projected potential", "V·Å"),
    "standardised_potential": Quantity("standardised projected potential", ""),
}


def quantity_of(evaluation: Mapping[str, Any] | None) -> Quantity:
    """Returns what the results of an `evaluation.json` are about; a density where it does not say it."""
    return QUANTITIES.get((evaluation or {}).get("target", "density"), QUANTITIES["density"])


def target_image(record: Record, kind: str) -> npt.NDArray[np.float32]:
    """Returns the target of a sample, `(ty, tx)`.

    The potential has the band of the density. Where a sample says none, it is an image as it was stored.
    """
    if kind == "density":
        return record.density
    image: npt.NDArray[Any] = record.projected_potential
    if "density_max_q_per_angstrom" in record.header["provenance"]:
        image = potential_like_density(record)
    return (standardised(image) if kind == "standardised_potential" else image).astype(np.float32)


def standardised(image: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Returns an image less its mean, over its deviation or 1/√size if that is larger, as the paper's authors do it."""
    values = image.astype(np.float64)
    return (values - values.mean()) / max(values.std(), values.size**-0.5)
