"""The networks of the package that come nearest to a microscope, for the message of one that does
not fit.
"""

import math

from ..program import PROGRAM
from .models import Model, shipped

_MOST = 3  # networks that a message names


def nearest_networks(energy_ev: float, semiangle_mrad: float) -> str:
    """Returns the networks that are trained for the nearest energy and semiangle, with both, and
    where all are listed.
    """

    def distance(model: Model) -> float:
        conditions = model.conditions
        energies = abs(math.log(energy_ev / conditions.energy_ev))
        angles = abs(math.log(max(semiangle_mrad, 0.1) / max(conditions.semiangle_mrad, 0.1)))
        return energies + angles

    named = []
    for model in sorted(shipped(), key=distance)[:_MOST]:
        conditions = model.conditions
        named.append(
            f"{model.name} ({model.experiment.training.task}, {conditions.energy_ev / 1e3:g} keV, "
            f"{conditions.semiangle_mrad:g} mrad)"
        )
    return (
        f"The nearest of the package: {', '.join(named)}. `{PROGRAM} models` lists all; "
        "the page 'Which network fits my microscope' says what to do if none fits"
    )
