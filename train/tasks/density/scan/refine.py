"""Fits lens, source, thickness and tilt of a scan to its patterns and, if columns are asked for,
its density (`namsa.inverse.refinement`), in blocks that overlap by half. A block whose columns gain
nothing clear keeps the network's density.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from namsa.base.arrays import Array
from namsa.base.errors import InputError
from namsa.inverse.refinement import refine
from namsa.inverse.refinement_facts import FittedNumbers, RefinementFacts
from namsa.inverse.scan_fit import KnownScan
from namsa.io.lost import filled
from namsa.physics.optics import BeamSettings

from ....apply.models import Model
from ....apply.scans import FittedScan
from ....apply.tiles import MARGIN, Blend, strips, window_slices
from ..trust.consistency import KnownSpecimen, is_unresolved
from .pacbed import AmountByPatterns, known_amount
from .preparation import GIVE_THICKNESS, Findings, Measure, Prepared
from .scan_images import BlendedImages
from .scan_network import ScanNetwork

SIDE = 64  # positions of a block, at most


class Refinement(Measure):
    """Refines what is known of the scan and, if asked, the density and its uncertainty; trust stays
    that of the network's own. The scan is read again.
    """

    option = "refine_steps"
    takes_thickness = True

    @staticmethod
    def check(model: Model) -> None:
        if model.experiment.bins_shape():
            raise InputError(
                f"refine_steps refines a projected density, and {model.name} predicts it by depth: "
                "set it to 0"
            )

    def __init__(self, prepared: Prepared) -> None:
        """Raises InputError if there is no density at the scan's positions, or no thickness."""
        super().__init__(prepared)
        model = prepared.scan.model
        steps = self.setting
        if prepared.network.whole_scan:
            raise InputError(
                f"{model.name} has no density at the scan's positions (layout detector), which "
                "--refine needs"
            )
        if prepared.specimen.thickness_angstrom is None and not prepared.finds_thickness:
            raise InputError(
                f"refine_steps is {steps}, and no thickness of the specimen is known: "
                f"{GIVE_THICKNESS}"
            )
        if prepared.options.refine_columns:
            self.note(
                "refined: columns are experimental, can make a density worse although the patterns "
                "agree better: compare it with the one without --refine-columns"
            )
            self.note("refined: trust is that of the network's own density")
        if AmountByPatterns not in prepared.measures:
            self.note(
                "refined: begins with the network's own amount of the density, which --pacbed "
                "would measure"
            )

    def after(self, findings: Findings) -> Findings:
        images = findings.images
        known = findings.specimen
        if is_unresolved(images.error_over_contrast or 0.0):
            self.note(
                "refinement changed nothing: the stated error is too large beside the contrast"
            )
            return findings
        self.note(
            f"refined: begins with {known.thickness_angstrom:.4g} Å, the thickness {known.source}"
        )
        lost = np.isnan(images.density)
        density = _whole(images.density, lost)
        uncertainty = images.uncertainty
        errors = None if uncertainty is None else _whole(uncertainty, lost)
        experiment = _experiment(images, density, self.scan, self.prepared.network, known)
        refined = self._refine_blocks(density, errors, experiment)
        for block in refined.blocks:
            self.note(_line(block))
        stored = {"blocks": [block.to_json() for block in refined.blocks]}
        facts = {**findings.facts, "refined": stored}
        if not any(block.facts and block.facts["steps"] for block in refined.blocks):
            if self.prepared.options.refine_columns:
                self.note("refinement changed nothing: the density is the network's own")
            else:
                self.note("refined: the density stays the network's own without --refine-columns")
            return findings._replace(facts=facts)
        blended = np.where(lost, np.nan, refined.density).astype(images.density.dtype)
        if uncertainty is not None and refined.errors is not None:
            uncertainty = np.where(lost, np.nan, refined.errors).astype(uncertainty.dtype)
        return Findings(replace(images, density=blended, uncertainty=uncertainty), known, facts)

    def _refine_blocks(
        self, density: Array, errors: Array | None, experiment: KnownScan
    ) -> "RefinedBlocks":
        """Refines the blocks of a scan, which is read again, and blends them.

        Args:
            density: `(sy, sx)`, e/Å².
            errors: One standard deviation of its error, if it is known.
            experiment: What is known of the scan.
        """
        height, width = density.shape
        rows = window_slices(height, min(height, SIDE), 1)
        columns = window_slices(width, min(width, SIDE), 1)
        margin = 0
        if max(height, width) > SIDE:
            margin = int(MARGIN * min(height, width, SIDE))
        blend = Blend((height, width), margin)
        blended_errors = Blend((height, width), margin)
        blocks: list[RefinedBlock] = []
        detector_shape = self.prepared.network.conditions.detector_shape
        with (
            self.scan.bands_again() as bands,
            self.note.counter("steps of refinement") as count,
        ):
            for y, strip in zip(rows, strips(bands, self.scan.plan.along_y, rows), strict=True):
                for x in columns:
                    block_density = density[y, x]
                    block_errors = None if errors is None else errors[y, x]
                    facts = None
                    refined = refine(
                        block_density,
                        block_errors,
                        strip[:, x].reshape(*block_density.shape, *detector_shape),
                        experiment,
                        steps=self.setting,
                        fit_columns=self.prepared.options.refine_columns,
                        on_step=count,
                    )
                    if refined is not None:
                        block_density = refined.density
                        block_errors = refined.uncertainty
                        facts = refined.facts
                    blend.add((y, x), block_density[None])
                    if block_errors is not None:
                        blended_errors.add((y, x), block_errors[None])
                    blocks.append(RefinedBlock(y, x, facts))
        mean_errors = None if errors is None else blended_errors.mean()
        return RefinedBlocks(blend.mean(), mean_errors, blocks)


