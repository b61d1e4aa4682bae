"""
Centre of mass and its integral
===============================

The mean deflection of each pattern (DPC) points towards the atoms. Its integral (iCoM) is an image
of the projected potential of a thin specimen.
"""

import matplotlib.pyplot as plt
import numpy as np
from ase import spacegroup

import namsa
from namsa.physics.optics import wavelength_angstrom

crystal = spacegroup.crystal(
    ["Sr", "Ti", "O"],
    [(0, 0, 0), (0.5, 0.5, 0.5), (0.5, 0.5, 0)],
    spacegroup=221,
    cellpar=[3.905, 3.905, 3.905, 90, 90, 90],
)
cell = namsa.make_supercell(
    crystal, zone_axis=(0, 0, 1), lateral_angstrom=(12, 12), thickness_angstrom=12
)
sample = namsa.simulate(
    cell.atoms,
    energy_ev=200e3,
    semiangle_mrad=25,
    scan=(36, 36),
    detector=namsa.Detector(max_angle_mrad=60),
)
deflection = sample.centre_of_mass()
step = cell.atoms.cell.lengths()[:2] / 36
phase = namsa.integrated_centre_of_mass(deflection, tuple(step), wavelength_angstrom(200e3))

figure, axes = plt.subplots(1, 4, figsize=(13, 3.2), layout="constrained")
images = {
    "deflection along y (mrad)": deflection[..., 0],
    "deflection along x (mrad)": deflection[..., 1],
    "its length (mrad)": np.hypot(*np.moveaxis(deflection, -1, 0)),
    "integral (rad)": phase,
}
for axis, (title, image) in zip(axes, images.items(), strict=True):
    shown = axis.imshow(image, extent=(0, 11.7, 11.7, 0), cmap="gray")
    axis.set(title=title, xlabel="x (Å)")
    figure.colorbar(shown, ax=axis)
axes[0].set_ylabel("y (Å)")
plt.show()
