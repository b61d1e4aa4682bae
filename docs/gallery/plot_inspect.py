"""
The calibration of a scan from its own patterns
===============================================

A scan is simulated, and stored as a detector gives it: counts, a beam beside the middle, hot
pixels. `namsa.inspect` finds the disk, its centre and the bad pixels.
"""

import matplotlib.pyplot as plt
import numpy as np
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
sample = namsa.simulate(
    cell.atoms,
    energy_ev=200e3,
    semiangle_mrad=20,
    scan=namsa.Scan(shape=(12, 14), step_angstrom=(0.5, 0.5)),
    detector=namsa.Detector(shape=(56, 56), pixel_mrad=1.7, electrons_per_pattern=2e4),
)
counts = np.rint(sample.stack * 2e4).astype(np.uint16)
counts = np.roll(counts, (3, -5), axis=(2, 3))
counts[..., 10, 44] = 900

result = namsa.inspect(
    counts, energy_ev=200e3, pixel_mrad=(1.7, 1.7), scan_step_angstrom=(0.5, 0.5)
)
print(result)

figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
axes[0].imshow(counts.mean(axis=(0, 1)), vmax=60)
axes[0].set_title("mean of the raw counts")
axes[1].imshow(result.pattern, vmax=60)
centre_y, centre_x = result.calibration.value("centre_pixels")
axes[1].plot(centre_x, centre_y, "+", color="red")
axes[1].set_title("bad pixels replaced, centre marked")
plt.show()
