"""The GPU engine against its plain twin: the kernels' own text run on a CPU, its plans, and a
device where one is.
"""

import dataclasses
import re
import sys
import threading

import cuda_on_cpu
import numpy as np
import pytest

from namsa.base.errors import SimulationWarning
from namsa.config.instrument import Detector
from namsa.engines import fused_gpu, kernel_plan, multislice
from namsa.engines.interface import BatchedProbes
from namsa.physics import detector, optics
from namsa.physics.backend import to_host
from namsa.physics.detector import bin_patterns
from namsa.physics.grid import Grid
from namsa.physics.potential import Slices

V100_SHARED = 96 * 2**10
H100_SHARED = 227 * 2**10
needs_compiler = pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="no g++")


def problem(shape, reach, probes=3, slices=3, seed=0):
    """Random lens, slices and two propagators; the latter and the lens reach `reach` frequencies
    along (y, x).
    """
    rng = np.random.default_rng(seed)
    grid = Grid(shape, (0.1 * shape[0], 0.12 * shape[1]))

    def noise(*leading):
        return rng.normal(size=(*leading, *shape)) + 1j * rng.normal(size=(*leading, *shape))

    inside = np.logical_and.outer(
        *(abs(np.fft.fftfreq(n, 1 / n)) < far + 0.5 for n, far in zip(shape, reach, strict=True))
    )
    phases = np.exp(1j * np.angle(noise(2)))
    lens = inside * noise()
    fresnel = inside * np.exp(1j * np.angle(noise(2)))
    lens /= np.linalg.norm(lens)
    order = np.arange(slices) * 2 % 3 % 2  # 0, 0, 1, ...
    stack = Slices(
        [t.astype(np.complex64) for t in phases], order, np.array([1.5, 2.0]), np.arange(slices) % 2
    )
    positions = rng.uniform(-9, 9, (probes, 2))
    return grid, lens.astype(np.complex64), stack, fresnel.astype(np.complex64), positions


def plain(grid, lens, slices, fresnel, positions):
    """The twin in double precision, from the same numbers."""
    double = dataclasses.replace(
        slices, transmissions=[t.astype(complex) for t in slices.transmissions]
    )
    waves = optics.probes(lens.astype(complex), grid, positions)
    return multislice.intensity(multislice.exit_waves(waves, double, fresnel.astype(complex)))


def fused(plan, launch, grid, lens, slices, fresnel, positions):
    waves = np.full((len(positions), plan.y.n, plan.pitch), np.nan, np.complex64)
    patterns = np.zeros((len(positions), *grid.shape), np.float32)
    ramp = fused_gpu.ramps(plan, grid, positions, np)
    fused_gpu.propagate(
        launch, fused_gpu.operands(plan, lens, fresnel, np), slices, ramp, waves, patterns
    )
    return patterns


def error(patterns, expected):
    return np.linalg.norm(patterns - expected) / np.linalg.norm(expected)


