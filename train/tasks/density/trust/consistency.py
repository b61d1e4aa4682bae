"""Trust: the consistency of patterns and density, by simulating the density.

Trust is 1 − R/R₀, where R is the misfit of the simulated patterns (`namsa.inverse.consistency`) and
R₀ that of an empty specimen. It is 1 for a density that explains its patterns completely and 0 for
one that explains no more than an empty specimen. It needs the specimen's thickness, which files of
simulated patterns hold, and which is estimated or fitted otherwise, and the conversion from density
to potential. The latter comes from the specimen's elements, or from `transfer.json` in the model's
folder, which was fitted to the training data (`namsa.inverse.mott_bethe`). Trust stays below 1 for
a true density, too, because a projection does not determine the patterns completely.

Whether a density shows more than its own stated error needs neither: the variance of a density over
the scan is that of the specimen and that of the error together. Where the mean square of the stated
uncertainty is half of it or more, at most half of what the density shows is the specimen.
"""

import re
from dataclasses import dataclass, replace

import numpy as np
from ase.data import atomic_numbers
from ase.formula import Formula

from namsa.base.arrays import Array
from namsa.base.errors import InputError
from namsa.base.text import shorten
from namsa.inverse import consistency, mott_bethe
from namsa.inverse.consistency import ScanSimulation
from namsa.inverse.mott_bethe import DensityToPotential

from ....apply.estimated import Comparison
from ....apply.models import Model

# rms uncertainty in standard deviations of the density; of amorphous carbon 0.65 to 0.69, of
# crystals up to 0.35 (docs/benchmarks/reconstruction.md)
UNRESOLVED = 0.5
MOST_ATOMS = 100_000  # of an element in a formula
THICKNESS_ANGSTROM = (0.1, 1e4)  # the least and the most
TRANSFER = "transfer.json"  # in a model's folder


@dataclass(frozen=True)
class KnownSpecimen:
    """The known properties of the specimen.

    Attributes:
        thickness_angstrom: Thickness, Å. `None` if it is not known.
        formula: Chemical formula, as "SrTiO3". `None` if it is not known.
        vibration_angstrom: Rms thermal displacement of the atoms along one axis, Å. `None` if it is
            not known.
        thickness_error: Standard deviation of the thickness, relative; 0 if it is not stated.
        source: Where the thickness is from, in words.

    Example:
        >>> import namsa_train
        >>> namsa_train.KnownSpecimen(thickness_angstrom=50.0, formula="SrTiO3").formula
        'SrTiO3'
    """

    thickness_angstrom: float | None = None
    formula: str | None = None
    vibration_angstrom: float | None = None
    thickness_error: float = 0.0
    source: str = "as given"

    def with_thickness(
        self, of_file_angstrom: float | None, compared: Comparison | None
    ) -> "KnownSpecimen":
        """Returns the specimen with a thickness, if there is one: its own, else the file's, else
        the estimated one.
        """
        low, high = THICKNESS_ANGSTROM
        if self.thickness_angstrom is not None:
            return self
        if of_file_angstrom is not None and low <= of_file_angstrom <= high:
            return replace(self, thickness_angstrom=of_file_angstrom, source="as in the file")
        estimate = (
            (compared.facts if compared else {}).get("quantities", {}).get("thickness_angstrom")
        )
        if not estimate or not low <= estimate["value"] <= high:
            return self
        value = estimate["value"]
        error = estimate["error"] / estimate["value"]
        return replace(self, thickness_angstrom=value, thickness_error=error, source="as estimated")

    def can_be_simulated(self, model: Model) -> bool:
        """Returns whether densities of a network can be simulated for this specimen, as far as it
        is known.
        """
        return self.thickness_angstrom is not None and (
            bool(self.formula) or (model.folder / TRANSFER).is_file()
        )

    def elements(self) -> dict[str, int] | None:
        """Returns the number of atoms of each element by its symbol; `None` without a formula.

        Raises:
            InputError: If the formula is not valid.
        """
        if self.formula is None:
            return None
        if re.search(r"(?<!\d)0", self.formula):  # ase takes Ti03 for three Ti
            raise InputError(
                f"--formula {shorten(self.formula)} has a number that begins with 0: is it the "
                "letter O? Give one as SrTiO3"
            )
        try:
            elements: dict[str, int] = Formula(self.formula).count()
        except ValueError:
            raise InputError(
                f"--formula {shorten(self.formula)} is no chemical formula: give one as SrTiO3"
            ) from None
        if not elements or not all(0 < count <= MOST_ATOMS for count in elements.values()):
            raise InputError(
                f"--formula {shorten(self.formula)}: give 1 to {MOST_ATOMS} atoms of each element, "
                "as in SrTiO3"
            )
        for symbol in elements:
            if symbol not in atomic_numbers:
                raise InputError(
                    f"--formula {shorten(self.formula)}: {symbol} is no chemical element: give "
                    "symbols, as in SrTiO3"
                )
        return elements


