"""The networks of the package that come nearest to a microscope, for the message of one that does
not fit.
"""

import math
from collections.abc import Callable

from ..experiment.conditions import Conditions
from ..program import PROGRAM
from .models import Model, shipped

_MOST = 3  # networks that a message names


def nearest_networks(
    energy_ev: float,
    semiangle_mrad: float,
    task: str,
    fits: Callable[[Conditions], bool] | None = None,
) -> str:
    """Returns the networks of a task that are trained for the nearest energy and semiangle, with
    what differs, and where all are listed.

    Args:
        fits: Whether a network takes the data: those that do are then named alone, or it is said
            that none does.
    """

    def distance(model: Model) -> float:
        conditions = model.conditions
        energies = abs(math.log(energy_ev / conditions.energy_ev))
        angles = abs(math.log(max(semiangle_mrad, 0.1) / max(conditions.semiangle_mrad, 0.1)))
        return energies + angles

    of_task = [model for model in shipped() if model.experiment.training.task == task]
    heading = "The nearest of the package"
    if fits:
        heading = "None of the package fits; the nearest"
        fitting = [model for model in of_task if fits(model.conditions)]
        if fitting:
            heading = "These of the package fit"
            of_task = fitting
    named = []
    for model in sorted(of_task, key=distance)[:_MOST]:
        energy = _against(model.conditions.energy_ev / 1e3, energy_ev / 1e3, "keV")
        angle = _against(model.conditions.semiangle_mrad, semiangle_mrad, "mrad")
        named.append(f"{model.name} ({energy}, {angle})")
    nearest = f"{heading}: {', '.join(named)}. " if named else ""
    return (
        f"{nearest}`{PROGRAM} models` lists all; docs/which_network.md ('Which network fits my "
        "microscope') says what to do if none fits"
    )


def _against(trained: float, value: float, unit: str) -> str:
    """Returns what a network was trained for, with the value of the data if it differs."""
    if f"{trained:.3g}" == f"{value:.3g}":
        return f"{trained:.3g} {unit}"
    return f"{trained:.3g} for {value:.3g} {unit}"