# Together every radix, as first, middle and last stage, pruned and not, along either axis.
CASES = {
    "radices 2 5 6, nothing pruned": ((2, 30), (1, 15), (2,), (5, 6)),
    "radices 4 8 3 6": ((32, 18), (9, 4), (4, 8), (3, 6)),
    "radices 14 15": ((210, 21), (69, 7), (14, 15), (3, 7)),
    "radices 7 10 9 12": ((70, 108), (23, 20), (7, 10), (9, 12)),
    "rows not of whole warps, unequal values": ((16, 432), (5, 143), (16,), (18, 24)),
    "two values of 16 in a thread": ((512, 24), (170, 7), (16, 32), (4, 6)),
    "radices 18 20 32": ((360, 1024), (119, 341), (18, 20), (32, 32)),
    "three stages, 10 in the middle": ((1000, 12), (333, 4), (10, 10, 10), (12,)),
    "three stages of rows": ((9, 672), (4, 223), (9,), (7, 12, 8)),
    "one frequency": ((15, 9), (0, 0), (15,), (9,)),
}


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("case", CASES)
def test_the_kernels_agree_with_the_plain_engine(case, tmp_path):
    shape, reach, radices_y, radices_x = CASES[case]
    inputs = problem(shape, reach, probes=2 if max(shape) > 400 else 5)
    plan = kernel_plan.make_plan(inputs[1], inputs[3][0], V100_SHARED)
    assert (plan.y.radices, plan.x.radices) == (radices_y, radices_x)
    assert plan.x.kept == min(2 * reach[1] + 1, shape[1])
    launch = cuda_on_cpu.build(plan, tmp_path)
    patterns = fused(plan, launch, *inputs)
    assert error(patterns, plain(*inputs)) < 1e-6
    launch.backwards = True
    np.testing.assert_array_equal(
        fused(plan, launch, *inputs), patterns
    )  # else a barrier is missing


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("missing", [0, 1])
@pytest.mark.parametrize(
    "shape", [(32, 18), (18, 32)]
)  # rows exchange through the block's or the warp's barriers
def test_a_missing_barrier_would_be_seen(shape, missing, tmp_path, monkeypatch):
    inputs = problem(shape, (shape[0] // 4, shape[1] // 4))
    plan = kernel_plan.make_plan(inputs[1], inputs[3][0], V100_SHARED)
    text = fused_gpu.source(plan)
    start, end = [match.span() for match in re.finditer(r"barrier<SYNC>\(\);", text)][missing]
    monkeypatch.setattr(fused_gpu, "source", lambda plan: text[:start] + "{}" + text[end:])
    launch = cuda_on_cpu.build(plan, tmp_path)
    one = fused(plan, launch, *inputs)
    launch.backwards = True
    assert not np.array_equal(fused(plan, launch, *inputs), one)


@needs_compiler
def test_rounding_does_not_drift_over_slices(tmp_path):
    inputs = problem((70, 108), (23, 20), probes=1, slices=40)
    plan = kernel_plan.make_plan(inputs[1], inputs[3][0], V100_SHARED)
    patterns = fused(plan, cuda_on_cpu.build(plan, tmp_path), *inputs)
    expected = plain(*inputs)
    single = multislice.intensity(
        multislice.exit_waves(optics.probes(inputs[1], inputs[0], inputs[4]), inputs[2], inputs[3])
    )
    assert single.dtype == np.float32
    assert error(patterns, expected) < 2 * error(single, expected)


@pytest.fixture
def on_stand_in(tmp_path, monkeypatch):
    """The whole engine, with NumPy under a stand-in for CuPy."""
    if cuda_on_cpu.COMPILER is None:
        pytest.skip("no g++")

    def build(grid, lens, slices, fresnel, batch):
        plan = kernel_plan.make_plan(lens, fresnel[0], V100_SHARED)
        cupy, cupyx, launch = cuda_on_cpu.fake_cupy(2**24, cuda_on_cpu.build(plan, tmp_path))
        monkeypatch.setitem(sys.modules, "cupy", cupy)
        monkeypatch.setitem(sys.modules, "cupyx", cupyx)
        monkeypatch.setattr(fused_gpu, "device_plan", lambda lens, fresnel: plan)
        monkeypatch.setattr(fused_gpu, "device_launch", lambda plan: launch)
        return fused_gpu.FusedGpuEngine(grid, slices, fresnel, batch=batch).prepare(lens), cupy

    return build


@pytest.mark.slow
@pytest.mark.parametrize("binned", [False, True])
def test_batches_reach_their_rows_and_the_detector(binned, on_stand_in):
    """13 probes in batches of 2 on two streams by graphs; the last batch has one."""
    grid, *_, positions = inputs = problem((32, 18), (9, 5), probes=13)
    wavelength = 0.025
    pixel_mrad = 1.5 * wavelength / min(grid.extent_angstrom) * 1e3
    camera = Detector(shape=(4, 3), pixel_mrad=pixel_mrad)
    if binned:
        matrices = tuple(
            m.astype(np.float32) for m in detector.bin_matrices(grid, wavelength, camera)
        )
    else:
        matrices = None
    offset = 2.0**-10  # of the patterns' size: it is added to
    cbed = np.full((13, *(camera.shape if binned else grid.shape)), offset, np.float32)
    progress = []
    probes, cupy = on_stand_in(*inputs[:4], batch=2)
    probes.add_patterns(cbed, positions, matrices, lambda *done: progress.append(done))
    assert progress == [(2, 13), (4, 13), (6, 13), (8, 13), (10, 13), (12, 13), (13, 13)]
    assert error(cbed - offset, detector.bin_patterns(plain(*inputs), matrices)) < 1e-6
    assert [[graph.launches, len(graph.work)] for graph in cupy.graphs] == [
        [4, 5],
        [3, 5],
    ]  # 3 slices: 5 launches


@pytest.mark.slow
def test_patterns_do_not_depend_on_batches_or_graphs(on_stand_in, monkeypatch):
    *inputs, positions = problem((32, 18), (9, 5), probes=7)

    def patterns(batch):
        cbed = np.zeros((7, 32, 18), np.float32)
        probes, cupy = on_stand_in(*inputs, batch=batch)
        probes.add_patterns(cbed, positions, None, lambda *done: None)
        return cbed, len(cupy.graphs)

    few, graphs = patterns(2)
    assert graphs == 2
    at_once, graphs = patterns(None)
    assert graphs == 0  # nothing to repeat
    np.testing.assert_array_equal(at_once, few)

    def refuse(stream):
        stream.graph = None
        raise cuda_on_cpu.Error("operation not supported")

    monkeypatch.setattr(cuda_on_cpu.Stream, "end_capture", refuse)
    with pytest.warns(SimulationWarning, match="one by one, slower: operation not supported"):
        launched, graphs = patterns(2)
    np.testing.assert_array_equal(launched, few)


def on_device(cupy, lens, slices, fresnel):
    stack = dataclasses.replace(
        slices, transmissions=[cupy.asarray(t) for t in slices.transmissions]
    )
    return cupy.asarray(lens), stack, cupy.asarray(fresnel)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(14, 30), (360, 432), (700, 128), (512, 640), (1024, 1024)])