@dataclass(frozen=True)
class WindowSimulation:
    """The simulation of one window of a scan, by which its density is scored."""

    simulation: ScanSimulation  # experiment, thickness and geometry of the window
    conversion: DensityToPotential  # conversion from density to potential

    def trust(self, density: Array, patterns: Array) -> float:
        """Returns the trust, from 0 to 1, in a density `(sy, sx)`, e/Å².

        Patterns are `(sy, sx, dy, dx)`, fractions of the beam.
        """
        result = consistency.check(density, patterns, self.simulation, self.conversion)
        if result.empty > 0:
            return float(np.clip(1 - result.score / result.empty, 0, 1))
        return 1.0


def window_simulation(
    specimen: KnownSpecimen,  # with a thickness
    model: Model,  # the network; its configuration says what else is simulated
    window: tuple[int, int],  # positions, (y, x)
    step_angstrom: tuple[float, float],  # distance between positions, (y, x), Å
) -> WindowSimulation:
    """Prepares the simulation of a window.

    Raises:
        InputError: If the specimen's formula is not valid, or if it is not known and the model has
            no transfer.json.
    """
    config = model.experiment
    scan = config.scan.model_copy(
        update={"shape": window, "step_angstrom": step_angstrom, "origin_angstrom": (0.0, 0.0)}
    )
    experiment = config.model_copy(update={"scan": scan})
    assert specimen.thickness_angstrom is not None
    simulation = consistency.scan_simulation(experiment, specimen.thickness_angstrom, window)
    return WindowSimulation(simulation, _conversion(specimen, model))


def _conversion(specimen: KnownSpecimen, model: Model) -> DensityToPotential:
    """Returns the conversion of the specimen's elements, or the one that was fitted to the training
    data.
    """
    fitted = model.folder / TRANSFER
    if (elements := specimen.elements()) is None:
        if not fitted.is_file():
            raise InputError(
                f"{model.folder} has no transfer.json: give --formula, or no --thickness-angstrom"
            )
        return mott_bethe.read(fitted)
    return mott_bethe.from_elements(elements, model.max_q, model.experiment.simulation.form_factors)


def error_over_contrast(density: Array, uncertainty: Array) -> float | None:
    """Returns the rms uncertainty over the standard deviation of the density; `None` for a density
    without contrast.

    Both are `(ny, nx)`, e/Å², and NaN where nothing is known yet.
    """
    known = np.isfinite(density) & np.isfinite(uncertainty)
    contrast = float(density[known].std(dtype=np.float64)) if known.any() else 0.0
    if not contrast:
        return None
    return float(np.sqrt(np.mean(uncertainty[known].astype(np.float64) ** 2))) / contrast


def is_unresolved(ratio: float) -> bool:
    """Returns whether a quarter or more of a density's variance is error, by
    `error_over_contrast`.
    """
    return ratio >= UNRESOLVED


def contrast_line(ratio: float) -> str:
    """Returns the line about an error that is large beside the contrast; empty if it is not."""
    if not is_unresolved(ratio):
        return ""
    return (
        f"the stated error is {ratio:.2f} of the density's contrast (rms; {UNRESOLVED:.2f} is the "
        "limit): a quarter or more of its variance is error. Do not rely on its structure; check "
        "focus, aberrations and calibration, and whether the specimen is amorphous"
    )