class RefinedBlocks(NamedTuple):
    """The refined blocks of a scan."""

    density: Array  # their mean, `(sy, sx)`, e/Å²
    errors: Array | None  # one standard deviation of its error
    blocks: list["RefinedBlock"]


class RefinedBlock(NamedTuple):
    """A part of a scan that is refined by itself."""

    rows: slice
    columns: slice
    facts: RefinementFacts | None  # `None` where the density has no columns of atoms

    def to_json(self) -> dict[str, object]:
        """Returns the block as a result's file holds it."""
        block: dict[str, object] = {
            "rows": [self.rows.start, self.rows.stop],
            "columns": [self.columns.start, self.columns.stop],
        }
        return block | dict(self.facts or {})


def _whole(image: Array, lost: Array) -> Array:
    """Returns an image, `(ny, nx)`, with the mean of the nearest pixels at lost positions."""
    return np.asarray(filled(image[..., None].astype(np.float64), lost)[..., 0])


def _experiment(
    images: BlendedImages,
    density: Array,
    scan: FittedScan,
    network: ScanNetwork,
    specimen: KnownSpecimen,
) -> KnownScan:
    """Returns what is known of a scan.

    C10 and C12 are those that its patterns show, or the middle of what was learnt. Coma is not: a
    tilt looks like it.
    """
    conditions = network.conditions
    thickness = specimen.thickness_angstrom
    assert thickness is not None
    measured: Mapping[str, float] = images.aberrations or {"C10": sum(network.learnt.limits[0]) / 2}
    lens = {name: measured[name] for name in ("C10", "C12", "phi12") if name in measured}
    lens["C10"] -= thickness / 2  # of the entrance
    beam = BeamSettings(
        conditions.energy_ev, conditions.semiangle_mrad, network.learnt.known | lens
    )
    return KnownScan(
        beam,
        conditions.detector_pixels,
        scan.plan.step_angstrom,
        thickness,
        known_amount(specimen).elements(float(density.mean()) / thickness),
        scan.model.max_q,
        scan.model.experiment.simulation.form_factors,
        max(KnownScan.thickness_error, specimen.thickness_error),
    )


def _line(block: RefinedBlock) -> str:
    """Returns the line about a block."""
    rows = block.rows
    columns = block.columns
    place = f"rows {rows.start} to {rows.stop - 1}, columns {columns.start} to {columns.stop - 1}"
    facts = block.facts
    if facts is None:
        return f"refined: {place}: not at all, for the density does not consist of columns of atoms"
    fitted = _fitted_numbers(facts)
    if "gain_of_columns" not in facts:
        return (
            f"refined: {place}: the divergence of patterns kept out is "
            f"{facts['kept_out_divergence_before']:.3g}; {fitted}"
        ).replace("-", "−")
    gain = facts["gain_of_columns"]
    if not facts["steps"]:
        return (
            f"refined: {place}: the density stays, for columns explain the patterns kept out by "
            f"{100 * gain:.0f} % better than lens, source, thickness and tilt alone, which is not "
            "enough"
        ).replace("-", "−")
    divergence = facts["kept_out_divergence_before"]
    with_columns = facts["kept_out_divergence"]
    text = (
        f"refined: {place}: {facts['steps']} steps; the divergence of patterns kept out is "
        f"{divergence:.3g} by lens, source, thickness and tilt, and {with_columns:.3g} with the "
        f"columns, of whose change {100 * facts['taken']:.0f} % is taken in the mean; {fitted}, "
        f"{facts['amount']:.2f} times the electrons"
    )
    if facts["pairs"]:
        text += f"; {facts['pairs']} maxima of the density are taken for two columns each"
    return text.replace("-", "−")


def _fitted_numbers(block: FittedNumbers) -> str:
    """Returns the fitted lens, source, thickness and tilt of a block, in words."""
    tilt_y, tilt_x = block["tilt_mrad"]
    tilt = math.hypot(tilt_y, tilt_x)
    return (
        f"C10 {block['C10']:.0f} Å, C12 {block['C12']:.0f} Å, C21 {block['C21']:.0f} Å, source "
        f"{block['source_size_angstrom']:.2f} Å, thickness {block['thickness_angstrom']:.0f} Å, "
        f"tilt {tilt:.1f} mrad"
    )
