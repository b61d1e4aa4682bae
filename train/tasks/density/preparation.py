"""A scan and a network that are ready for each other, and what may follow the density if an option asks for it."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from namsa.arrays import Array

from ...apply import familiarity, windows
from ...apply.models import Model
from ...apply.scans import FittedScan
from ...apply.trust import (
    TRANSFER,
    Comparison,
    KnownSpecimen,
    WindowSimulation,
    window_simulation,
)
from ...apply.windows import BlendedImages, ScanImages, ScanNetwork
from ...program import PROGRAM

GIVE_THICKNESS = "give --thickness-angstrom, or --pacbed or --estimator to find it"


@dataclass(frozen=True)
class ReconstructionOptions:
    """How a scan is reconstructed.

    Attributes:
        passes: Predictions with dropout per symmetry. `None` takes none if there are several symmetries, otherwise
            eight if the network has dropout.
        refine_steps: Steps of `train.tasks.density.refine`, at most; 0 refines nothing. They take a thickness, as trust
            does.
        pacbed: Whether the density is scaled by what the mean pattern says of its amount (`namsa.inverse.amount`).
        halves: Whether the halves of the scan are reconstructed, too, and compared (`train.tasks.density.halves`).
        trust: Whether trust is measured if a thickness is known: as given, else as in the file, as estimated, or as
            pacbed fits it. `False` takes no thickness from the file.
    """

    passes: int | None = None
    refine_steps: int = 0
    pacbed: bool = False
    halves: bool = False
    trust: bool = True


@dataclass(frozen=True)
class Prepared:
    """A scan and a network that are ready for each other."""

    scan: FittedScan  # the scan
    network: ScanNetwork  # its network, loaded
    specimen: KnownSpecimen  # with a thickness if one is known, or estimated, before the density is
    simulation: WindowSimulation | None  # simulation of a window, by which trust is measured; `None` measures none
    options: ReconstructionOptions  # as for `reconstruct`
    # What was estimated of the scan, beside what the network has learnt. `None` if nothing was.
    compared: Comparison | None = None
    finds_thickness: bool = False  # whether a measure will find the thickness, if it is not known

    @property
    def lost(self) -> str:
        """What becomes of lost patterns, for the note."""
        return "their neighbours' mean is used" if self.network.whole_scan else "masked in the result"

    def images(self) -> ScanImages:
        """Returns the images of the scan before the first strip is added."""
        return ScanImages(self.scan.plan, self.network, self.simulation)


class Found(NamedTuple):
    """What is known of a scan after the density, or after a measure."""

    images: BlendedImages
    specimen: KnownSpecimen
    facts: Mapping[str, Any]  # entries of a result's file, by name


class Measure(ABC):
    """What follows the density if an option asks for it."""

    option: ClassVar[str]  # of `ReconstructionOptions`
    takes_thickness: ClassVar[bool] = False  # whether it takes the specimen's thickness
    finds_thickness: ClassVar[bool] = False  # whether it finds the thickness, if it is not known

    @staticmethod  # noqa: B027 - most go with any
    def check(model: Model) -> None:
        """Raises InputError if it cannot be done with a network."""

    def __init__(self, prepared: Prepared) -> None:
        """Raises InputError if it cannot be done with a scan."""
        self.prepared, self.scan, self.note = prepared, prepared.scan, prepared.scan.note

    def see(self, rows: slice, strip: Array) -> None:  # noqa: B027 - most measures need nothing of it
        """Is given each strip of the scan as it is predicted, `(rows, positions along x, network's pixels)`."""

    @abstractmethod
    def after(self, found: Found) -> Found:
        """Returns what is known after it, and notes what it found."""


def prepare(
    scan: FittedScan,  # the scan; its patterns are not read
    specimen: KnownSpecimen | None,  # as for `reconstruct`
    options: ReconstructionOptions,  # as for `reconstruct`
    compared: Comparison | None = None,  # see `Prepared`
    measures: Collection[type[Measure]] = (),  # what follows the density
) -> Prepared:
    """Loads the network of a scan. Raises InputError if the data do not fit the network."""
    model, plan, note, given = scan.model, scan.plan, scan.note, specimen
    takes_thickness = options.trust or any(measure.takes_thickness for measure in measures)
    specimen = (given or KnownSpecimen()).with_thickness(
        scan.data.thickness_angstrom if takes_thickness else None, compared
    )
    known = None if specimen.thickness_error else specimen.thickness_angstrom
    network = windows.prepare_network(model, plan, options.passes, note, known)
    simulation = None
    if (
        options.trust
        and not network.whole_scan
        and (specimen.can_be_simulated(model) or (given and given.thickness_angstrom))
    ):
        simulation = window_simulation(specimen, model, network.window, plan.step_angstrom)
    note(_uncertainty_note(network, model))
    if network.familiarity is None:
        note(f"familiarity: not measured, for {model.name} has no {familiarity.FILE}: run {PROGRAM} calibrate")
    found_later = any(measure.finds_thickness for measure in measures)
    prepared = Prepared(scan, network, specimen, simulation, options, compared, found_later)
    note(trust_line(specimen) if simulation else _no_trust_line(prepared))
    return prepared


def trust_line(specimen: KnownSpecimen) -> str:
    """Returns a line about how trust is measured."""
    formula = f" of {specimen.formula}" if specimen.formula else ""
    return (
        f"trust: 1 − R/R₀ of every window's simulation, for {specimen.thickness_angstrom:.4g} Å{formula}, the "
        f"thickness {specimen.source}"
    )


def _no_trust_line(prepared: Prepared) -> str:
    """Returns a line about why trust is not measured, or not yet."""
    specimen, model = prepared.specimen, prepared.scan.model
    if not prepared.options.trust:
        return "trust: not measured, as asked"
    if specimen.thickness_angstrom is None:
        if prepared.finds_thickness:
            return "trust: measured after the amount, for the thickness that is found"
        return f"trust: not measured, which takes the specimen's thickness: {GIVE_THICKNESS}"
    if specimen.can_be_simulated(model):
        return "trust: not measured, for a network of layout detector has no windows"
    return f"trust: not measured, for {model.name} has no {TRANSFER}: give --formula"


def _uncertainty_note(network: ScanNetwork, model: Model) -> str:
    """Returns a line about where the uncertainty comes from, or why there is none."""
    if not network.has_uncertainty:
        return "uncertainty: none, for there is no ensemble: give --passes, with a network that has dropout"
    factor, two_sigma = model.calibration.uncertainty_factor, model.calibration.two_sigma_factor
    sources = ["the ensemble's standard deviation"] if network.members > 1 else []
    sources += ["the error that the network predicts"] if model.predicts_its_error else []
    state = f"times {factor:.3g}, as calibrated" if factor else "not calibrated: a lower bound of the error"
    beyond = f"; 95 % of the errors are within {two_sigma:.3g} times that" if two_sigma else ""
    return f"uncertainty: {' and '.join(sources)}, {state}{beyond}"
