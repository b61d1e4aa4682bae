"""Pairs of columns that the band of a density does not resolve, and `reconstruct --refine`.

    scripts/uv run python scripts/bench/close_pairs.py [--doses 1e4 1e5 1e6] [--checkpoint NAME] [--json]

Si [112] has pairs of columns at 0.78 Å and Ge [114] at 0.47 Å, beyond λ/2α = 0.63 Å of 200 keV and 20 mrad. Both are
27 and 24 Å thick, with C10 of −20 Å, C12 of 5 Å, a source of 0.5 Å and a vibration of 0.06 Å. Refinement is told the
formula and the thickness. A pair is apart if each of its columns is the nearest to another one of the fit, within half
of its distance. Columns within 4 Å of the edges are left out.
"""

import argparse
import json
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import ase
import ase.build
import numpy as np
from amount_cases import LATERAL, STEP, Optics, expose, record
from scipy.spatial import KDTree

import namsa
import train
from namsa.config.instrument import FrozenPhonons

OPTICS, EDGE = Optics(200e3, 20.0, 33, 3.0, 1.25), 4.0  # Å
# Formula, lattice constant in Å, axes x, y and z of the cell, periods along the beam, and the distance of a pair in Å.
SPECIMENS = {
    "Si [112]": ("Si", 5.431, [[1, -1, 0], [1, 1, 1], [1, 1, -2]], 2, 0.784),
    "Ge [114]": ("Ge", 5.658, [[1, -1, 0], [2, 2, -1], [1, 1, 4]], 1, 0.4715),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--doses", nargs="+", type=float, default=[1e4, 1e5, 1e6], metavar="E_PER_A2")
    parser.add_argument("--checkpoint", default="200kv-20mrad-reality", metavar="NAME")
    parser.add_argument("--work", type=Path, default=Path("data/close-pairs"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    model, rows = train.load_model(options.checkpoint), []
    for name in SPECIMENS:
        atoms = specimen(name)
        for dose, path in scans(name, atoms, options):
            rows.append({"specimen": name, "dose_e_per_angstrom2": dose} | refined(name, atoms, path, model))
            print(line(rows[-1]), flush=True)
    if options.json:
        share = sum(row["apart"] for row in rows) / sum(row["pairs"] for row in rows)
        print(json.dumps({"ratio": share, "rows": rows}))


def specimen(name: str) -> ase.Atoms:
    formula, a, axes, periods, _ = SPECIMENS[name]
    turned = ase.build.make_supercell(ase.build.bulk(formula, "diamond", a=a, cubic=True), axes)
    sides = turned.cell.lengths()
    cell = ase.Atoms(turned.numbers, turned.get_scaled_positions(wrap=True) * sides, cell=sides, pbc=True)
    return cell.repeat((*np.ceil(LATERAL / sides[:2]).astype(int), periods))


def scans(name: str, atoms: ase.Atoms, options: argparse.Namespace) -> list[tuple[float, Path]]:
    """Returns a file of each dose; simulates those that are missing."""
    formula = SPECIMENS[name][0]
    paths = [(dose, options.work / f"{formula}-{dose:.0e}.h5") for dose in options.doses]
    if all(path.exists() for _, path in paths):
        return paths
    scattering = namsa.scatter(
        atoms,
        energy_ev=OPTICS.energy_ev,
        max_angle_mrad=OPTICS.semiangle_mrad,
        max_detected_mrad=OPTICS.pixels * OPTICS.pixel_mrad / 2 + 1.5,
        frozen_phonons=FrozenPhonons(rms_angstrom=0.06, configurations=3),
        seed=7,
    )
    exposed = expose(scattering, OPTICS, {"C10": -20.0, "C12": 5.0, "phi12": 1.0}, 0.5)
    for dose, path in paths:
        record(exposed, dose * STEP**2, np.random.default_rng(3), OPTICS.max_q, path)
    return paths


def refined(name: str, atoms: ase.Atoms, path: Path, model: train.Model) -> dict:
    formula, *_, distance = SPECIMENS[name]
    known = train.KnownSpecimen(float(atoms.cell.lengths()[2]), formula)
    options = train.ReconstructionOptions(refine_steps=20, trust=False)
    result = train.reconstruct(path, model, beam_intensity=1.0, specimen=known, options=options)
    (block,) = result.provenance["refined"]["blocks"]
    found = np.array(block["column_yx_angstrom"])
    side = np.multiply(result.density.shape, result.pixels.step)
    yx = np.unique(np.round(atoms.positions[:, [1, 0]], 3), axis=0)
    yx = yx[[not any(other < i for other in near) for i, near in enumerate(KDTree(yx).query_ball_point(yx, 0.05))]]
    extent = atoms.cell.lengths()[[1, 0]]
    true = np.concatenate([yx + np.multiply(times, extent) for times in np.ndindex(3, 3)]) - extent
    pairs = [
        pair
        for pair in KDTree(true).query_pairs(1.1 * distance)
        if np.all((true[list(pair)] > EDGE) & (true[list(pair)] < side - EDGE))
    ]
    off, nearest = KDTree(found).query(true)
    apart = [(a, b) for a, b in pairs if nearest[a] != nearest[b] and max(off[a], off[b]) < distance / 2]
    distances = [np.linalg.norm(found[nearest[a]] - found[nearest[b]]) for a, b in apart]
    return {
        "pairs": len(pairs),
        "apart": len(apart),
        "distance_angstrom": float(np.mean(distances)) if apart else None,
        "spread_angstrom": float(np.std(distances)) if apart else None,
        "off_angstrom": float(np.sqrt(np.mean(off[np.ravel(apart)] ** 2))) if apart else None,
        "thickness_angstrom": block["thickness_angstrom"],
        "true_distance_angstrom": distance,
        "true_thickness_angstrom": known.thickness_angstrom,
    }


def line(row: dict) -> str:
    text = f"{row['specimen']}, {row['dose_e_per_angstrom2']:.0e} e/Å²: {row['apart']} of {row['pairs']} pairs apart"
    if row["apart"]:
        text += (
            f", {row['distance_angstrom']:.2f} ± {row['spread_angstrom']:.2f} Å of {row['true_distance_angstrom']} Å, "
            f"columns {row['off_angstrom']:.3f} Å off"
        )
    return f"{text}; thickness {row['thickness_angstrom']:.1f} of {row['true_thickness_angstrom']:.1f} Å"


if __name__ == "__main__":
    main()
