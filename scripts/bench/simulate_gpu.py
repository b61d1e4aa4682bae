"""Speed of the fused GPU engine against its cuFFT twin, abTEM on the same card, and the card's
memory bandwidth.

    scripts/uv run python scripts/bench/simulate_gpu.py [--probes 1024] [--batch N ...] [--no-abtem]
    [--json]

The workload is the sample of the paper: SrTiO3, 101.5 × 101.5 × 199.2 Å, 100 slices, 200 keV, 20
mrad, full patterns in float32, which are copied to the memory of the host. Engines take turns;
times are medians over the rounds. The roofline is the time in which the card copies as many bytes
as the fused engine moves; a card whose cache keeps the waves can be faster. "kernels" are times of
each kernel by CUDA's events, without copies to the host. "ratio" is against abTEM, or without it
against the twin. abTEM runs in this Python if it is installed there, or in an environment that uv
creates. The exit code is 2 without a CUDA device.
"""

import argparse
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import ase
import frame
import numpy as np
from reality_specimens import titanate

from namsa.base.arrays import Floats
from namsa.base.errors import InputError
from namsa.config.instrument import Detector
from namsa.engines import fused_gpu, multislice
from namsa.engines.kernel_plan import KernelPlan
from namsa.physics import detector, optics, specimen
from namsa.physics.backend import resolve_backend
from namsa.physics.grid import Array, Grid
from namsa.physics.potential import Slices

RIVAL = ("abtem==1.0.11", "cupy-cuda12x")
DETECTOR = Detector(shape=(27, 27), pixel_mrad=3.0)  # within the band limit of 512² pixels
ENERGY_EV = 200e3
SEMIANGLE_MRAD = 20.0
SLICE_ANGSTROM = 2.0
ABTEM_BATCHES = (32, 128, 512)
REPEATS = 10  # launches of a kernel in a row
TWIN = "cuFFT twin"
KERNEL_BATCHES = (12, 512)  # waves that stay in the cache of a large card, and waves that do not

Program = Callable[[Array], None]  # adds patterns to an array
Binning = tuple[Array, Array] | None


class Optics(NamedTuple):
    """What the engines need beside positions, on the device."""

    grid: Grid
    lens: Array
    slices: Slices
    fresnel: Array


def main() -> int:
    options = parse()
    try:
        cupy = resolve_backend("cupy")
    except InputError as error:
        return not_run(f"this bench needs a CUDA device and was not run: {error}")
    atoms, grid, positions = workload(options.grid, options.probes)
    start = time.perf_counter()
    setup = on_device(atoms, grid, cupy)
    built_s = time.perf_counter() - start
    plan = fused_gpu.device_plan(setup.lens, setup.fresnel)
    if plan is None:
        return not_run(f"the fused engine has no kernels for a grid of {options.grid}²")
    seconds, difference = take_turns(setup, positions, options)
    best = min((name for name in seconds if name != TWIN), key=seconds.__getitem__)
    bandwidth = copy_rate(cupy)
    roofline_s = plan.bytes_per_slice * len(setup.slices.order) * len(positions) / bandwidth
    summary: dict[str, Any] = {
        "device": cupy.cuda.runtime.getDeviceProperties(0)["name"].decode(),
        "grid": options.grid,
        "probes": options.probes,
        "slices": len(setup.slices.order),
        "seconds": seconds,
        "best": best,
        "specimen_s": built_s,
        "copy_bytes_per_s": bandwidth,
        "roofline_s": roofline_s,
        "roofline_fraction": roofline_s / seconds[best],
        "difference": difference[best],
        "rival": TWIN,
        "ratio": seconds[TWIN] / seconds[best],
    }
    show(summary)
    summary["host_copy_bytes_per_s"] = host_rate(cupy)
    print(f"a copy to the host: {summary['host_copy_bytes_per_s'] / 1e9:.1f} GB/s")
    summary["detector"] = with_detector(setup, positions, options.repeats, cupy)
    summary["kernels"] = []
    for batch in KERNEL_BATCHES:
        summary["kernels"] += kernels(plan, setup, positions, batch, bandwidth, cupy)
    if not options.no_abtem:
        summary |= beside_abtem(abtem_job(atoms, grid, positions), seconds, best)
    frame.finish(options, summary)
    return 0


