"""A scan and a network that are ready for each other, and what may follow the density if an option
asks for it.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from namsa.base.arrays import Array

from ....apply.estimated import Comparison
from ....apply.learnt import kinship_line
from ....apply.models import Model
from ....apply.scans import FittedScan
from ....experiment.conditions import has_films_alone, thickness_angstrom
from ....program import PROGRAM
from ..trust import familiarity
from ..trust.consistency import TRANSFER, KnownSpecimen, WindowSimulation, window_simulation
from .options import ReconstructionOptions
from .scan_images import BlendedImages, OnWindow, ScanImages
from .scan_network import ScanNetwork, prepare_network

TOO_THICK = 1.1  # times the largest thickness that was learnt, which whole cells round
GIVE_THICKNESS = "give --thickness-angstrom, or --pacbed or --estimator to find it"


@dataclass(frozen=True)
class Prepared:
    """A scan and a network that are ready for each other."""

    scan: FittedScan  # the scan
    network: ScanNetwork  # its network, loaded
    specimen: KnownSpecimen  # with a thickness if one is known, or estimated, before the density is
    # Simulation of a window, by which trust is measured; `None` measures none.
    simulation: WindowSimulation | None
    options: ReconstructionOptions  # as for `reconstruct`
    # What was estimated of the scan, beside what the network has learnt. `None` if nothing was.
    compared: Comparison | None = None
    measures: Collection[type["Measure"]] = ()  # what follows the density

    @property
    def finds_thickness(self) -> bool:
        """Whether a measure will find the thickness, if it is not known."""
        return any(measure.finds_thickness for measure in self.measures)

    @property
    def lost(self) -> str:
        """The consequence of lost patterns, for the note."""
        if self.network.whole_scan:
            return "their neighbours' mean is used"
        return "masked in the result"

    def images(self, on_window: OnWindow = lambda done, total: None) -> ScanImages:
        """Returns the images of the scan before the first strip is added; see `ScanImages`."""
        return ScanImages(self.scan.plan, self.network, self.simulation, on_window)


class Findings(NamedTuple):
    """Images, specimen and facts of a scan after the density, or after a measure."""

    images: BlendedImages
    specimen: KnownSpecimen
    facts: Mapping[str, object]  # entries of a result's file, by name


class Measure(ABC):
    """A measurement that follows the density if an option asks for it."""

    option: ClassVar[str]  # of `ReconstructionOptions`
    takes_thickness: ClassVar[bool] = False  # whether it takes the specimen's thickness
    finds_thickness: ClassVar[bool] = False  # whether it finds the thickness, if it is not known

    @staticmethod  # noqa: B027 - most go with any
    def check(model: Model) -> None:
        """Raises InputError if it cannot be done with a network."""

    @classmethod
    def is_asked(cls, options: ReconstructionOptions) -> bool:
        """Returns whether the options ask for it."""
        return bool(getattr(options, cls.option))

    @property
    def setting(self) -> Any:
        """The value of its option."""
        return getattr(self.prepared.options, self.option)

    def __init__(self, prepared: Prepared) -> None:
        """Raises InputError if it cannot be done with a scan."""
        self.prepared = prepared
        self.scan = prepared.scan
        self.note = prepared.scan.note

    def see(self, rows: slice, strip: Array) -> None:  # noqa: B027 - most measures need nothing of it
        """Is given each strip of the scan as it is predicted, `(rows, positions along x, network's
        pixels)`.
        """

    @abstractmethod
    def after(self, findings: Findings) -> Findings:
        """Returns what is known after it, and notes what it shows."""


def prepare(
    scan: FittedScan,  # the scan; its patterns are not read
    specimen: KnownSpecimen | None,  # as for `reconstruct`
    options: ReconstructionOptions,  # as for `reconstruct`
    compared: Comparison | None = None,  # see `Prepared`
    measures: Collection[type[Measure]] = (),  # what follows the density
) -> Prepared:
    """Loads the network of a scan. Raises InputError if the data do not fit the network."""
    model = scan.model
    plan = scan.plan
    note = scan.note
    given = specimen or KnownSpecimen()
    given.elements()  # a formula that is none is refused before the work
    of_file = None
    if options.trust or any(measure.takes_thickness for measure in measures):
        of_file = scan.data.thickness_angstrom
    specimen = given.with_thickness(of_file, compared)
    thickness = None if specimen.thickness_error else specimen.thickness_angstrom
    network = prepare_network(model, plan, options.passes, note, thickness, scan.weights_digest)
    if specimen.formula is not None:
        note(kinship_line(model, specimen.formula))
    simulation = None
    can_be_simulated = specimen.can_be_simulated(model) or given.thickness_angstrom
    if options.trust and not network.whole_scan and can_be_simulated:
        simulation = window_simulation(specimen, model, network.window, plan.step_angstrom)
    note(_uncertainty_note(network, model))
    if network.familiarity is None:
        note(
            f"familiarity: not measured, for {model.name} has no {familiarity.FILE}: run {PROGRAM} "
            "calibrate"
        )
    prepared = Prepared(scan, network, specimen, simulation, options, compared, measures)
    note(trust_line(specimen) if simulation else _no_trust_line(prepared))
    thick = thickness_warning(specimen, model)
    if thick:
        note(thick)
    return prepared


def thickness_warning(specimen: KnownSpecimen, model: Model) -> str:
    """Returns a line about a given thickness that is beyond what the network learnt; else empty.

    One that was estimated is compared where it was estimated.
    """
    return "" if specimen.thickness_error else thickness_line(specimen, model)


def thickness_line(specimen: KnownSpecimen, model: Model) -> str:
    """Returns a line about a thickness that is beyond what the network learnt by more than its
    error; else empty.
    """
    thickness = specimen.thickness_angstrom
    experiment = model.experiment
    if thickness is None or has_films_alone(experiment):
        return ""
    largest = max(thickness_angstrom(experiment))
    if thickness * (1 - specimen.thickness_error) <= TOO_THICK * largest:
        return ""
    return (
        f"thickness: {thickness:.4g} Å, {specimen.source}, lies outside of what the network learnt "
        f"(up to {largest:.4g} Å). Do not rely on the amount of the density or its uncertainty"
    )


def trust_line(specimen: KnownSpecimen) -> str:
    """Returns a line about how trust is measured."""
    formula = f" of {specimen.formula}" if specimen.formula else ""
    return (
        f"trust: 1 − R/R₀ of every window's simulation, for {specimen.thickness_angstrom:.4g} "
        f"Å{formula}, the thickness {specimen.source}"
    )


def _no_trust_line(prepared: Prepared) -> str:
    """Returns a line about why trust is not measured, or not yet."""
    specimen = prepared.specimen
    model = prepared.scan.model
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
        return (
            "uncertainty: none, for there is no ensemble: give --passes, with a network that has "
            "dropout"
        )
    factor = model.calibration.uncertainty_factor
    two_sigma = model.calibration.two_sigma_factor
    sources = []
    if network.members > 1:
        sources.append("the ensemble's standard deviation")
    if model.predicts_its_error:
        sources.append("the error that the network predicts")
    if factor:
        state = f"times {factor:.3g}, as calibrated"
    else:
        state = "not calibrated: a lower bound of the error"
    line = f"uncertainty: {' and '.join(sources)}, {state}"
    if two_sigma:
        line += f"; 95 % of the errors are within {two_sigma:.3g} times that"
    return line
