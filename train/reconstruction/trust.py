"""Whether a reconstruction can be trusted: simulate it, and see how well that explains the patterns.

Trust is 1 − R/R₀, R the misfit of the simulated patterns (`namsa.inverse.consistency`) and R₀ that of an empty
specimen: 1 is a
density that explains its patterns wholly, 0 one that explains no more than nothing. It takes the specimen's thickness,
which no file says, and the way from density to potential: of the specimen's elements, or `transfer.json` in the model's
folder, fitted to what it was trained on (`namsa.inverse.mott_bethe`). It stays below 1 for a true density, too, for
what a projection does not hold.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from ase.formula import Formula

from namsa.errors import InputError
from namsa.inverse import consistency, mott_bethe
from namsa.physics.optics import wavelength_angstrom
from train.experiment.experiment import Experiment
from train.reconstruction.models import Model

Array = npt.NDArray[Any]
# From a window's density (y, x), e/Å², and its patterns (y, x, dy, dx), fractions of the beam.
Trust = Callable[[Array, Array], float]
# The same to a density that explains them better.
Refine = Callable[[Array, Array], Array]


@dataclass(frozen=True)
class Specimen:
    """What is known of it: its thickness, and its formula, as "SrTiO3", or None."""

    thickness_angstrom: float
    formula: str | None = None


def judge(specimen: Specimen, model: Model, window: tuple[int, int], step_angstrom: tuple[float, float]) -> Trust:
    """The trust in a window of positions `step_angstrom` apart. Raises InputError where there is no way to tell."""
    experiment, where = _setting(specimen, model, window, step_angstrom)
    transfer = _transfer(specimen, model)

    def trust(density: Array, patterns: Array) -> float:
        found = consistency.check(density, patterns, experiment, specimen.thickness_angstrom, transfer, where)
        return float(np.clip(1 - found.score / found.empty, 0, 1)) if found.empty > 0 else 1.0

    return trust


def refiner(
    specimen: Specimen, model: Model, window: tuple[int, int], step_angstrom: tuple[float, float], steps: int
) -> Refine:
    """`steps` of `train.reconstruction.refine`, for windows as in `judge`. Raises InputError as that does."""
    from train.reconstruction.refine import refine

    experiment, where = _setting(specimen, model, window, step_angstrom)
    transfer = _transfer(specimen, model)

    def refined(density: Array, patterns: Array) -> Array:
        thickness = specimen.thickness_angstrom
        return refine(density, patterns, experiment, thickness, transfer, where, steps=steps).density

    return refined


def _setting(
    specimen: Specimen, model: Model, window: tuple[int, int], step_angstrom: tuple[float, float]
) -> tuple[Experiment, consistency.Scene]:
    own = model.experiment
    scan = own.scan.model_copy(update={"shape": window, "step_angstrom": step_angstrom, "origin_angstrom": (0.0, 0.0)})
    experiment = own.model_copy(update={"scan": scan})
    return experiment, consistency.scene(experiment, specimen.thickness_angstrom, window)


def _transfer(specimen: Specimen, model: Model) -> mott_bethe.Transfer:
    microscope, target = model.experiment.microscope, model.experiment.target
    fitted = model.folder / "transfer.json"
    if specimen.formula is None:
        if not fitted.is_file():
            raise InputError(f"{model.folder} has no transfer.json: give --formula, or no --thickness-angstrom")
        return mott_bethe.read(fitted)
    try:
        elements = Formula(specimen.formula).count()
    except ValueError:
        raise InputError(f"--formula {specimen.formula} is no chemical formula: give one as SrTiO3") from None
    limit = 2e-3 * microscope.semiangle_mrad / wavelength_angstrom(microscope.energy_ev)
    return mott_bethe.of_elements(
        elements, target.max_q_per_angstrom or limit, model.experiment.simulation.form_factors
    )
