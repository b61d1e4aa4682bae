"""
The size of the source
======================

An extended source blurs images. Here the dark field of gold is shown for a point and for sources of
0.4 and 0.8 Å (full width at half maximum).
"""

import matplotlib.pyplot as plt
from ase.build import bulk

import namsa

cell = namsa.make_supercell(
    bulk("Au", cubic=True),
    zone_axis=(0, 0, 1),
    lateral_angstrom=(8, 8),
    thickness_angstrom=20,
)

figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
for axis, source_size_angstrom in zip(axes, (0.0, 0.4, 0.8), strict=True):
    sample = namsa.simulate(
        cell.atoms,
        energy_ev=300e3,
        semiangle_mrad=20,
        scan=(12, 12),
        source_size_angstrom=source_size_angstrom,
        detector=namsa.Detector(max_angle_mrad=60),
    )
    shown = axis.imshow(sample.annular(40, 60), extent=(0, 8.2, 8.2, 0), cmap="gray", vmin=0)
    axis.set(title=f"source of {source_size_angstrom} Å", xlabel="x (Å)")
    figure.colorbar(shown, ax=axis, label="fraction of the beam")
axes[0].set_ylabel("y (Å)")
plt.show()
