"""From strips of patterns to images: predicts every window of the scan and blends the
predictions.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from namsa.base.arrays import Array

from ....apply import tiles
from ....apply.reading import AddNote
from ..trust.consistency import contrast_line
from ..trust.familiarity import UNFAMILIAR, is_outside
from ..trust.intensities import scaled_line
from ..trust.orientation import orientation_line
from .scan_images import BlendedImages, ScanImages


def predict_images(
    bands: Iterator[Array],  # the scan's rows, from `train.apply.reading.read_bands`
    images: ScanImages,  # before the first strip
    note: AddNote,
    # Are given the rows of each strip, and the strip.
    observers: Sequence[Callable[[slice, Array], None]] = (),
) -> BlendedImages:
    """Predicts the images of a scan from all windows.

    Raises:
        InputError: If too much of the intensity is negative, or a prediction is not finite.
    """
    strips = tiles.strips(bands, images.plan.along_y, images.rows)
    for rows, strip in zip(images.rows, strips, strict=True):
        images.add(strip)
        for observe in observers:
            observe(rows, strip)
    blended = images.blended()
    note_findings(images, blended, note)
    return blended


def note_findings(images: ScanImages, blended: BlendedImages, note: AddNote) -> None:
    """Adds lines about intensities, aberrations, orientation, familiarity and contrast, after all
    strips.
    """
    negative, total = images.intensity
    if negative:
        note(f"negative intensities, {100 * negative / total:.2g} % of all, counted as none")
    note(
        "intensities: tails of the detector's point spread are not known, and what they spread out "
        "of the bright disk counts as scattered"
    )
    note(
        "density: even layers of light atoms (support, contamination) are hardly seen: 30 Å of "
        "carbon are 18 e/Å², which the uncertainty leaves out"
    )
    note(images.aberrations.line(blended.aberrations))
    contradiction = orientation_line(blended.orientation)
    if contradiction:
        note(contradiction)
    scaled = scaled_line(blended.intensities)
    if scaled:
        note(scaled)
    flagged, windows = images.counts
    if windows:
        note(familiarity_note(flagged / windows, blended.familiarity))
    unresolved = contrast_line(blended.error_over_contrast or 0.0)
    if unresolved:
        note(unresolved)


def familiarity_note(flagged: float, familiarity: Array | None) -> str:
    """Returns the line about familiarity.

    Args:
        flagged: Fraction of the windows that are not familiar.
        familiarity: Of each place, `(ny, nx)`; NaN where a pattern is lost.
    """
    if is_outside(flagged):
        return (
            f"familiarity: this scan lies outside of what the network learnt: {100 * flagged:.0f} "
            "% of its windows do not look like the training data. Do not rely on its density or "
            "uncertainty; check the calibration"
        )
    if familiarity is None or np.isnan(familiarity).all():
        return f"familiarity: {100 * flagged:.0f} % of the windows are flagged"
    return (
        f"familiarity: {np.nanmedian(familiarity):.2f} in the median, where unseen crystals of the "
        f"training's conditions have 0.5; {100 * flagged:.0f} % of the windows are flagged, below "
        f"{UNFAMILIAR}"
    )
