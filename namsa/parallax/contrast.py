"""The contrast of an aligned bright-field image, and its reversals undone.

A thin specimen with the phase φ has the aligned image 1 + 2 sin χ(k) φ(k) at frequencies k that the
aperture passes on both sides, with χ of focus and astigmatism at the angle λk; at higher ones, up
to twice the aperture's, less with the same sign. The shifts of the images undo the linear terms of
χ, so that coma changes the sharpness and not the sign.
"""

from collections.abc import Mapping

import numpy as np

from namsa.base.arrays import Floats
from namsa.physics.optics import aberration_phase

EVEN = ("C10", "C12", "phi12", "C30", "C32", "phi32", "C34", "phi34")


def phase_flipped(
    relative: Floats, sampling_angstrom: Floats, wavelength: float, lens: Mapping[str, float]
) -> Floats:
    """Returns an aligned image with the contrast that high potentials give at low frequencies, with
    their sign, at all frequencies: bright where the potential is high.

    The image is continued beyond its edges by reflection.

    Args:
        relative: The image about its mean, `(ny, nx)`.
        sampling_angstrom: Of its pixels, (y, x), Å.
        wavelength: Å.
        lens: Aberrations, Å and rad.
    """
    ny, nx = relative.shape
    margin_y = ny // 2
    margin_x = nx // 2
    extended = np.pad(relative, ((margin_y, margin_y), (margin_x, margin_x)), mode="reflect")
    ky = np.fft.fftfreq(extended.shape[0], sampling_angstrom[0])[:, None]
    kx = np.fft.rfftfreq(extended.shape[1], sampling_angstrom[1])[None, :]
    even = {name: value for name, value in lens.items() if name in EVEN}
    angle = wavelength * np.hypot(ky, kx)
    phase = aberration_phase(angle, np.arctan2(ky, kx + 0 * ky), wavelength, even)
    spectrum = np.fft.rfft2(extended) * np.sign(np.sin(phase))
    flipped = np.fft.irfft2(spectrum, extended.shape)
    return np.asarray(flipped[margin_y : margin_y + ny, margin_x : margin_x + nx])
