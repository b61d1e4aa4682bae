"""A training step of JAX at the sample's size: time, FLOP/s, their share of the device's peak,
memory, and the bytes of its messages.

    python scripts/bench/step_jax.py [configs/paper.yaml] [--compute mixed_float16 mixed_bfloat16]
        [--format both] [--image 512] [--set KEY=VALUE] [--steps 10] [--seconds 240]
        [--parts] [--out step_jax.json]

The step is that of `namsa-train` under JAX (forward, Huber and L2, backward, LARS and Adam), on
random patterns. Each case runs in a process of its own, which is ended when its share of --seconds
is over; a case that failed says why. FLOP are those of the convolutions (`fcdensenet.count`), and
beside them XLA's own count of the whole step. The peak is measured in the same process: that of
products of square matrices in the same number format. On processors use a smaller image, as --image
32: the network is the same.

--parts gives the share of the time that each part takes (`step_parts`). With
XLA_FLAGS=--xla_force_host_platform_device_count=2 two devices share the step, whose messages are
those of two processes.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import frame
import step_parts

ROOT = frame.ROOT
MATRIX = {"gpu": 8192, "cpu": 512}  # rows of the matrices whose product is the peak
PRODUCTS = 8


def main() -> None:
    parser = frame.parser(__doc__)
    parser.add_argument("config", nargs="?", type=Path, default=ROOT / "configs/paper.yaml")
    parser.add_argument("--compute", nargs="+", default=["mixed_float16", "mixed_bfloat16"])
    parser.add_argument(
        "--format", choices=("config", "channels_first", "channels_last", "both"), default="config"
    )
    parser.add_argument(
        "--image", type=int, help="side of the image, pixels; by default the configuration's"
    )
    frame.add_overrides(parser)
    parser.add_argument("--steps", type=int, default=10, help="steps that are timed")
    parser.add_argument("--seconds", type=float, default=240.0, help="for all cases together")
    parser.add_argument("--parts", action="store_true", help="the share of each part in the time")
    parser.add_argument("--out", type=Path, help="a file for the results, JSON")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        print(json.dumps(measure(options)), flush=True)
        return
    formats = ("channels_first", "channels_last") if options.format == "both" else (options.format,)
    cases = [(compute, order) for order in formats for compute in options.compute]
    began = time.monotonic()
    results = []
    for number, (compute, order) in enumerate(cases):
        left = (options.seconds - (time.monotonic() - began)) / (len(cases) - number)
        result = {
            "compute": compute,
            "format": order,
            **_in_process(compute, order, max(left, 1.0)),
        }
        results.append(result)
        print(json.dumps(result), flush=True)
        if options.out:
            options.out.write_text(
                json.dumps({"config": str(options.config), "cases": results}, indent=1)
            )
    if not any("step_s" in result for result in results):
        sys.exit(1)


def _in_process(compute: str, order: str, seconds: float) -> dict[str, Any]:
    command = [sys.executable, __file__, *sys.argv[1:], "--case", f"{compute} {order}"]
    try:
        done = subprocess.run(
            command,
            env=frame.under_jax(),
            capture_output=True,
            text=True,
            timeout=seconds,
            cwd=ROOT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"not done after {seconds:.0f} s"}
    if done.returncode:
        return {"failed": last_fault(done.stderr)[:500]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def last_fault(stderr: str) -> str:
    """Returns the last line that names an error, or else the last one."""
    message = "without a message"
    names_error = False
    for line in stderr.splitlines():
        if not line.strip() or "JAX_TRACEBACK" in line:
            continue
        is_error = "Error" in line or "RESOURCE" in line
        if is_error or not names_error:
            message = line
            names_error = is_error
    return message


def measure(options: argparse.Namespace) -> dict[str, Any]:
    import jax
    import numpy as np

    from train.experiment.experiment import load
    from train.input.batches import random_batch
    from train.networks import count
    from train.optimization.loop import make_step
    from train.optimization.optimizers import assemble
    from train.tasks import task_of

    # the step that is analysed is not compiled again to be run
    cache = tempfile.TemporaryDirectory()
    jax.config.update("jax_compilation_cache_dir", cache.name)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    compute, order = options.case.split()
    overrides = [*options.overrides, f"training.precision.compute={compute}"]
    if order != "config":
        overrides.append(f"network.data_format={order}")
    experiment = load(options.config, overrides)
    network = experiment.network
    training = experiment.training
    task = task_of(experiment)
    if options.image:
        shape = (network.input_shape[0], options.image, options.image)
        network = network.model_copy(update={"input_shape": shape})
    device = jax.local_devices()[0]
    model, optimizer, exchange, accumulation = assemble(
        network, 1, training, objective=task.objective
    )
    # a compiled function of JAX, which can be lowered
    step: Any = make_step(model, optimizer, training, exchange, accumulation, task.objective)
    batch = tuple(jax.device_put(array) for array in random_batch(network, training))
    numbers = jax.numpy.float32(1e-4), jax.numpy.float32(10)
    began = time.perf_counter()
    lowered = step.lower(*batch, *numbers)
    lowered_s = time.perf_counter() - began
    executable = lowered.compile()
    compiled_s = time.perf_counter() - began - lowered_s
    losses: list[Any] = []
    first_s = frame.seconds_of(lambda: losses.append(step(*batch, *numbers)[0]))
    times = []
    for _ in range(options.steps):
        times.append(frame.seconds_of(lambda: losses.append(step(*batch, *numbers)[0])))
    memory = device.memory_stats() or {}
    analysis = executable.memory_analysis()
    flop = training.batch_size * count(network).step_flop
    peak = _peak_flop_per_s(compute.removeprefix("mixed_"))
    step_s = median(times)
    text = executable.as_text()
    parts = {}
    if options.parts:
        parts = {"parts": step_parts.shares(text, lambda: step(*batch, *numbers), options.steps)}
    return {
        "device": device.device_kind,
        "devices": len(jax.local_devices()),
        "jax": jax.__version__,
        "input_shape": list(network.input_shape),
        "batch_size": training.batch_size,
        "parameters": model.count_params(),
        "weight_bytes": sum(4 * int(np.prod(v.shape)) for v in model.trainable_variables),
        "message_bytes": step_parts.message_bytes(text),
        **parts,
        "lower_s": round(lowered_s, 2),
        "compile_s": round(compiled_s, 2),
        "first_step_s": round(first_s, 3),
        "step_s": step_s,
        "fastest_step_s": min(times),
        "loss": [losses[0], losses[-1]],
        "step_flop": flop,
        "xla_flop": (executable.cost_analysis() or {}).get("flops"),
        "flop_per_s": flop / step_s,
        "peak_flop_per_s": peak,
        "share_of_peak": flop / step_s / peak,
        "peak_memory_gib": memory["peak_bytes_in_use"] / 2**30 if memory else None,
        "memory_limit_gib": memory["bytes_limit"] / 2**30 if "bytes_limit" in memory else None,
        "step_temporary_gib": analysis.temp_size_in_bytes / 2**30 if analysis else None,
        "state_gib": analysis.argument_size_in_bytes / 2**30 if analysis else None,
    }


def _peak_flop_per_s(dtype: str) -> float:
    """FLOP/s of products of two square matrices: the best of five runs of eight, which wait for
    nothing in between.
    """
    import jax

    rows = MATRIX["gpu" if jax.default_backend() == "gpu" else "cpu"]
    first, second = jax.random.normal(jax.random.key(0), (2, rows, rows)).astype(dtype)
    product = jax.jit(jax.numpy.matmul)

    def run() -> None:
        jax.block_until_ready([product(first, second) for _ in range(PRODUCTS)])

    run()
    return PRODUCTS * 2 * rows**3 / min(frame.seconds_of(run) for _ in range(5))


if __name__ == "__main__":
    main()
