"""Memory and time of a reconstruction against the size of the scan.

    scripts/uv run python scripts/bench/reconstruct.py [--checkpoint NAME] [--sides 128 512]
    [--json]

The files hold n×n patterns of 128×128 pixels, uint16, compressed by gzip in chunks of 16×16
patterns. All chunks have the same bytes of Poisson noise, but each is read and decompressed. Each
file is reconstructed in its own process with the network of configs/quickstart.yaml: random weights
take as long as trained ones. "ratio" is the peak memory of the largest scan divided by that of the
smallest.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

import frame
import h5py
import numpy as np

ROOT = frame.ROOT
CHUNK = 16
PIXELS = 128
BEAM = 3200  # electrons
GIVEN = [
    "--energy-ev",
    "200e3",
    "--semiangle-mrad",
    "20",
    "--pixel-mrad",
    "0.5",
    "--scan-step-angstrom",
    "0.4",
]


def main() -> int:
    parser = frame.parser(__doc__)
    parser.add_argument("--checkpoint", metavar="NAME", help="default: random weights")
    parser.add_argument(
        "--sides", type=int, nargs="+", default=[128, 512], metavar="N", help="multiples of 16"
    )
    parser.add_argument("--worker", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return worker(options.worker)
    table = frame.table("scan", "patterns, GiB", "seconds", "peak, MiB")
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        checkpoint = options.checkpoint or random_weights(folder / "quickstart")
        for side in options.sides:
            path = write(folder / f"{side}.h5", side)
            words = [
                "reconstruct",
                path,
                "--checkpoint",
                checkpoint,
                "--out",
                folder / "out.h5",
                *GIVEN,
            ]
            words += ["--beam-intensity", BEAM]
            here = [sys.executable, __file__, "--worker", *map(str, words)]
            done = subprocess.run(here, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
            rows.append(
                {"side": side, "data_bytes": side**2 * PIXELS**2 * 2}
                | json.loads(done.stdout.splitlines()[-1])
            )
            table.add_row(
                f"{side}×{side}",
                *(f"{n:.{d}f}" for n, d in zip(values(rows[-1]), (2, 0, 0), strict=True)),
            )
            path.unlink()
    frame.show(table)
    peaks = [row["peak_mib"] for row in sorted(rows, key=lambda row: row["side"])]
    frame.finish(options, {"ratio": peaks[-1] / peaks[0], "rows": rows})
    return 0


def values(row: dict[str, Any]) -> tuple[float, float, float]:
    return row["data_bytes"] / 2**30, row["seconds"], row["peak_mib"]


def worker(words: list[str]) -> int:
    from train.__main__ import main as train

    started = time.perf_counter()
    code = train(words)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": time.perf_counter() - started, "peak_mib": peak}))
    return code


def random_weights(folder: Path) -> str:
    """A run directory of a network that was never trained."""
    code = (
        "import sys; from pathlib import Path; from fcdensenet.build import build;"
        "from namsa.config.loading import dump_yaml;"
        "from train.optimization import checkpoint; from train.experiment.experiment import load;"
        " e = load(Path('configs/quickstart.yaml'));"
        "f = Path(sys.argv[1]); v = build(e.network, seed=0).variables;"
        "checkpoint.save(f / 'checkpoints', checkpoint.TrainingPosition(), v, e.network, keep=1);"
        "(f / 'config.yaml').write_text(dump_yaml(e))"
    )
    subprocess.run(
        [sys.executable, "-c", code, str(folder)], check=True, cwd=ROOT, stderr=subprocess.DEVNULL
    )
    return str(folder)


def write(path: Path, side: int) -> Path:
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:PIXELS, :PIXELS] - (PIXELS - 1) / 2
    disk = 1 / (1 + np.exp((np.hypot(y, x) - 40) / 1.5))  # 20 mrad in pixels of 0.5
    chunk = (CHUNK, CHUNK, PIXELS, PIXELS)
    packed = zlib.compress(
        rng.poisson(disk * (0.93 * BEAM / disk.sum()), chunk).astype("<u2").tobytes(), 4
    )
    with h5py.File(path, "w") as file:
        shape = (side, side, PIXELS, PIXELS)
        data = file.create_dataset(
            "scan", shape, "<u2", chunks=chunk, compression="gzip", compression_opts=4
        )
        for row in range(0, side, CHUNK):
            for column in range(0, side, CHUNK):
                data.id.write_direct_chunk((row, column, 0, 0), packed)
    return path


if __name__ == "__main__":
    sys.exit(main())
