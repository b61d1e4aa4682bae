"""
Dose and a detector's blur
==========================

The same pattern with infinite dose, with 10⁵, 10³ and 100 electrons, and with the point spread of a
detector of 0.6 pixels.
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
    crystal, zone_axis=(0, 0, 1), lateral_angstrom=(16, 16), thickness_angstrom=50
)
cases = {
    "infinite dose": namsa.Detector(max_angle_mrad=50),
    "point spread of 0.6 pixels": namsa.Detector(max_angle_mrad=50, point_spread_pixels=0.6),
    "10⁵ electrons": namsa.Detector(max_angle_mrad=50, electrons_per_pattern=1e5),
    "10³ electrons": namsa.Detector(max_angle_mrad=50, electrons_per_pattern=1e3),
    "100 electrons": namsa.Detector(max_angle_mrad=50, electrons_per_pattern=100),
}

figure, axes = plt.subplots(1, 5, figsize=(14, 3.2), layout="constrained")
for axis, (title, detector) in zip(axes, cases.items(), strict=True):
    sample = namsa.simulate(
        cell.atoms,
        energy_ev=200e3,
        semiangle_mrad=20,
        positions_angstrom=[(1.0, 0.6)],
        detector=detector,
        seed=1,
    )
    pattern = sample.cbed[0]
    axis.imshow(pattern**0.5, extent=sample.angles.extent(pattern.shape))
    axis.set(title=title, xlabel="x (mrad)")
axes[0].set_ylabel("y (mrad)")
plt.show()
