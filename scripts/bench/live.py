"""Live reconstruction of a file that grows: frames per second, latency of a row, memory.

    scripts/uv run python scripts/bench/live.py [--checkpoint NAME] [--side 128] [--rate 500]
    [--json]

A thread writes rows of n×n patterns of 128×128 pixels, uint16, to a raw file at a rate of frames
per second, and `train.reconstruct_live` follows the file in the same process. Without --rate the
whole file is there at the beginning. All rows have the same Poisson noise: the time does not depend
on it.

- "frames per second" are the patterns between the first and the last update over the time between
  them, reading and waiting included: the speed of the reconstruction if the whole file is there,
  otherwise at most the writer's.
- "start" is the time from the call to the first strip's begin: TensorFlow is imported, the network
  loaded.
- "first latency" is the time from a row's last byte to the first update with a density there,
  "final latency" to the update after which the row does not change. Both contain the wait for the
  rows below that its windows need.
- "strip" is the time of the computation after the last row of a strip has come: without the first,
  which compiles.
- "ratio" is this time over that in which the writer writes a strip: below 1 the reconstruction
  keeps up.
"""

import resource
import sys
import tempfile
import threading
import time
from pathlib import Path

import frame
import numpy as np

PIXELS = 128
PIXEL_MRAD = 0.8
BEAM = 3200  # electrons


def main() -> int:
    parser = frame.parser(__doc__)
    parser.add_argument("--checkpoint", metavar="NAME", default="200kv-20mrad-fast")
    parser.add_argument("--side", type=int, default=128, metavar="N")
    parser.add_argument(
        "--rate",
        type=float,
        metavar="FPS",
        help="frames per second of the writer; default: at once",
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        row = measure(options.checkpoint, options.side, options.rate, Path(folder) / "scan.raw")
    table = frame.table(*row)
    table.add_row(
        *(f"{value:.3g}" if isinstance(value, float) else str(value) for value in row.values())
    )
    frame.show(table)
    frame.finish(options, row)
    return 0


def measure(
    checkpoint: str, side: int, rate: float | None, path: Path
) -> dict[str, float | int | None]:
    import train

    written: list[float] = []  # times of the rows
    writer = threading.Thread(target=write, args=(path, side, rate, written), daemon=True)
    called = time.perf_counter()
    writer.start()
    if rate is None:
        writer.join()
        called = time.perf_counter()
    first = [np.nan] * side
    final = [np.nan] * side
    strips = []
    times = []
    rows_read = []
    for update in train.reconstruct_live(
        path,
        checkpoint,
        train.CalibrationOverrides(
            energy_ev=200e3,
            semiangle_mrad=20.0,
            scan_step_angstrom=0.4,
            pixel_mrad=PIXEL_MRAD,
            centre_pixels=((PIXELS - 1) / 2, (PIXELS - 1) / 2),
        ),
        scan_shape=(side, side),
        beam_intensity=BEAM,
        layout={"dtype": "u2", "detector_shape": (PIXELS, PIXELS)},
    ):
        now = time.perf_counter()
        strips.append(update.seconds)
        times.append(now)
        rows_read.append(update.rows_read)
        known = np.isfinite(update.result.density).all(axis=1)
        for row in range(side):
            if known[row] and np.isnan(first[row]):
                first[row] = now - written[row]
            if row < update.rows_done and np.isnan(final[row]):
                final[row] = now - written[row]
    if len(strips) < 2:
        raise SystemExit(
            f"a scan of {side} rows is one strip, which has no rate: give a larger --side"
        )
    # strips of the writer
    between_s = None if rate is None else float(np.median(np.diff(rows_read))) * side / rate
    steady = (rows_read[-1] - rows_read[0]) * side / (times[-1] - times[0])
    return {
        "side": side,
        "rate": rate,
        "frames per second": steady,
        "start, s": times[0] - strips[0] - called,
        "strip, s": float(np.median(strips[1:])),
        "first latency, s": None if rate is None else float(np.median(first)),
        "final latency, s": None if rate is None else float(np.median(final)),
        "last row, s": times[-1] - written[-1],
        "ratio": None if between_s is None else float(np.median(strips[1:])) / between_s,
        "peak, MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def write(path: Path, side: int, rate: float | None, written: list[float]) -> None:
    """Writes the rows at their times, and notes when each is complete."""
    y, x = np.mgrid[:PIXELS, :PIXELS] - (PIXELS - 1) / 2
    disk = 1 / (1 + np.exp((np.hypot(y, x) - 20 / PIXEL_MRAD) / 1.5))
    row = (
        np.random.default_rng(0)
        .poisson(disk * (0.93 * BEAM / disk.sum()), (side, PIXELS, PIXELS))
        .astype("<u2")
    )
    data = row.tobytes()
    begin = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for number in range(side):
            if rate is not None:
                time.sleep(max(0.0, begin + (number + 1) * side / rate - time.perf_counter()))
            file.write(data)
            written.append(time.perf_counter())


if __name__ == "__main__":
    sys.exit(main())
