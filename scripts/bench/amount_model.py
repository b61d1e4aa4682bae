"""The error of the model by which `reconstruct --pacbed` finds the amount, at the true thickness and amount.

    scripts/uv run python scripts/bench/amount_model.py [--list checks] [--cases FORMULA ...] [--json]

The ring sums of the model are compared with those of the specimens of `amount_cases.py`, in percent from the inner
ring outward: with the true columns, vibration and tilt, without the tilt, with the vibration that is assumed of all,
and with the columns that are found in the true density, without and with smooth noise. No network and no scan is
needed. "ratio" is the rms error with the columns that are found over that with the true ones.
"""

import argparse
import json
import sys

import ase
import numpy as np
from amount_cases import LISTS, SCAN, STEP, Case, Optics, elements
from scipy.ndimage import gaussian_filter

from namsa.config.instrument import Detector, FrozenPhonons
from namsa.inverse import amount
from namsa.inverse.columns import atom_density
from namsa.pacbed import position_averaged
from namsa.physics.optics import BeamSettings
from namsa.pixels import PixelGrid

OPTICS = Optics(200e3, 20.0, 33, 3.0, 1.25)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", choices=LISTS, default="checks")
    parser.add_argument("--cases", nargs="+", metavar="FORMULA", help="some cases; by default all of the list")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = {}
    for case in LISTS[options.list]:
        if not options.cases or case.formula in options.cases:
            rows[case.formula] = model_errors(case)
            for name, errors in rows[case.formula].items():
                print(f"{case.formula:10s} {name:14s}", " ".join(f"{100 * e:+6.1f}" for e in errors), flush=True)
    rms = {name: float(np.sqrt(np.mean([row[name] ** 2 for row in rows.values()]))) for name in NAMES}
    print("rms: " + ", ".join(f"{name} {100 * value:.1f} %" for name, value in rms.items()))
    if options.json:
        print(json.dumps({"ratio": rms[NAMES[3]] / rms[NAMES[0]], "rms": rms}))
    return 0


NAMES = ("true columns", "without tilt", "u = 0.075 Å", "found columns", "found in noise")
NOISE = 0.25  # rms, in standard deviations of the density


def model_errors(case: Case) -> dict[str, np.ndarray]:
    """Returns the logarithm of the model's ring sums over the specimen's, `(rings,)`, by what the model is told."""
    _, tilt, vibration = case.conditions()
    atoms, half = case.atoms(), OPTICS.pixels // 2 * OPTICS.pixel_mrad
    shape, sides = (OPTICS.pixels,) * 2, atoms.cell.lengths()
    detector, beam = Detector(shape=shape, pixel_mrad=OPTICS.pixel_mrad), BeamSettings(200e3, OPTICS.semiangle_mrad, {})
    edges = amount.ring_edges(OPTICS.semiangle_mrad, OPTICS.pixel_mrad, half + OPTICS.pixel_mrad / 2)
    masks = amount.ring_masks(PixelGrid((OPTICS.pixel_mrad,) * 2, (-half, -half)), shape, edges)
    (pattern,) = position_averaged(
        atoms,
        energy_ev=OPTICS.energy_ev,
        semiangle_mrad=OPTICS.semiangle_mrad,
        detector=detector,
        accuracy=0.02,
        frozen_phonons=FrozenPhonons(rms_angstrom=vibration, configurations=2),
        specimen_tilt_mrad=tilt,
        seed=case.seed,
        every=(4, 2),
    )
    measurement = amount.Measurement(beam, detector, masks, OPTICS.max_q)
    places, of_place = np.unique(np.round(atoms.positions[:, 1::-1], 2), axis=0, return_inverse=True)
    electrons = np.bincount(of_place.ravel(), atoms.numbers)
    mean, per_volume = atoms.numbers.sum() / (sides[0] * sides[1]), atoms.numbers.sum() / sides.prod()
    true = amount.Part(places, electrons, (sides[1], sides[0]), mean, pattern.ravel() @ masks, 0.0)
    known = amount.Known(elements(case.formula), case.true_thickness(), vibration_angstrom=vibration)
    density, step = true_density(atoms, vibration), PixelGrid((STEP, STEP), (0.0, 0.0))
    noise = gaussian_filter(np.random.default_rng(1).standard_normal(density.shape), 0.8)
    rings = np.broadcast_to(true.rings, (*density.shape, amount.RINGS))
    found, in_noise = (
        amount.find_parts(density + level * density.std() / noise.std() * noise, rings, step, measurement, known)[0]
        for level in (0.0, NOISE)
    )
    print(f"{case.formula}: electrons of the columns that are found over the true ones {found.density / mean:.3f}")
    errors = {}
    whole = float(np.hypot(*tilt))
    told = [(true, vibration, whole), (true, vibration, 0.0), (true, 0.075, whole)]
    told += [(part, vibration, whole) for part in (found, in_noise)]
    for name, (part, u, mrad) in zip(NAMES, told, strict=True):
        sums = np.log(amount.simulate(part, per_volume, known, measurement, u, mrad))
        at = np.log(mean / part.density)
        own = np.array([np.interp(at, np.log(amount.AMOUNTS), ring) for ring in sums.T])
        errors[name] = own - np.log(true.rings)
    return errors


def true_density(atoms: ase.Atoms, vibration: float) -> np.ndarray:
    """Returns the band-limited density of a cell that repeats, on the positions of a scan, e/Å²."""
    y, x = (STEP * np.arange(n) for n in SCAN)
    r, (lx, ly, _) = np.linspace(0, 8, 800), atoms.cell.lengths()
    total = np.zeros(SCAN)
    for number in set(atoms.numbers.tolist()):
        profile = number * atom_density(r, number, OPTICS.max_q, vibration)
        own = np.round(atoms.positions[atoms.numbers == number][:, :2] % (lx, ly), 3)
        for (px, py), count in zip(*np.unique(own, axis=0, return_counts=True), strict=True):
            for i, j in np.ndindex(4, 4):
                distance = np.hypot(y[:, None] - py - (i - 1) * ly, x - px - (j - 1) * lx)
                total += count * np.interp(distance, r, profile, right=0.0)
    return total


if __name__ == "__main__":
    sys.exit(main())
