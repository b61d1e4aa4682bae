"""
The position-averaged pattern (PACBED)
======================================

The mean pattern over a unit cell depends on the thickness, and hardly on the source's size and the
focus. `namsa.pacbed` computes it for many thicknesses at once.
"""

import matplotlib.pyplot as plt
from ase import spacegroup

import namsa
from namsa.pacbed import position_averaged

crystal = spacegroup.crystal(
    ["Sr", "Ti", "O"],
    [(0, 0, 0), (0.5, 0.5, 0.5), (0.5, 0.5, 0)],
    spacegroup=221,
    cellpar=[3.905, 3.905, 3.905, 90, 90, 90],
)
thicknesses_angstrom = [15, 30, 45, 60]
cell = namsa.make_supercell(
    crystal, zone_axis=(0, 0, 1), lateral_angstrom=(12, 12), thickness_angstrom=60
)
patterns = position_averaged(
    cell.atoms,
    energy_ev=200e3,
    semiangle_mrad=20,
    detector=namsa.Detector(max_angle_mrad=40),
    thicknesses_angstrom=[min(t, cell.atoms.cell.lengths()[2]) for t in thicknesses_angstrom],
    frozen_phonons=namsa.FrozenPhonons(rms_angstrom=0.08),
)

figure, axes = plt.subplots(1, 4, figsize=(13, 3.4), layout="constrained")
for axis, pattern, thickness_angstrom in zip(axes, patterns, thicknesses_angstrom, strict=True):
    axis.imshow(pattern**0.5, cmap="magma", extent=(-40, 40, 40, -40))
    axis.set(title=f"{thickness_angstrom} Å", xlabel="x (mrad)")
axes[0].set_ylabel("y (mrad)")
plt.show()
