"""Plans of the GPU engine's kernels: radices, shared memory, batches and NVIDIA's compiler."""

import ctypes
import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

from namsa.base.errors import WorkError
from namsa.engines import fused_gpu, kernel_plan, multislice
from namsa.physics.grid import Grid

V100_SHARED = 96 * 2**10
H100_SHARED = 227 * 2**10


def test_radices_multiply_to_every_smooth_size():
    sizes = []
    for n in range(2, kernel_plan.MAX_PIXELS + 1):
        if kernel_plan.radices(n):
            sizes.append(n)
    for n in sizes:
        stages = kernel_plan.radices(n)
        assert np.prod(stages) == n
        assert set(stages) <= set(kernel_plan.RADICES)
        assert len(stages) <= 4
    assert {96, 128, 250, 343, 512, 768, 1000, 1024} <= set(sizes)
    assert not {11, 131, 1001, 2048} & set(sizes)
    assert [kernel_plan.radices(n) for n in (512, 1024, 360, 432)] == [
        (16, 32),
        (32, 32),
        (18, 20),
        (18, 24),
    ]
    assert kernel_plan.radices(32) == (4, 8)  # one thread of 32 values would do all


def band_limited(shape, shared_limit=H100_SHARED):
    """The plan of a grid of 0.2 Å pixels at 200 kV, as DESIGN.md's sample of the paper."""
    grid = Grid(shape, tuple(0.1953125 * n for n in shape))
    fresnel = multislice.propagator(grid, 0.0250793, 2.0).astype(np.complex64)
    return kernel_plan.make_plan(fresnel, fresnel, shared_limit)


def test_the_papers_sample_is_planned_to_its_roofline():
    plan = band_limited((512, 512))
    assert plan.x.kept == 341  # |kx| <= 170 < 2/3 · 256
    assert (plan.pitch, plan.tile) == (344, 8)
    assert plan.bytes_per_slice == 4 * 512 * 344 * 8  # two passes, each a read and a write
    assert plan.bytes_per_slice < 0.68 * 8.4e6


# Rows: radices, threads, probes and blocks; columns: the same with columns. The fastest of those
# timed on an H200.
TIMED = {
    (512, 512): (((16, 32), 16, 4, 8), ((16, 32), 16, 8, 4)),
    (1024, 1024): (((32, 32), 32, 4, 4), ((32, 32), 32, 8, 2)),
    (360, 432): (((18, 24), 24, 4, 5), ((18, 20), 20, 8, 3)),
    (256, 256): (((16, 16), 16, 8, 6), ((16, 16), 16, 8, 6)),
}


@pytest.mark.parametrize("shape", TIMED)
def test_the_fastest_kernels_are_planned(shape):
    plan = band_limited(shape)
    rows = plan.x.radices, plan.x.threads, plan.row_probes, plan.blocks[0]
    assert (rows, (plan.y.radices, plan.y.threads, plan.tile, plan.blocks[1])) == TIMED[shape]


def test_plans_fit_the_device_or_are_refused():
    wide = np.ones((512, 12), np.complex64)
    tall = np.ones((1024, 12), np.complex64)
    assert kernel_plan.make_plan(wide, wide, V100_SHARED).tile == 8
    assert kernel_plan.make_plan(wide, wide, 64 * 2**10).tile == 4  # Turing
    assert kernel_plan.make_plan(tall, tall, H100_SHARED).tile == 8
    assert kernel_plan.make_plan(tall, tall, V100_SHARED).tile == 4
    assert kernel_plan.make_plan(tall, tall, 16 * 2**10) is None
    assert kernel_plan.make_plan(*[np.ones((131, 12), np.complex64)] * 2, H100_SHARED) is None
    assert kernel_plan.make_plan(*[np.ones((64, 64), complex)] * 2, H100_SHARED) is None
    for n in range(2, kernel_plan.MAX_PIXELS + 1):
        if kernel_plan.supports((n, n), np.complex64):
            ones = np.ones((n, n), np.complex64)
            plan = kernel_plan.make_plan(ones, ones, V100_SHARED)
            for kernel in ("rows", "columns"):
                assert np.prod(kernel_plan.geometry(plan, kernel, 1)[1]) <= 1024
            assert max(plan.shared_bytes) <= V100_SHARED


def test_frequencies_that_only_the_lens_lights_are_kept():
    lens, fresnel = np.zeros((2, 16, 24), np.complex64)
    fresnel[0, :2] = 1
    lens[-3, 5] = 1  # ky = −3, kx = 5
    plan = kernel_plan.make_plan(lens, fresnel, V100_SHARED)
    assert (plan.y.low, plan.y.high) == (4, 13)
    assert (plan.x.low, plan.x.high) == (6, 19)


V100, A100, H100, H200 = (n * 2**20 for n in (6, 40, 50, 60))  # second-level caches, bytes


def test_batches_fit_the_cache_and_the_memory():
    """The batches that were fastest on an H200; where the cache is small, waves of 2^26 bytes."""
    batch_size = kernel_plan.batch_size
    assert [batch_size(band_limited(n), 10**5, 2**36, H200) for n in TIMED] == [12, 4, 20, 48]
    plan = band_limited((512, 512))
    assert [batch_size(plan, 10**5, 2**36, cache) for cache in (V100, A100, H100)] == [47, 8, 12]
    assert batch_size(plan, 20, 2**36, H200) == 10  # two equal ones
    assert batch_size(plan, 1024, 2**26, H200) == 2
    assert batch_size(plan, 1024, 2**36, H200, requested=16) == 16
    with pytest.raises(WorkError, match=r"512×512 needs .* 1\.0 MB free"):
        batch_size(plan, 1024, 10**6, H200)


def nvrtc():
    """NVIDIA's run-time compiler, which needs no device, where a wheel of CUDA 12 or 13, or CUDA,
    has put it.
    """
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(p) for p in (spec.submodule_search_locations or ())] if spec else []
    for library in [p for folder in folders for p in folder.glob("cu*/lib/libnvrtc.so.*")] + [
        "libnvrtc.so"
    ]:
        try:
            return ctypes.CDLL(str(library))
        except OSError:
            continue
    return None


@pytest.mark.parametrize("architecture", ["sm_70", "sm_80", "sm_90"])
@pytest.mark.parametrize("shape", [(512, 512), (1024, 360)])
def test_nvidias_compiler_takes_the_kernels_without_spilling(architecture, shape):
    compiler = nvrtc()
    if compiler is None:
        pytest.skip("no NVRTC")
    major = ctypes.c_int()
    minor = ctypes.c_int()
    compiler.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    if architecture == "sm_70" and major.value > 12:
        pytest.skip("CUDA 13 compiles for no GPU before sm_75")
    ones = np.ones(shape, np.complex64)
    ones[:, shape[1] // 3 : -shape[1] // 3] = 0
    text = fused_gpu.source(kernel_plan.make_plan(ones, ones, V100_SHARED)).encode()
    program = ctypes.c_void_p()
    options = (f"--gpu-architecture={architecture}", "--ptxas-options=-v", *fused_gpu.OPTIONS)
    compiler.nvrtcCreateProgram(ctypes.byref(program), text, b"fused_gpu.cu", 0, None, None)
    arguments = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    fault = compiler.nvrtcCompileProgram(program, len(options), arguments)
    size = ctypes.c_size_t()
    compiler.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    compiler.nvrtcGetProgramLog(program, log)
    report = log.value.decode()
    assert fault == 0, report
    assert report.count("0 bytes spill stores, 0 bytes spill loads") == 4, report
    assert max(map(int, re.findall(r"Used (\d+) registers", report))) <= 128, report
