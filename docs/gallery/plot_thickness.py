"""
Patterns by thickness
=====================

One supercell period of gold along [001] is repeated, and the pattern is that of each thickness.
Intensity moves from the central disk to the diffracted disks. The atoms stand still, so that there
are no Kikuchi bands. The square root of the intensity is shown, on one scale.
"""

import matplotlib.pyplot as plt
from ase.build import bulk

import namsa

crystal = bulk("Au", cubic=True)
detector = namsa.Detector(max_angle_mrad=50)

figure, axes = plt.subplots(1, 4, figsize=(12, 3.2), layout="constrained")
for axis, thickness_angstrom in zip(axes, (20, 60, 120, 240), strict=True):
    cell = namsa.make_supercell(
        crystal,
        zone_axis=(0, 0, 1),
        lateral_angstrom=(16, 16),
        thickness_angstrom=thickness_angstrom,
    )
    sample = namsa.simulate(
        cell.atoms,
        energy_ev=300e3,
        semiangle_mrad=6,
        positions_angstrom=[(0.0, 0.0)],
        detector=detector,
    )
    pattern = sample.cbed[0]
    axis.imshow(pattern**0.5, vmax=0.05, extent=sample.angles.extent(pattern.shape))
    axis.set(title=f"{cell.atoms.cell.lengths()[2]:.0f} Å", xlabel="x (mrad)")
axes[0].set_ylabel("y (mrad)")
plt.show()
