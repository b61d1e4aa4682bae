"""
Specimens with defects
======================

`namsa.make_specimen` draws boundaries, grains, precipitates, steps and amorphous layers from a
seed. The projected potential of six kinds is shown, on a scale of square roots.
"""

import matplotlib.pyplot as plt
from ase.build import bulk

import namsa

kinds = ("vacancies", "twin", "boundary", "grain", "step", "amorphous")

figure, axes = plt.subplots(2, 3, figsize=(10, 6.5), layout="constrained")
for axis, kind in zip(axes.flat, kinds, strict=True):
    specimen = namsa.make_specimen(
        bulk("Al", cubic=True),
        kind,
        zone_axis=(0, 1, 1) if kind == "twin" else (0, 0, 1),
        lateral_angstrom=(30, 30),
        thickness_angstrom=24,
        seed=3,
    )
    sample = namsa.simulate(
        specimen.atoms,
        energy_ev=200e3,
        semiangle_mrad=20,
        positions_angstrom=[(0.0, 0.0)],
        sampling=0.15,  # no pattern is drawn: the pixels of the potential will do
        slice_thickness_angstrom=4,
    )
    image = axis.imshow(sample.projected_potential**0.5, cmap="magma")
    axis.set(title=kind, xticks=[], yticks=[])
    figure.colorbar(image, ax=axis, label="√(V·Å)")
plt.show()