@pytest.mark.parametrize("batch", [None, 3])
def test_a_device_agrees_with_the_plain_engine(shape, batch, cupy):
    grid, lens, slices, fresnel, positions = inputs = problem(
        shape, (shape[0] // 3, shape[1] // 3), probes=7
    )
    cbed = np.zeros((7, *shape), np.float32)
    device_lens, device_slices, device_fresnel = on_device(cupy, lens, slices, fresnel)
    probes = fused_gpu.FusedGpuEngine(grid, device_slices, device_fresnel, batch=batch).prepare(
        device_lens
    )
    probes.add_patterns(cbed, positions, None, lambda *done: None)
    assert error(cbed, plain(*inputs)) < 1e-6


@pytest.mark.gpu
def test_a_device_repeats_itself_to_the_bit(cupy):
    """Nothing is summed in an order left to chance, so a difference would be a race."""
    grid, lens, slices, fresnel, positions = problem((512, 384), (170, 128), probes=64, slices=10)
    device_lens, *device = on_device(cupy, lens, slices, fresnel)
    stacks = np.zeros((3, 64, 512, 384), np.float32)
    for stack, batch in zip(stacks, (64, 64, 10), strict=True):
        probes = fused_gpu.FusedGpuEngine(grid, *device, batch=batch).prepare(device_lens)
        probes.add_patterns(stack, positions, None, lambda *done: None)
    np.testing.assert_array_equal(stacks[1], stacks[0])
    np.testing.assert_array_equal(stacks[2], stacks[0])
    waves = multislice.exit_waves(optics.probes(device_lens, grid, positions), *device)
    assert error(stacks[0], to_host(multislice.intensity(waves))) < 5e-6


# ---- The plain engine's copies
# --------------------------------------------------------------------------------------

SHAPE = (4, 6)
PIXELS = (2, 3)


def test_the_plain_engine_computes_a_batch_while_the_one_before_is_copied(monkeypatch):
    """The first copy ends only when the second batch is enqueued. A copy that blocks would wait for
    ever.
    """
    cupy, cupyx, _ = cuda_on_cpu.fake_cupy(2**24, None)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "cupyx", cupyx)
    second = threading.Event()
    overlapped = []
    batches = []
    progress = []
    get = cuda_on_cpu.Array.get

    def late(patterns, stream, **options):
        stream.enqueue(lambda: overlapped.append(second.wait(10)))
        return get(patterns, stream=stream, **options)

    monkeypatch.setattr(cuda_on_cpu.Array, "get", late)

    class Probes(BatchedProbes):
        def patterns(self, positions):
            out = cupy.empty((len(positions), *SHAPE), np.float64)
            cupy.cuda.get_current_stream().enqueue(lambda: np.copyto(out, expected(positions)))
            batches.append(len(positions))
            if len(batches) == 2:
                second.set()
            return out

    def expected(positions):
        return positions[:, :1, None] + np.arange(24.0).reshape(SHAPE)

    rng = np.random.default_rng(0)
    positions = rng.normal(size=(7, 2))
    matrices = (rng.normal(size=(2, 4)), rng.normal(size=(6, 3)))
    cbed = np.full((7, *PIXELS), 0.5)
    Probes(3, on_host=False).add_patterns(
        cbed, positions, matrices, lambda *done: progress.append(done)
    )
    assert batches == [3, 3, 1]
    assert progress == [(3, 7), (6, 7), (7, 7)]
    assert overlapped == [True] * 3
    np.testing.assert_allclose(cbed, 0.5 + bin_patterns(expected(positions), matrices), rtol=1e-12)
