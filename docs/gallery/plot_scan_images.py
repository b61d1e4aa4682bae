"""
Images of virtual detectors
===========================

A scan of SrTiO3, 50 Å thick, and what detectors of different angles make of it. The atoms stand
still, as at zero temperature: the ring of 65 to 90 mrad then has channelling contrast, and thermal
vibration changes it (see the example on vibration).
"""

import matplotlib.pyplot as plt
from ase import spacegroup

import namsa

crystal = spacegroup.crystal(
    ["Sr", "Ti", "O"],
    [(0, 0, 0), (0.5, 0.5, 0.5), (0.5, 0.5, 0)],
    spacegroup=221,
    cellpar=[3.905, 3.905, 3.905, 90, 90, 90],
)
cell = namsa.make_supercell(
    crystal, zone_axis=(0, 0, 1), lateral_angstrom=(12, 12), thickness_angstrom=50
)
sample = namsa.simulate(
    cell.atoms,
    energy_ev=200e3,
    semiangle_mrad=20,
    scan=namsa.Scan(shape=(14, 18), step_angstrom=(0.43, 0.43)),
    detector=namsa.Detector(max_angle_mrad=90),
)
images = {
    "bright field, 0 to 20 mrad": sample.bright_field(),
    "annular bright field, 10 to 20 mrad": sample.annular(10, 20),
    "dark field, 25 to 60 mrad": sample.annular(25, 60),
    "dark field, 65 to 90 mrad": sample.annular(65, 90),
}

figure, axes = plt.subplots(2, 2, figsize=(9, 6.5), layout="constrained")
for axis, (title, image) in zip(axes.flat, images.items(), strict=True):
    shown = axis.imshow(image, extent=(0, 7.74, 6.02, 0), cmap="gray", interpolation="bicubic")
    axis.set(title=title, xlabel="x (Å)", ylabel="y (Å)")
    figure.colorbar(shown, ax=axis, label="fraction of the beam")
plt.show()
