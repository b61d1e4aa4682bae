"""Controls of a page that set optic axis, disk, rotation and mirror by hand."""

from typing import NamedTuple

import numpy as np

from namsa.base.arrays import Pair
from namsa.base.names import portable_path
from namsa.base.pixels import PixelGrid
from namsa.io.recording import Recording


class ByHand(NamedTuple):
    """Calibration of a scan, on the detector as it is stored. Pairs are (y, x)."""

    file: str  # name of the scan
    energy_ev: float | None
    semiangle_mrad: float | None
    scan_step_angstrom: Pair | None
    pixel_mrad: Pair | None
    centre_pixels: Pair  # where the page's angles are 0
    disk_radius_pixels: float
    rotation_deg: float
    mirrored: bool
    bad_pixels: tuple[tuple[int, int], ...]
    page_step: Pair  # of a stored pixel, in units of the page's angles


def by_hand_of(recording: Recording, angles: PixelGrid, disk: float) -> ByHand:
    """Returns what a recording says.

    Args:
        angles: The pixels of the patterns as they are read, about the optic axis.
        disk: Radius of the bright disk, in the same units.
    """
    window = recording.window
    binning = 1 if window is None else window.binning
    step_y, step_x = angles.step
    centre = -angles.origin[0] / step_y, -angles.origin[1] / step_x
    bad_pixels = recording.bad_pixels
    if window is not None:
        centre = window.stored_pixel_of(centre)
        bad_pixels = window.stored_bad_pixels
    pixel = recording.pixel_mrad
    return ByHand(
        file=portable_path(recording.name),
        energy_ev=recording.energy_ev,
        semiangle_mrad=recording.semiangle_mrad,
        scan_step_angstrom=recording.scan_step_angstrom,
        pixel_mrad=None if pixel is None else (pixel[0] / binning, pixel[1] / binning),
        centre_pixels=centre,
        disk_radius_pixels=float(binning * disk / np.sqrt(step_y * step_x)),
        rotation_deg=recording.rotation_deg or 0.0,
        mirrored=bool(recording.flip),
        bad_pixels=bad_pixels,
        page_step=(step_y / binning, step_x / binning),
    )


def as_json(by_hand: ByHand | None) -> dict[str, object] | None:
    """Returns the same in JSON types."""
    return None if by_hand is None else by_hand._asdict()
