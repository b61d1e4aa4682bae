"""A training step of JAX at the sample's size: time, FLOP/s, their share of the device's peak,
memory, and the bytes of its messages.

    python scripts/bench/step_jax.py [configs/paper.yaml] [--compute mixed_float16 mixed_bfloat16]
        [--image 512] [--set KEY=VALUE] [--steps 10] [--seconds 240] [--parts]

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
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import frame
import step_parts

if TYPE_CHECKING:
    from train.experiment.experiment import Experiment

ROOT = frame.ROOT
MATRIX = {"gpu": 8192, "cpu": 512}  # rows of the matrices whose product is the peak
PRODUCTS = 8


def main() -> None:
    options = parse()
    if options.case:
        with tempfile.TemporaryDirectory() as cache:
            print(json.dumps(measure(options, cache)), flush=True)
        return
    began = time.monotonic()
    measured = False
    for index, compute in enumerate(options.compute):
        left = options.seconds - (time.monotonic() - began)
        seconds = max(left / (len(options.compute) - index), 1.0)
        row = {"compute": compute, **_in_process(compute, seconds)}
        measured = measured or "step_s" in row
        print(json.dumps(row), flush=True)
    if not measured:
        sys.exit(1)


def parse() -> argparse.Namespace:
    parser = frame.parser(__doc__)
    parser.add_argument("config", nargs="?", type=Path, default=ROOT / "configs/paper.yaml")
    parser.add_argument("--compute", nargs="+", default=["mixed_float16", "mixed_bfloat16"])
    parser.add_argument(
        "--image", type=int, help="side of the image, pixels; by default the configuration's"
    )
    frame.add_overrides(parser)
    parser.add_argument("--steps", type=int, default=10, help="steps that are timed")
    parser.add_argument("--seconds", type=float, default=240.0, help="for all cases together")
    parser.add_argument("--parts", action="store_true", help="the share of each part in the time")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    return parser.parse_args()


def _in_process(compute: str, seconds: float) -> dict[str, Any]:
    """Returns what a process of its own measures, or why it failed."""
    command = [sys.executable, __file__, *sys.argv[1:], "--case", compute]
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


def measure(options: argparse.Namespace, cache: str) -> dict[str, Any]:
    """Returns the time, the FLOP and the memory of a step; `cache` is a folder."""
    import jax

    from train.networks import count

    experiment = _experiment(options)
    # The step that is analysed is not compiled again to be run.
    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    compiled = _compiled(experiment)
    first_s = frame.seconds_of(compiled.run)
    times = [frame.seconds_of(compiled.run) for _ in range(options.steps)]
    step_s = median(times)
    device = jax.local_devices()[0]
    memory = device.memory_stats() or {}
    flop = experiment.training.batch_size * count(experiment.network).step_flop
    peak = _peak_flop_per_s(options.case.removeprefix("mixed_"))
    text = compiled.executable.as_text()
    parts = {}
    if options.parts:
        parts = {"parts": step_parts.shares(text, compiled.run, options.steps)}
    return {
        "device": device.device_kind,
        "input_shape": list(experiment.network.input_shape),
        "parameters": compiled.parameters,
        "message_bytes": step_parts.message_bytes(text),
        **parts,
        "compile_s": round(compiled.seconds, 2),
        "first_step_s": round(first_s, 3),
        "step_s": step_s,
        "step_flop": flop,
        "xla_flop": (compiled.executable.cost_analysis() or {}).get("flops"),
        "flop_per_s": flop / step_s,
        "peak_flop_per_s": peak,
        "share_of_peak": flop / step_s / peak,
        "peak_memory_gib": memory["peak_bytes_in_use"] / 2**30 if memory else None,
    }


def _experiment(options: argparse.Namespace) -> "Experiment":
    """Returns the configuration of a case, of another image if that is asked for."""
    from train.experiment.experiment import load

    overrides = [*options.overrides, f"training.precision.compute={options.case}"]
    experiment = load(options.config, overrides)
    if not options.image:
        return experiment
    shape = (experiment.network.input_shape[0], options.image, options.image)
    smaller = experiment.network.model_copy(update={"input_shape": shape})
    return experiment.model_copy(update={"network": smaller})


class _Compiled(NamedTuple):
    """A compiled step on a random batch."""

    run: Callable[[], Any]  # takes a step and returns its numbers
    executable: Any  # a `jax.stages.Compiled`
    seconds: float  # time of the compilation
    parameters: int  # of the network


def _compiled(experiment: "Experiment") -> _Compiled:
    """Builds the step of `namsa-train` and compiles it."""
    import jax

    from train.input.batches import random_batch
    from train.optimization.loop import make_step
    from train.optimization.optimizers import assemble
    from train.tasks import task_of

    network = experiment.network
    training = experiment.training
    objective = task_of(experiment).objective
    model, optimizer, exchange, accumulation = assemble(network, 1, training, objective=objective)
    # a compiled function of JAX, which can be lowered
    step: Any = make_step(model, optimizer, training, exchange, accumulation, objective)
    batch = [jax.device_put(array) for array in random_batch(network, training)]
    arguments = (*batch, jax.numpy.float32(1e-4), jax.numpy.float32(10))
    lowered = step.lower(*arguments)
    began = time.perf_counter()
    executable = lowered.compile()
    seconds = time.perf_counter() - began
    return _Compiled(lambda: step(*arguments), executable, seconds, model.count_params())


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
