"""
Twisted layers
==============

Two layers of MoS2 turned against each other by 13.2°, in a cell that both fit, and their moiré in
dark field.
"""

import matplotlib.pyplot as plt
from ase.build import mx2

import namsa

layer = mx2("MoS2", a=3.18, thickness=3.19, vacuum=1.5)
bilayer = namsa.make_twisted_bilayer(layer, layer, angle_deg=13.17)
sample = namsa.simulate(
    bilayer.atoms,
    energy_ev=80e3,
    semiangle_mrad=25,
    scan=namsa.Scan(shape=(36, 48), step_angstrom=(0.5, 0.5)),
    detector=namsa.Detector(max_angle_mrad=80),
)

figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
axes[0].imshow(sample.projected_potential, cmap="magma")
axes[0].set(title="projected potential of the cell (V·Å)", xticks=[], yticks=[])
axes[1].imshow(sample.annular(40, 80), extent=(0, 24, 18, 0), cmap="gray")
axes[1].set(title="dark field, 40 to 80 mrad", xlabel="x (Å)", ylabel="y (Å)")
plt.show()
