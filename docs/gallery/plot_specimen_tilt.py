"""
A tilted specimen
=================

The pattern of silicon along [001], and with two tilts of the specimen. The bright reflections lie
on the Laue circle, which moves with the tilt.
"""

import matplotlib.pyplot as plt
from ase.build import bulk

import namsa

cell = namsa.make_supercell(
    bulk("Si", cubic=True), zone_axis=(0, 0, 1), lateral_angstrom=(27, 27), thickness_angstrom=400
)

figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
for axis, tilt_mrad in zip(axes, [(0.0, 0.0), (0.0, 10.0), (10.0, 20.0)], strict=True):
    sample = namsa.simulate(
        cell.atoms,
        energy_ev=200e3,
        semiangle_mrad=3,
        positions_angstrom=[(0.0, 0.0)],
        specimen_tilt_mrad=tilt_mrad,
        detector=namsa.Detector(max_angle_mrad=60),
    )
    pattern = sample.cbed[0]
    axis.imshow(pattern**0.25, extent=sample.angles.extent(pattern.shape))
    axis.set(title=f"tilt (y, x) = {tilt_mrad} mrad", xlabel="x (mrad)")
axes[0].set_ylabel("y (mrad)")
plt.show()
