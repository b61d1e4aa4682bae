"""
A focal series
==============

The bright field of a thin film of MoS2 through focus. C10 is minus the defocus, in Å: a negative
C10 is an underfocused lens. The contrast reverses through focus.
"""

import matplotlib.pyplot as plt
from ase.build import mx2

import namsa

layer = mx2("MoS2", a=3.18, thickness=3.19, vacuum=3)
layer.pbc = True
cell = namsa.make_supercell(
    layer, zone_axis=(0, 0, 1), lateral_angstrom=(16, 16), thickness_angstrom=9
)

figure, axes = plt.subplots(1, 5, figsize=(14, 3.2), layout="constrained")
for axis, c10_angstrom in zip(axes, (-80, -40, 0, 40, 80), strict=True):
    sample = namsa.simulate(
        cell.atoms,
        energy_ev=80e3,
        semiangle_mrad=25,
        scan=(40, 36),
        aberrations={"C10": c10_angstrom},
        detector=namsa.Detector(max_angle_mrad=40),
    )
    axis.imshow(sample.annular(0, 8), cmap="gray")
    axis.set(title=f"C10 = {c10_angstrom} Å", xticks=[], yticks=[])
plt.show()