def not_run(reason: str) -> int:
    """Prints why nothing was measured, and returns the exit code."""
    print(f"simulate_gpu: {reason}", file=sys.stderr)
    return 2


def fused(setup: Optics, positions: Array, batch: int | None, binning: Binning = None) -> Program:
    """Returns the function that adds patterns of the fused engine to an array."""
    engine = fused_gpu.FusedGpuEngine(setup.grid, setup.slices, setup.fresnel, batch=batch)
    return lambda cbed: engine.prepare(setup.lens).add_patterns(
        cbed, positions, binning, lambda done, total: None
    )


def twin(setup: Optics, positions: Array) -> Program:
    """Returns the function that adds patterns of the plain engine with cuFFT to an array."""

    def add(cbed: Array) -> None:
        engine = multislice.PlainEngine(setup.grid, setup.slices, setup.fresnel)
        probes = engine.prepare(setup.lens)
        probes.add_patterns(cbed, positions, None, lambda done, total: None)

    return add


def take_turns(
    setup: Optics, positions: Array, options: argparse.Namespace
) -> tuple[dict[str, float], dict[str, float]]:
    """Returns the median times of the programs, and the difference of their patterns from the
    twin's.
    """
    programs = {}
    for batch in options.batch or [None]:
        programs[f"fused, batch {batch or 'auto'}"] = fused(setup, positions, batch)
    programs[TWIN] = twin(setup, positions)
    patterns = {}
    times: dict[str, list[float]] = {name: [] for name in programs}
    # The first round compiles and plans, and is not counted.
    for repeat in range(-1, options.repeats):
        for name, program in programs.items():
            cbed = np.zeros((len(positions), *setup.grid.shape), np.float32)
            taken = frame.seconds_of(partial(program, cbed))
            if repeat >= 0:
                times[name].append(taken)
            patterns[name] = cbed[: min(16, len(cbed))].copy()
    seconds = {}
    difference = {}
    for name in programs:
        seconds[name] = statistics.median(times[name])
        error = np.linalg.norm(patterns[name] - patterns[TWIN])
        difference[name] = float(error / np.linalg.norm(patterns[name]))
    return seconds, difference


def parse() -> argparse.Namespace:
    parser = frame.parser(__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="rounds that are counted")
    parser.add_argument("--probes", type=int, default=1024)
    parser.add_argument("--grid", type=int, default=512, help="pixels along each axis")
    parser.add_argument(
        "--batch",
        type=int,
        nargs="+",
        help="probes a batch of the fused engine; several are compared",
    )
    parser.add_argument("--no-abtem", action="store_true", help="leave abTEM out")
    return parser.parse_args()


def workload(pixels: int, probes: int) -> tuple[ase.Atoms, Grid, Floats]:
    """Atoms, grid and probe positions in Å as (y, x); the probes lie in three unit cells and
    between.
    """
    atoms = titanate(199.2, lateral=101.5)
    width, height, _ = atoms.cell.lengths()
    unit_cell = width / 26
    positions = 40 + np.random.default_rng(0).uniform(0, 3 * unit_cell, (probes, 2))
    return atoms, Grid((pixels, pixels), (height, width)), positions


def on_device(atoms: ase.Atoms, grid: Grid, cupy: ModuleType) -> Optics:
    """Returns lens, slices and propagator."""
    sigma = optics.interaction_constant(ENERGY_EV)
    dtype = np.dtype(np.complex64)
    slices = specimen.build(atoms, grid, SLICE_ANGSTROM, sigma, "lobato", dtype, cupy).slices
    fresnel = multislice.propagator(
        grid, optics.wavelength_angstrom(ENERGY_EV), slices.thicknesses_angstrom[0]
    )
    lens = optics.lens(grid, optics.BeamSettings(ENERGY_EV, SEMIANGLE_MRAD, {}))
    lens = cupy.asarray(lens.astype(np.complex64))
    fresnel = cupy.asarray(fresnel.astype(np.complex64))
    cupy.cuda.Device().synchronize()
    return Optics(grid, lens, slices, fresnel)


