"""
Thermal vibration
=================

Frozen phonons: the pattern is the mean over configurations of displaced atoms. Vibration moves
intensity from the reflections to the background between them, and makes Kikuchi bands.
"""

import matplotlib.pyplot as plt
from ase.build import bulk

import namsa

crystal = bulk("Si", cubic=True)
cell = namsa.make_supercell(
    crystal, zone_axis=(0, 0, 1), lateral_angstrom=(16, 16), thickness_angstrom=100
)

figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
for axis, configurations in zip(axes, (0, 1, 3), strict=True):
    phonons = None
    if configurations:
        phonons = namsa.FrozenPhonons(rms_angstrom=0.078, configurations=configurations)
    sample = namsa.simulate(
        cell.atoms,
        energy_ev=200e3,
        semiangle_mrad=5,
        positions_angstrom=[(0.0, 0.0)],
        frozen_phonons=phonons,
        detector=namsa.Detector(max_angle_mrad=60),
    )
    pattern = sample.cbed[0]
    axis.imshow(pattern**0.25, extent=sample.angles.extent(pattern.shape), vmax=0.25)
    title = f"{configurations} configurations" if configurations else "atoms at rest"
    axis.set(title=title, xlabel="x (mrad)")
axes[0].set_ylabel("y (mrad)")
plt.show()
