"""
Zone axes
=========

The same crystal in three directions: SrTiO3 along [001], [011] and [111]. Above the projected
potential, below the pattern of a probe of 8 mrad.
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

figure, axes = plt.subplots(2, 3, figsize=(9, 6), layout="constrained")
for (above, below), zone_axis in zip(axes.T, [(0, 0, 1), (0, 1, 1), (1, 1, 1)], strict=True):
    cell = namsa.make_supercell(
        crystal, zone_axis=zone_axis, lateral_angstrom=(16, 16), thickness_angstrom=50
    )
    sample = namsa.simulate(
        cell.atoms,
        energy_ev=200e3,
        semiangle_mrad=8,
        positions_angstrom=[(0.0, 0.0)],
        detector=namsa.Detector(max_angle_mrad=40),
    )
    size_y, size_x, _ = cell.atoms.cell.lengths()[[1, 0, 2]]
    above.imshow(sample.projected_potential, extent=(0, size_x, size_y, 0))
    above.set(title="[{}{}{}]".format(*zone_axis), xlabel="x (Å)", ylabel="y (Å)")
    pattern = sample.cbed[0]
    below.imshow(pattern**0.25, extent=sample.angles.extent(pattern.shape), cmap="inferno")
    below.set(xlabel="x (mrad)", ylabel="y (mrad)")
plt.show()