def copy_rate(cupy: ModuleType) -> float:
    """Bytes a second, read and written, of copies from one buffer of 1 GiB to another; the median
    of 20.
    """
    source = cupy.ones(2**28, np.float32)
    target = cupy.empty(2**28, np.float32)
    stream = cupy.cuda.get_current_stream()
    copy = partial(target.data.copy_from_device_async, source.data, source.nbytes, stream)
    return 2 * source.nbytes / event_seconds(copy, cupy, 20)


def host_rate(cupy: ModuleType) -> float:
    """Bytes a second of copies of 1 GiB to page-locked memory of the host; the median of 5."""
    import cupyx

    source = cupy.ones(2**28, np.float32)
    target = cupyx.empty_pinned(2**28, np.float32)
    return source.nbytes / event_seconds(lambda: source.get(out=target, blocking=False), cupy, 5)


def event_seconds(work: Callable[[], object], cupy: ModuleType, repeats: int) -> float:
    """The median time of `work` on the current stream, by events, after one run that is not
    counted.
    """
    times = []
    for _ in range(repeats + 1):
        before = cupy.cuda.Event()
        after = cupy.cuda.Event()
        before.record()
        work()
        after.record()
        after.synchronize()
        times.append(cupy.cuda.get_elapsed_time(before, after) * 1e-3)
    return statistics.median(times[1:])


def with_detector(
    setup: Optics, positions: Array, repeats: int, cupy: ModuleType
) -> dict[str, Any]:
    """The median time of all patterns on a detector whose pixels the card sums; one run is not
    counted.
    """
    matrices = detector.bin_matrices(setup.grid, optics.wavelength_angstrom(ENERGY_EV), DETECTOR)
    along_y, along_x = (cupy.asarray(matrix, np.float32) for matrix in matrices)
    program = fused(setup, positions, None, (along_y, along_x))
    times = []
    cbed = np.zeros((len(positions), len(matrices[0]), matrices[1].shape[1]), np.float32)
    for _ in range(repeats + 1):
        times.append(frame.seconds_of(partial(program, cbed)))
    rows, columns = cbed.shape[1:]
    seconds = statistics.median(times[1:])
    print(f"{rows}×{columns} pixels: {seconds:.3f} s")
    return {"pixels": [rows, columns], "seconds": seconds}


def kernels(
    plan: KernelPlan,
    setup: Optics,
    positions: Array,
    batch: int,
    bandwidth: float,
    cupy: ModuleType,
) -> list[dict[str, Any]]:
    """For each kernel, its seconds a batch, its share of the rate of a copy, registers, and bytes
    spilt a thread.
    """
    launch = fused_gpu.device_launch(plan)
    shared = fused_gpu.operands(plan, setup.lens, setup.fresnel, cupy)
    waves = cupy.ones((batch, plan.y.n, plan.pitch), np.complex64)
    patterns = cupy.zeros((batch, *setup.grid.shape), np.float32)
    at = cupy.asarray(np.resize(positions, (batch, 2)))
    ramp = fused_gpu.ramps(plan, setup.grid, at, cupy)
    propagator = shared.propagators[0]
    arguments = {
        "enter": (waves, shared.lens, *ramp, shared.roots_y),
        "rows": (waves, setup.slices.transmissions[0], shared.roots_x),
        "columns": (waves, propagator, shared.roots_y),
        "leave": (waves, propagator, shared.roots_y, patterns),
    }
    moved = dict.fromkeys(arguments, 2 * waves.nbytes)  # read and written
    moved["enter"] = waves.nbytes
    moved["leave"] = waves.nbytes + 4 * plan.y.kept * plan.x.kept * batch
    module = cupy.RawModule(code=fused_gpu.source(plan), options=fused_gpu.OPTIONS)
    rows = []
    for name, arrays in arguments.items():
        seconds = kernel_seconds(partial(launch, name, batch, *arrays), cupy)
        kernel = module.get_function(name)
        row = {
            "kernel": name,
            "batch": batch,
            "seconds": seconds,
            "of_a_copy": moved[name] / seconds / bandwidth,
            "registers": kernel.num_regs,
            "spilt_bytes": kernel.local_size_bytes,
        }
        rows.append(row)
        print(
            f"{name:8} batch {batch:3} {seconds / batch * 1e6:6.2f} µs a probe, "
            f"{row['of_a_copy']:.2f} of a copy's rate, {row['registers']} registers"
        )
    return rows


