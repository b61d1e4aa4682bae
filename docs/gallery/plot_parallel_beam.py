"""
A nearly parallel beam
======================

Nanobeam diffraction of two layers of graphene, turned by 21.8°: spots of both layers and, weak,
those of double scattering.
"""

import matplotlib.pyplot as plt
from ase.build import graphene

import namsa

layer = graphene(a=2.46, vacuum=1.7)
bilayer = namsa.make_twisted_bilayer(layer, layer, angle_deg=21.79, lateral_angstrom=(40, 40))
sample = namsa.simulate(
    bilayer.atoms,
    energy_ev=80e3,
    semiangle_mrad=1.5,
    positions_angstrom=[(0.0, 0.0)],
    detector=namsa.Detector(max_angle_mrad=45),
)
pattern = sample.cbed[0]

figure, axes = plt.subplots(figsize=(5, 4.5), layout="constrained")
axes.imshow(pattern**0.2, extent=sample.angles.extent(pattern.shape), cmap="inferno")
axes.set(title="twisted graphene, 80 kV, 1.5 mrad", xlabel="x (mrad)", ylabel="y (mrad)")
plt.show()
