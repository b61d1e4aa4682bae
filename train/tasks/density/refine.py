"""Refines the density of a scan against its patterns (`namsa.inverse.refinement`), in blocks that overlap by half."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from namsa.arrays import Array
from namsa.errors import InputError
from namsa.inverse.refinement import Experiment, refine
from namsa.io.lost import filled
from namsa.physics.optics import BeamSettings

from ...apply.models import Model
from ...apply.scans import FittedScan
from ...apply.tiles import Blend, strips, window_slices
from ...apply.trust import KnownSpecimen
from ...apply.windows import MARGIN, BlendedImages, ScanNetwork
from ...measure import telemetry
from .pacbed import known_amount
from .preparation import GIVE_THICKNESS, Found, Measure, Prepared

SIDE = 64  # positions of a block, at most


class Refinement(Measure):
    """Refines the density; trust and uncertainty stay those of the network's own. The scan is read again."""

    option = "refine_steps"
    takes_thickness = True

    @staticmethod
    def check(model: Model) -> None:
        if model.experiment.bins_shape():
            raise InputError(
                f"refine_steps refines a projected density, and {model.name} predicts it by depth: set it to 0"
            )

    def __init__(self, prepared: Prepared) -> None:
        """Raises InputError if there is no density at the scan's positions, or no thickness."""
        super().__init__(prepared)
        model, steps = prepared.scan.model, prepared.options.refine_steps
        if prepared.network.whole_scan:
            raise InputError(
                f"{model.name} has no density at the scan's positions (layout detector), which --refine needs"
            )
        if prepared.specimen.thickness_angstrom is None and not prepared.finds_thickness:
            raise InputError(f"refine_steps is {steps}, and no thickness of the specimen is known: {GIVE_THICKNESS}")
        self.note("refined: trust and uncertainty are those of the network's own density")
        if not prepared.options.pacbed:
            self.note("refined: begins with the network's own amount of the density, which --pacbed would measure")

    def after(self, found: Found) -> Found:
        scan, network, images, known = self.scan, self.prepared.network, found.images, found.specimen
        steps = self.prepared.options.refine_steps
        self.note(f"refined: begins with {known.thickness_angstrom:.4g} Å, the thickness {known.source}")
        lost, shape = np.isnan(images.density), images.density.shape
        density, uncertainty = _whole(images.density, lost), images.uncertainty
        errors = None if uncertainty is None else _whole(uncertainty, lost)
        experiment = _experiment(images, density, scan, network, known)
        rows, columns = (window_slices(n, min(n, SIDE), 1) for n in shape)
        blend = Blend((shape[0], shape[1]), int(MARGIN * min(*shape, SIDE)) if max(shape) > SIDE else 0)
        blocks = list[dict[str, Any]]()
        with scan.bands_again() as bands, telemetry.counter(self.note.console, "steps of refinement") as count:
            for y, strip in zip(rows, strips(bands, scan.plan.along_y, rows), strict=True):
                for x in columns:
                    patterns = strip[:, x].reshape(*density[y, x].shape, *network.conditions.detector_shape)
                    own = None if errors is None else errors[y, x]
                    refined = refine(density[y, x], own, patterns, experiment, steps=steps, on_step=count)
                    blend.add((y, x), (density[y, x] if refined is None else refined.density)[None])
                    place = {"rows": [y.start, y.stop], "columns": [x.start, x.stop]}
                    blocks.append(place | (refined.facts if refined else {}))
        for block in blocks:
            self.note(_line(block))
        density = np.where(lost, np.nan, blend.mean()).astype(images.density.dtype)
        return Found(replace(images, density=density), known, {**found.facts, "refined": {"blocks": blocks}})


def _whole(image: Array, lost: Array) -> Array:
    """Returns an image, `(ny, nx)`, with the mean of the nearest pixels at lost positions."""
    return np.asarray(filled(image[..., None].astype(np.float64), lost)[..., 0])


def _experiment(
    images: BlendedImages,
    density: Array,
    scan: FittedScan,
    network: ScanNetwork,
    specimen: KnownSpecimen,
) -> Experiment:
    """Returns what is known of a scan.

    C10 and C12 are those that its patterns show, or the middle of what was learnt. Coma is not: a tilt looks like it.
    """
    conditions = network.conditions
    thickness = specimen.thickness_angstrom
    assert thickness is not None
    measured: Mapping[str, float] = images.aberrations or {"C10": sum(network.learnt.limits[0]) / 2}
    lens = {name: measured[name] for name in ("C10", "C12", "phi12") if name in measured}
    lens["C10"] -= thickness / 2  # of the entrance
    beam = BeamSettings(conditions.energy_ev, conditions.semiangle_mrad, network.learnt.known | lens)
    return Experiment(
        beam,
        conditions.detector_pixels,
        scan.plan.step_angstrom,
        thickness,
        known_amount(specimen).elements(float(density.mean()) / thickness),
        scan.model.max_q,
        scan.model.experiment.simulation.form_factors,
        max(Experiment.thickness_error, specimen.thickness_error),
    )


def _line(block: Mapping[str, Any]) -> str:
    """Returns the line about a block."""
    place = (
        f"rows {block['rows'][0]} to {block['rows'][1] - 1}, columns {block['columns'][0]} to {block['columns'][1] - 1}"
    )
    if "steps" not in block:
        return f"refined: {place}: not at all, for the density does not consist of columns of atoms"
    before, after = block["kept_out_divergence_before"], block["kept_out_divergence"]
    if not block["steps"]:
        return f"refined: {place}: the density stays, for no step explains the patterns kept out better ({before:.3g})"
    tilt = float(np.hypot(*block["tilt_mrad"]))
    text = (
        f"refined: {place}: {block['steps']} steps; the divergence of patterns kept out falls from {before:.3g} "
        f"to {after:.3g}; C10 {block['C10']:.0f} Å, C12 {block['C12']:.0f} Å, C21 {block['C21']:.0f} Å, source "
        f"{block['source_size_angstrom']:.2f} Å, thickness {block['thickness_angstrom']:.0f} Å, tilt {tilt:.1f} mrad, "
        f"{block['amount']:.2f} times the electrons"
    )
    if block["pairs"]:
        text += f"; {block['pairs']} maxima of the density are taken for two columns each"
    return text.replace("-", "−")
