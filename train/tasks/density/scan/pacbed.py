"""The amount of a reconstructed density by the mean pattern of its scan
(`namsa.inverse.amount`).
"""

from dataclasses import replace

import numpy as np
from ase.data import atomic_numbers

from namsa.base.arrays import Array, Floats
from namsa.base.errors import InputError
from namsa.inverse import rings
from namsa.inverse.amount import Amount, fit_amount
from namsa.inverse.rings import Known, RingMeasurement
from namsa.physics.optics import BeamSettings

from ....apply.models import Model
from ..trust.consistency import KnownSpecimen, window_simulation
from .preparation import Findings, Measure, Prepared, thickness_line, trust_line
from .scan_images import BlendedImages


def ring_masks(model: Model) -> Floats:
    """Returns which network's pixels are in each ring, `(pixels, rings)`. Raises InputError if
    there can be none.
    """
    conditions = model.conditions
    detector = model.experiment.detector
    target = model.experiment.target
    if (
        detector is None
        or detector.pixel_mrad is None
        or (target.at, target.kind) != ("scan", "density")
    ):
        raise InputError(
            f"{model.name} has no detector.pixel_mrad or no density on the scan, which pacbed needs"
        )
    edges = rings.ring_edges(
        conditions.semiangle_mrad, max(conditions.pixel_mrad), conditions.reach_mrad
    )
    return rings.ring_masks(conditions.detector_pixels, conditions.detector_shape, edges)


class AmountByPatterns(Measure):
    """Scales the density by what the mean pattern says of its amount, and finds the thickness if it
    is not known.
    """

    option = "pacbed"
    finds_thickness = True

    def __init__(self, prepared: Prepared) -> None:
        """Raises InputError if the network's detector has no rings."""
        super().__init__(prepared)
        self._masks = ring_masks(prepared.scan.model)
        self._rings = np.full(
            (*prepared.scan.plan.scan_shape, self._masks.shape[1]), np.nan, np.float32
        )

    def see(self, rows: slice, strip: Array) -> None:
        self._rings[rows] = strip @ self._masks

    def after(self, findings: Findings) -> Findings:
        """Raises InputError as `namsa.inverse.amount.fit_amount`. Trust by the thickness found
        reads the scan again.
        """
        scan = self.scan
        images = findings.images
        known = findings.specimen
        model = scan.model
        conditions = scan.model.conditions
        detector = scan.model.experiment.detector
        assert detector
        beam = BeamSettings(conditions.energy_ev, conditions.semiangle_mrad, {})
        measurement = RingMeasurement(beam, detector, self._masks, model.max_q)
        fitted = fit_amount(
            images.density, self._rings, scan.pixels, measurement, known_amount(known)
        )
        images = scaled(images, fitted)
        self.note(fitted.line())
        facts = {**findings.facts, "pacbed": fitted.facts()}
        if known.thickness_angstrom is None:
            thickness = fitted.thickness_angstrom
            error = fitted.thickness_error
            known = replace(
                known,
                thickness_angstrom=thickness,
                thickness_error=error,
                source="as pacbed fits it",
            )
            images = self._with_trust(images, known)
            thick = thickness_line(known, model)
            if thick:
                self.note(thick)
                facts["thickness_outside"] = thick
        return Findings(images, known, facts)

    def _with_trust(self, images: BlendedImages, specimen: KnownSpecimen) -> BlendedImages:
        """Returns the images with the trust in their density for a thickness that was found."""
        scan = self.scan
        network = self.prepared.network
        if not self.prepared.options.trust or not specimen.can_be_simulated(scan.model):
            return images
        simulation = window_simulation(
            specimen, scan.model, network.window, scan.plan.step_angstrom
        )
        self.note(trust_line(specimen))
        with scan.bands_again() as bands:
            return replace(
                images, trust=self.prepared.images().trust_in(images.density, bands, simulation)
            )


def scaled(images: BlendedImages, amount: Amount) -> BlendedImages:
    """Returns the images with the amount that was found.

    They stay as they are if the rings do not determine it, contradict the given thickness, or find
    no clear difference.
    """
    if not amount.changes_density:
        return images
    factor = np.float32(amount.scale)
    bins = images.by_depth
    uncertainty = images.uncertainty
    return replace(
        images,
        density=factor * images.density,
        uncertainty=None if uncertainty is None else factor * uncertainty,
        by_depth=None if bins is None else factor * bins,
    )


def known_amount(specimen: KnownSpecimen) -> Known:
    """Returns what is known of a specimen before its amount is fitted."""
    elements = specimen.elements()
    known = Known()
    if elements:
        known = replace(
            known, composition={atomic_numbers[symbol]: n for symbol, n in elements.items()}
        )
    if specimen.vibration_angstrom is not None:
        known = replace(
            known, vibration_angstrom=specimen.vibration_angstrom, vibration_error_angstrom=0.005
        )
    if specimen.thickness_angstrom:
        error = max(known.thickness_error, specimen.thickness_error)
        known = replace(
            known, thickness_angstrom=specimen.thickness_angstrom, thickness_error=error
        )
    return known
