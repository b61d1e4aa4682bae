"""
The density by depth
====================

The projected electron density, and that of four layers along the beam. The specimen is a stack: a
crystal below an amorphous layer. Frequencies above 1.25 1/Å are left out, as in densities of the
package's networks.
"""

import matplotlib.pyplot as plt
from ase.build import bulk

import namsa
from namsa.physics.density_target import band_limited, on_grid
from namsa.physics.grid import Grid

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
grid = Grid(sample.density.shape, tuple(sample.provenance["extent_angstrom"]))
titles = ["all"] + [f"layer {number} of 4" for number in range(1, 5)]
for axis, image, title in zip(axes, images, titles, strict=True):
    coefficients = band_limited(image.astype("float64"), grid, 1.25)
    shown = axis.imshow(on_grid(coefficients), cmap="viridis")
    axis.set(title=title, xticks=[], yticks=[])
    figure.colorbar(shown, ax=axis, label="e/Å²")
thickness = sample.provenance["thickness_angstrom"]
figure.suptitle(f"Si, {thickness:.1f} Å thick, details of 0.8 Å, no noise")
plt.show()
