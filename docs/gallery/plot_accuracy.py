"""
Accuracy of a simulation
========================

`namsa.check_convergence` simulates some patterns again on finer pixels and slices. Pixels and
slices that the program chooses keep the error below `accuracy`; coarse ones do not.
"""

import matplotlib.pyplot as plt
from ase.build import bulk

import namsa

cell = namsa.make_supercell(
    bulk("Au", cubic=True), zone_axis=(0, 0, 1), lateral_angstrom=(12, 12), thickness_angstrom=20
)
cases = {
    "chosen": {},
    "slices of 4 Å": {"slice_thickness_angstrom": 4.1},
    "pixels of 0.16 Å": {"sampling": 0.16},
}
errors = [
    namsa.check_convergence(
        cell.atoms,
        energy_ev=200e3,
        semiangle_mrad=20,
        detector=namsa.Detector(max_angle_mrad=60),
        **settings,
    ).error
    for settings in cases.values()
]

figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
axes.barh(list(cases), [100 * error for error in errors])
axes.axvline(1, color="black", linestyle=":")
axes.set(xlabel="error of the patterns within 60 mrad (%)", xscale="log")
plt.show()
