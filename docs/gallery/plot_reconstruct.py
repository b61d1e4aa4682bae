"""
The density from the patterns
=============================

A network that comes with the package reconstructs the projected electron density from patterns
alone, with an uncertainty for each pixel. GaN is no training material of this network.
"""

import tempfile

import matplotlib.pyplot as plt
from ase.build import bulk

import namsa
import namsa_train

cell = namsa.make_supercell(
    bulk("GaN", "wurtzite", a=3.19, c=5.19),
    zone_axis=(0, 0, 1),
    lateral_angstrom=(12, 12),
    thickness_angstrom=40,
)
sample = namsa.simulate(
    cell.atoms,
    energy_ev=200e3,
    semiangle_mrad=20,
    scan=namsa.Scan(shape=(24, 24), step_angstrom=(0.4, 0.4)),
    detector=namsa.Detector(shape=(49, 49), pixel_mrad=2),
)
with tempfile.TemporaryDirectory() as folder:
    sample.save(f"{folder}/gan.h5")
    result = namsa_train.reconstruct(f"{folder}/gan.h5", "200kv-20mrad-fast")

figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
images = {"reconstructed density": result.density, "its uncertainty": result.uncertainty}
for axis, (title, image) in zip(axes, images.items(), strict=True):
    shown = axis.imshow(image, extent=result.pixels.extent(image.shape))
    axis.set(title=title, xlabel="x (Å)", ylabel="y (Å)")
    figure.colorbar(shown, ax=axis, label="e/Å²")
thickness = sample.provenance["thickness_angstrom"]
figure.suptitle(f"GaN, {thickness:.1f} Å thick, details of 0.8 Å, no noise")
plt.show()
