"""
Segmented detectors
===================

A detector of four quadrants. The difference of opposite segments is a differential phase contrast;
any other shape is a mask or a function of the angles.
"""

import matplotlib.pyplot as plt
import numpy as np
from ase import spacegroup

import namsa

crystal = spacegroup.crystal(
    ["Sr", "Ti", "O"],
    [(0, 0, 0), (0.5, 0.5, 0.5), (0.5, 0.5, 0)],
    spacegroup=221,
    cellpar=[3.905, 3.905, 3.905, 90, 90, 90],
)
cell = namsa.make_supercell(
    crystal, zone_axis=(0, 0, 1), lateral_angstrom=(16, 16), thickness_angstrom=50
)
sample = namsa.simulate(
    cell.atoms,
    energy_ev=200e3,
    semiangle_mrad=20,
    scan=(20, 20),
    detector=namsa.Detector(max_angle_mrad=60),
)
quadrants = sample.segmented(0, 20, count=4, rotation_deg=45)
lower_left = sample.detect(lambda y, x: (y > 0) & (x < 0) & (np.hypot(y, x) < 20))

figure, axes = plt.subplots(1, 4, figsize=(13, 3.2), layout="constrained")
images = {
    "segment 0": quadrants[..., 0],
    "segment 0 − segment 2": quadrants[..., 0] - quadrants[..., 2],
    "segment 1 − segment 3": quadrants[..., 1] - quadrants[..., 3],
    "y > 0, x < 0": lower_left,
}
for axis, (title, image) in zip(axes, images.items(), strict=True):
    shown = axis.imshow(image, extent=(0, 15.6, 15.6, 0), cmap="gray")
    axis.set(title=title, xlabel="x (Å)")
    figure.colorbar(shown, ax=axis)
plt.show()
