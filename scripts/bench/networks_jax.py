"""Shipped networks under JAX on the GPU: the same densities as on the processor, and the time of a
whole scan.

    python scripts/bench/networks_jax.py [--side 64] [--networks NAME ...] [--seconds 90] [--json]

A scan of SrTiO3, 50 Å, is simulated with a detector of the networks, 33×33 pixels of 3 mrad, 0.4 Å
between positions. Each network reconstructs it by `train.reconstruct`. Before, networks answer to
random windows (`network_answers.py`) in two processes side by side, one on JAX's processor; there,
products of matrices are those of float32 (JAX_DEFAULT_MATMUL_PRECISION=highest). "difference" is
the largest difference of a density over the largest density; the exit code is 1 if it is over 1e-5.
"first_s" is the time of the first reconstruction, in which XLA compiles; "seconds" of the second,
with all eight views; both with JAX's own precision. "simulated_s" is the time of the multislice
simulation of the same scan, by namsa on the GPU, warm. "ratio" is that over the time of the fastest
network.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import frame

NETWORKS = ("200kv-20mrad-fast", "200kv-20mrad-reality")
COMPARED = (
    "200kv-20mrad-segment",
    "200kv-20mrad-thickness",
    "200kv-20mrad-embed",
    "200kv-5mrad-classify",
)
WORKER = frame.WORKERS / "network_answers.py"
COMPARISON = 0.6  # of the time, after which the networks that have answered are compared
STEP_ANGSTROM = 0.4
ENERGY_EV = 200e3
SEMIANGLE_MRAD = 20.0


def main() -> int:
    options = parse()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scan = simulated(options.side, folder / "scan.npy")
        print(
            f"{options.side}×{options.side} patterns, multislice: {scan['simulated_s']:.2f} s",
            flush=True,
        )
        exact = frame.under_jax(JAX_DEFAULT_MATMUL_PRECISION="highest")
        names = [*options.networks, *options.compared]
        jobs = []
        for place, platform in (("device", {}), ("cpu", {"JAX_PLATFORMS": "cpu"})):
            command = [sys.executable, WORKER, folder / f"{place}.npz", *names]
            jobs.append(subprocess.Popen([str(word) for word in command], env=exact | platform))
        codes = []
        for job in jobs:
            left = COMPARISON * options.seconds - (time.monotonic() - began)
            codes.append(frame.ended(job, left))
        rows = compare(folder)
        for network in options.networks:
            # If this process is ended, its last line is what is known by then.
            tell(scan, rows, options.json)
            if time.monotonic() - began < options.seconds:
                rows.setdefault(network, {}).update(timed(folder / "scan.npy", network))
    difference = tell(scan, rows, options.json)
    return int(any(codes) or difference is None or difference > 1e-5)


def tell(scan: dict[str, Any], rows: dict[str, dict[str, Any]], as_json: bool) -> float | None:
    """Prints what is known of the networks, and returns the largest difference of a density."""
    densities = []
    times = []
    for network, row in rows.items():
        print(f"{network}: {row}", flush=True)
        if "density" in row.get("differences", {}):
            densities.append(row["differences"]["density"])
        if "seconds" in row:
            times.append(row["seconds"])
    known = scan | {"difference": max(densities, default=None), "networks": rows}
    known["ratio"] = scan["simulated_s"] / min(times) if times else None
    if as_json:
        print(json.dumps(known), flush=True)
    return known["difference"]


def parse() -> argparse.Namespace:
    parser = frame.parser(__doc__)
    parser.add_argument(
        "--side", type=int, default=64, help="positions along each axis of the scan"
    )
    parser.add_argument("--networks", nargs="+", default=NETWORKS, metavar="NAME")
    parser.add_argument(
        "--seconds", type=float, default=90, help="after which no network is timed any more"
    )
    parser.add_argument(
        "--compared", nargs="*", default=COMPARED, metavar="NAME", help="further ones, not timed"
    )
    return parser.parse_args()


def simulated(side: int, path: Path) -> dict[str, Any]:
    """Writes the patterns of a scan, and returns their number and the time of the second of two
    simulations.
    """
    import numpy as np
    from reality_specimens import titanate

    import namsa

    atoms = titanate(50.0, lateral=max(15.0, side * STEP_ANGSTROM))
    axis = STEP_ANGSTROM * np.arange(side)
    positions = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    for _ in range(2):
        began = time.perf_counter()
        sample = namsa.simulate(
            atoms,
            energy_ev=ENERGY_EV,
            semiangle_mrad=SEMIANGLE_MRAD,
            detector=namsa.Detector(shape=(33, 33), pixel_mrad=3.0),
            positions_angstrom=positions,
            scan_shape=(side, side),
        )
        seconds = time.perf_counter() - began
    np.save(path, sample.cbed.reshape(side, side, 33, 33).astype(np.float32))
    return {"side": side, "simulated_s": seconds}


def compare(folder: Path) -> dict[str, dict[str, Any]]:
    """Returns, for each network, the largest difference of an answer over the largest answer, and
    what differs so.
    """
    import numpy as np

    differences: dict[str, dict[str, Any]] = {}
    paths = folder / "device.npz", folder / "cpu.npz"
    if not all(path.exists() for path in paths):
        return differences
    with np.load(paths[0]) as here, np.load(paths[1]) as there:
        for key in there.files:
            network, answer = key.split("/")
            if answer != "seconds" and key in here.files:
                difference = float(np.abs(here[key] - there[key]).max() / np.abs(there[key]).max())
                differences.setdefault(network, {}).setdefault("differences", {})[answer] = (
                    difference
                )
    return differences


def timed(scan: Path, name: str) -> dict[str, Any]:
    """Returns the times of two reconstructions of the scan."""
    import numpy as np

    import train

    patterns = np.load(scan)
    times = []
    calibration = train.CalibrationOverrides(
        energy_ev=ENERGY_EV,
        semiangle_mrad=SEMIANGLE_MRAD,
        scan_step_angstrom=STEP_ANGSTROM,
        pixel_mrad=3.0,
        centre_pixels=(16, 16),
    )
    for _ in range(2):
        began = time.perf_counter()
        train.reconstruct(patterns, name, calibration, beam_intensity=1.0)
        times.append(time.perf_counter() - began)
    return {"first_s": times[0], "seconds": times[1]}


if __name__ == "__main__":
    sys.exit(main())
