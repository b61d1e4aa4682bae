"""
A Ronchigram
============

The pattern of an amorphous film with a wide aperture and a defocused lens with spherical
aberration: the shadow image by which microscopists align their lens.
"""

import matplotlib.pyplot as plt
from ase.build import bulk

import namsa

film = namsa.make_specimen(
    bulk("C", "diamond", cubic=True),
    "amorphous",
    zone_axis=(0, 0, 1),
    lateral_angstrom=(48, 48),
    thickness_angstrom=12,
    seed=5,
)
cases = {
    "astigmatic": {"C10": -500.0, "C12": 200.0, "C30": 1.0e6},
    "corrected": {"C10": -500.0, "C30": 1.0e6},
}

figure, axes = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained")
for axis, (title, aberrations) in zip(axes, cases.items(), strict=True):
    sample = namsa.simulate(
        film.atoms,
        energy_ev=200e3,
        semiangle_mrad=30,
        positions_angstrom=[(24.0, 24.0)],
        aberrations=aberrations,
        detector=namsa.Detector(max_angle_mrad=35),
    )
    pattern = sample.cbed[0]
    axis.imshow(pattern, extent=sample.angles.extent(pattern.shape), cmap="gray")
    axis.set(title=title, xlabel="x (mrad)", ylabel="y (mrad)")
plt.show()
