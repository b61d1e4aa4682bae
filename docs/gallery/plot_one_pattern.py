"""
One pattern of a crystal
========================

A convergent-beam pattern (CBED) of GaN along [001], 100 Å thick. Each disk is a reflection; the
pattern in the disks is the interference of multiply scattered electrons. The scale is logarithmic,
in fractions of the beam per pixel.
"""

import matplotlib.pyplot as plt
from ase.build import bulk
from matplotlib.colors import LogNorm

import namsa

crystal = bulk("GaN", "wurtzite", a=3.19, c=5.19)
cell = namsa.make_supercell(
    crystal, zone_axis=(0, 0, 1), lateral_angstrom=(19, 19), thickness_angstrom=100
)
sample = namsa.simulate(
    cell.atoms,
    energy_ev=200e3,
    semiangle_mrad=5,
    positions_angstrom=[(3.0, 4.0)],
    frozen_phonons=namsa.FrozenPhonons(rms_angstrom=0.07, configurations=2),
    detector=namsa.Detector(max_angle_mrad=40),
)
pattern = sample.cbed[0]
reach = sample.angles.extent(pattern.shape)

figure, axes = plt.subplots(figsize=(5, 4))
image = axes.imshow(pattern, norm=LogNorm(1e-8, pattern.max()), extent=reach)
axes.set(xlabel="x (mrad)", ylabel="y (mrad)", title="GaN [001], 100 Å")
figure.colorbar(image, label="fraction of the beam per pixel")
plt.show()
