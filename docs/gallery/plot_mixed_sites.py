"""
Mixed occupations
=================

Si0.5Ge0.5 as a virtual crystal, whose atoms are the mean of both elements, and as a random alloy.
The dark field of the alloy differs from column to column, and is larger: disorder scatters
diffusely, and its atoms stand still here, so that the virtual crystal has no diffuse scattering.
"""

import matplotlib.pyplot as plt
from ase.build import bulk

import namsa

crystal = bulk("Si", cubic=True)
virtual = crystal + crystal
virtual.symbols[len(crystal) :] = "Ge"
virtual.arrays["occupancy"] = 0.5 * (virtual.numbers > 0)
cell = namsa.make_supercell(
    virtual, zone_axis=(0, 1, 1), lateral_angstrom=(16, 16), thickness_angstrom=40
)
(alloy,) = namsa.random_occupations(cell.atoms, 1, seed=4)

figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
for axis, (title, atoms) in zip(
    axes, {"virtual crystal": cell.atoms, "random alloy": alloy}.items(), strict=True
):
    sample = namsa.simulate(
        atoms,
        energy_ev=200e3,
        semiangle_mrad=25,
        scan=(20, 20),
        detector=namsa.Detector(max_angle_mrad=80),
    )
    shown = axis.imshow(sample.annular(50, 80), cmap="gray", vmin=0)
    axis.set(title=title, xticks=[], yticks=[])
    figure.colorbar(shown, ax=axis, label="fraction of the beam")
plt.show()
