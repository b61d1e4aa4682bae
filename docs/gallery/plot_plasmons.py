"""
Plasmons
========

Inelastic scattering by plasmons adds a blurred copy of each pattern. The mean free path is given;
here it is a third of the thickness, far more than in most experiments.
"""

import matplotlib.pyplot as plt
from ase.build import bulk

import namsa

cell = namsa.make_supercell(
    bulk("Si", cubic=True), zone_axis=(0, 0, 1), lateral_angstrom=(22, 22), thickness_angstrom=150
)

figure, axes = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
cases = {"elastic": None, "with plasmons": namsa.Plasmons(mean_free_path_angstrom=50)}
for axis, (title, plasmons) in zip(axes, cases.items(), strict=True):
    sample = namsa.simulate(
        cell.atoms,
        energy_ev=200e3,
        semiangle_mrad=3,
        positions_angstrom=[(0.0, 0.0)],
        plasmons=plasmons,
        detector=namsa.Detector(max_angle_mrad=30),
    )
    pattern = sample.cbed[0]
    axis.imshow(pattern**0.2, extent=sample.angles.extent(pattern.shape), vmax=0.4)
    axis.set(title=title, xlabel="x (mrad)")
axes[0].set_ylabel("y (mrad)")
plt.show()
