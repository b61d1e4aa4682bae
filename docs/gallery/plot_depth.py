"""
The density by depth
====================

The projected electron density, and that of four layers along the beam. The specimen is a stack: a
crystal below an amorphous layer. Images are blurred by four pixels.
"""

import matplotlib.pyplot as plt
from ase.build import bulk
from scipy.ndimage import gaussian_filter

import namsa

specimen = namsa.make_specimen(
    bulk("Si", cubic=True),
    "amorphous_layer",
    zone_axis=(0, 0, 1),
    lateral_angstrom=(16, 22),
    thickness_angstrom=60,
    seed=2,
)
sample = namsa.simulate(
    specimen.atoms,
    energy_ev=200e3,
    semiangle_mrad=20,
    positions_angstrom=[(0.0, 0.0)],
    depth_bins=4,
)

figure, axes = plt.subplots(1, 5, figsize=(15, 2.8), layout="constrained")
images = [sample.density, *sample.density_by_depth]
titles = ["all"] + [f"layer {number} of 4" for number in range(1, 5)]
for axis, image, title in zip(axes, images, titles, strict=True):
    shown = axis.imshow(gaussian_filter(image, 4, mode="wrap"), cmap="viridis")
    axis.set(title=title, xticks=[], yticks=[])
    figure.colorbar(shown, ax=axis, label="e/Å²")
plt.show()
