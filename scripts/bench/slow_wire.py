"""Sharded weights in 32, 16 and 8 bits on a slow wire: two ranks of this machine, whose loopback is shaped.

    scripts/uv run python scripts/bench/slow_wire.py [--mbit 40] [--steps 5] [--config FILE.yaml] [--json]

The job runs in a network namespace of its own, as root, in which `tc` gives the loopback a rate (token bucket). What
both ranks send shares it. A step time is the median of the slowest rank's. "predicted" is that of 32 bits less the time
of the bytes that are not sent. "ratio" is the time of a step with 32 bits over that with 16.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BITS = 32, 16, 8
SHAPED = "ip link set lo up && tc qdisc add dev lo root tbf rate {mbit}mbit burst 256kb latency 2s && exec {command}"


def main() -> int:
    options = parse()
    found = {bits: measure(options, bits) for bits in BITS}
    most = found[max(BITS)]
    table = Table("bits", "MB per step", "step, s", "predicted, s", box=None)
    for bits, each in found.items():
        saved_s = 8e-6 * (most["bytes"] - each["bytes"]) / options.mbit
        each["predicted_s"] = most["step_s"] - saved_s
        numbers = (each["bytes"] / 1e6, each["step_s"], each["predicted_s"])
        table.add_row(str(bits), *(f"{number:.3f}" for number in numbers))
    Console(markup=False).print(table)
    if options.json:
        ratio = most["step_s"] / found[16]["step_s"]
        print(json.dumps({"mbit": options.mbit, "found": found, "ratio": ratio}))
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=ROOT / "configs/quickstart.yaml")
    parser.add_argument("--mbit", type=float, default=40.0, help="rate of the wire, Mbit/s")
    parser.add_argument("--steps", type=int, default=5, help="of a job")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    return parser.parse_args()


def measure(options: argparse.Namespace, bits: int) -> dict[str, Any]:
    """Median time of a step of the slowest rank, s, and the bytes that both ranks send in it."""
    with tempfile.TemporaryDirectory() as directory:
        worker = HERE / "workers" / "slow_wire_rank.py"
        launcher = Path(sys.executable).with_name("horovodrun")
        words = [launcher, "-np", 2, "--gloo", "--network-interfaces", "lo", sys.executable, worker, directory]
        command = " ".join(map(str, [*words, options.config, bits, options.steps]))
        line = ["unshare", "--net", "sh", "-c", SHAPED.format(mbit=options.mbit, command=command)]
        settings = os.environ | {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
        ended = subprocess.run(line, env=settings, capture_output=True, text=True, timeout=3600, check=False)
        if ended.returncode:
            raise SystemExit(ended.stdout + ended.stderr)
        ranks = [json.loads(path.read_text()) for path in Path(directory).glob("*.json")]
    return {"step_s": max(statistics.median(each["steps"]) for each in ranks), "bytes": ranks[0]["bytes"]}


if __name__ == "__main__":
    raise SystemExit(main())
