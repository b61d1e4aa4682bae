"""
Aberrations of the probe
========================

The intensity of a probe of 20 mrad at 200 kV, with one aberration in each panel. Coefficients are
Krivanek's, in Å; C10 is minus the defocus. A cross marks the probe's position.
"""

import matplotlib.pyplot as plt
import numpy as np

from namsa.physics.grid import Grid
from namsa.physics.optics import BeamSettings, lens, probes

grid = Grid(shape=(320, 320), extent_angstrom=(40.0, 40.0))
position = np.array([[20.0, 20.0]])
cases = {
    "none": {},
    "defocus, C10 = -150 Å": {"C10": -150.0},
    "astigmatism, C12 = 80 Å": {"C12": 80.0},
    "coma, C21 = 8000 Å": {"C21": 8000.0},
    "threefold, C23 = 8000 Å": {"C23": 8000.0},
    "spherical, C30 = 0.1 mm": {"C30": 1.0e6},
}

figure, axes = plt.subplots(2, 3, figsize=(9, 6), layout="constrained")
for axis, (title, aberrations) in zip(axes.flat, cases.items(), strict=True):
    beam = BeamSettings(energy_ev=200e3, semiangle_mrad=20, aberrations=aberrations)
    (wave,) = np.fft.ifft2(probes(lens(grid, beam), grid, position))
    intensity = abs(wave) ** 2
    axis.imshow(intensity**0.5, extent=(0, 40, 40, 0), cmap="magma")
    axis.plot(20, 20, "+", color="white")
    axis.set(title=title, xlabel="x (Å)", ylabel="y (Å)", xlim=(12, 28), ylim=(28, 12))
plt.show()