def kernel_seconds(launch: Callable[[], None], cupy: ModuleType) -> float:
    """Returns the time of a kernel. It is launched by a graph, since a launch from Python takes
    longer than a small batch.
    """
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        launch()
        stream.begin_capture()
        for _ in range(REPEATS):
            launch()
        graph = stream.end_capture()
        return event_seconds(partial(graph.launch, stream), cupy, 5) / REPEATS


def abtem_job(atoms: ase.Atoms, grid: Grid, positions: Array) -> dict[str, Any]:
    """Returns the workload as `workers/abtem_patterns.py` takes it."""
    return {
        "positions": atoms.positions.tolist(),
        "numbers": atoms.numbers.tolist(),
        "cell": atoms.cell.lengths().tolist(),
        "grid_shape": list(grid.shape),
        "probes_yx": positions.tolist(),
        "slices": SLICE_ANGSTROM,
        "above_face_angstrom": 0.0,
        "fft": None,
        "energy_ev": ENERGY_EV,
        "semiangle_mrad": SEMIANGLE_MRAD,
    }


def beside_abtem(job: dict[str, Any], seconds: dict[str, float], best: str) -> dict[str, Any]:
    """The fastest abTEM and the ratio of its time to ours; its times are added to `seconds`. A
    failure is told.
    """
    try:
        answers = abtem([job | {"batch": batch} for batch in ABTEM_BATCHES])
    except (OSError, SystemExit) as error:
        print(f"abTEM has not run: {error}")
        return {"abtem_failed": str(error)}
    for n, answer in zip(ABTEM_BATCHES, answers, strict=True):
        seconds[f"abTEM, batch {n}"] = answer["propagation_s"]
    rival = min((name for name in seconds if name.startswith("abTEM")), key=seconds.__getitem__)
    print(f"{rival}: {seconds[rival]:.3f} s, {seconds[rival] / seconds[best]:.1f} times {best}")
    return {"rival": rival, "ratio": seconds[rival] / seconds[best]}


def abtem(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """abTEM's answers, in a process of its own: by this Python if it has abTEM, else in an
    environment of its own.
    """
    command = [sys.executable]
    if importlib.util.find_spec("abtem") is None:
        command = frame.isolated(RIVAL)
    command.append(str(frame.WORKERS / "abtem_patterns.py"))
    process = frame.start(command)
    answers = [frame.ask(process, job) for job in jobs]
    process.communicate()
    return answers


def show(summary: dict[str, Any]) -> None:
    print(
        f"{summary['device']}: {summary['probes']} patterns of {summary['grid']}², "
        f"{summary['slices']} slices"
    )
    for name, seconds in summary["seconds"].items():
        print(f"{name:22} {seconds:8.3f} s {summary['probes'] / seconds:10.0f} patterns/s")
    rate = summary["copy_bytes_per_s"] / 1e12
    print(f"{'roofline':22} {summary['roofline_s']:8.3f} s, at the {rate:.2f} TB/s of a copy\n")
    print(
        f"{summary['best']}: {summary['roofline_fraction']:.2f} of the roofline, "
        f"{summary['ratio']:.1f} times {summary['rival']}; differs from the twin by "
        f"{summary['difference']:.1e}. The potential takes {summary['specimen_s']:.2f} s more.\n"
    )


if __name__ == "__main__":
    sys.exit(main())
