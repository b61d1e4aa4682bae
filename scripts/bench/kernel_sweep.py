"""Times variants of the fused GPU kernels on a card: rows and columns alone, then whole propagations.

    python kernel_sweep.py OUT [--seconds 60]      compiles, times and checks; writes OUT/sweep.json
    ncu ... python kernel_sweep.py OUT --profile   launches each of the best kernels once, and those of before

A variant is (radices along y and x, threads per line, probes and blocks of rows, tile and blocks of columns, hint).
"""

import argparse
import concurrent.futures
import json
import multiprocessing
import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from namsa.engines import fused_gpu, kernel_plan

BEFORE = Path(__file__).with_name("kernels_before.cu")
HINTS = {
    "": "",
    "cg": "#define LOAD(from) __ldcg(from)\n#define STORE(to, value) __stcg(to, value)\n",
    "cs": "#define LOAD(from) __ldcs(from)\n#define STORE(to, value) __stcs(to, value)\n",
    "cgcs": "#define LOAD(from) __ldcg(from)\n#define STORE(to, value) __stcs(to, value)\n",
}
GRIDS = [(512, 512), (1024, 1024), (360, 432), (256, 256)]


class Variant(NamedTuple):
    y: tuple[int, ...]
    x: tuple[int, ...]
    threads: tuple[int, int]
    row_probes: int
    row_blocks: int
    tile: int
    column_blocks: int
    hint: str = ""

    def plan(self) -> kernel_plan.KernelPlan:
        def axis(radices: tuple[int, ...], threads: int) -> kernel_plan.AxisPlan:
            n = int(np.prod(radices))
            return kernel_plan.AxisPlan(n, radices, n // 3 + 1, n - n // 3, threads)

        y, x = axis(self.y, self.threads[0]), axis(self.x, self.threads[1])
        return kernel_plan.KernelPlan(y, x, self.tile, self.row_probes, (self.row_blocks, self.column_blocks))

    def name(self, kernel: str) -> str:
        radices, threads = (self.x, self.threads[1]) if kernel == "rows" else (self.y, self.threads[0])
        lines, blocks = (self.row_probes, self.row_blocks) if kernel == "rows" else (self.tile, self.column_blocks)
        return f"{'·'.join(map(str, radices))} T{threads} lines {lines} blocks {blocks} {self.hint}"


def square(radices: tuple[int, ...], threads: int, *rest: Any) -> Variant:
    return Variant(radices, radices, (threads, threads), *rest)


VARIANTS: dict[tuple[int, int], list[Variant]] = {
    (512, 512): [
        square((8, 8, 8), 64, 4, 6, 8, 3),
        square((8, 8, 8), 64, 4, 5, 8, 2),
        square((8, 8, 8), 64, 4, 4, 4, 5),
        square((8, 8, 8), 64, 2, 8, 4, 4),
        square((8, 8, 8), 32, 8, 4, 8, 4),
        square((8, 8, 8), 32, 8, 3, 8, 3),
        square((8, 8, 8), 32, 4, 8, 16, 2),
        square((8, 8, 8), 32, 4, 6, 4, 6),
        square((8, 8, 8), 32, 2, 16, 4, 8),
        square((16, 32), 16, 8, 3, 8, 3),
        square((16, 32), 16, 8, 4, 8, 4),
        square((16, 32), 16, 8, 5, 8, 5),
        square((16, 32), 16, 8, 6, 8, 6),
        square((16, 32), 16, 8, 7, 8, 7),
        square((16, 32), 16, 4, 8, 4, 8),
        square((16, 32), 16, 4, 10, 4, 10),
        square((16, 32), 16, 4, 12, 4, 12),
        square((16, 32), 16, 16, 2, 16, 2),
        square((16, 32), 16, 16, 3, 16, 3),
        square((16, 32), 16, 2, 16, 4, 11),
        square((16, 32), 16, 2, 20, 4, 14),
        square((32, 16), 16, 8, 4, 8, 4),
        square((32, 16), 16, 8, 5, 8, 5),
        square((32, 16), 16, 8, 6, 8, 6),
        square((16, 32), 16, 8, 5, 8, 5, "cg"),
        square((16, 32), 16, 8, 5, 8, 5, "cs"),
        square((16, 32), 16, 8, 5, 8, 5, "cgcs"),
        square((16, 32), 16, 8, 4, 16, 3, "cgcs"),
    ],
    (1024, 1024): [
        square((8, 16, 8), 128, 2, 3, 4, 2),
        square((8, 16, 8), 64, 2, 5, 4, 2),
        square((8, 16, 8), 64, 4, 3, 8, 1),
        square((32, 32), 32, 4, 4, 4, 4),
        square((32, 32), 32, 4, 5, 4, 5),
        square((32, 32), 32, 4, 6, 8, 2),
        square((32, 32), 32, 8, 2, 8, 3),
    ],
    (360, 432): [
        Variant((5, 9, 8), (6, 9, 8), (72, 72), 3, 4, 8, 2),
        Variant((18, 20), (18, 24), (20, 24), 4, 5, 8, 3),
        Variant((18, 20), (18, 24), (20, 24), 8, 3, 8, 4),
        Variant((20, 18), (24, 18), (20, 24), 4, 6, 4, 8),
        Variant((15, 24), (24, 18), (24, 24), 8, 2, 8, 3),
    ],
    (256, 256): [
        square((16, 16), 16, 16, 3, 8, 8),
        square((16, 16), 16, 8, 8, 16, 3),
        square((16, 16), 16, 8, 6, 8, 6),
        square((8, 32), 8, 16, 4, 16, 4),
        square((8, 32), 8, 16, 5, 8, 8),
    ],
}


def compiled(variant: Variant | None, folder: Path) -> tuple[str, str]:
    """Compiles a variant (None: the kernels of before); returns the path of the cubin and the compiler's log."""
    import cupy  # noqa: F401 - finds the compiler
    from cupy_backends.cuda.libs import nvrtc

    text = BEFORE.read_text() if variant is None else HINTS[variant.hint] + fused_gpu.source(variant.plan())
    text = text[: text.index("// ramp_y (probes, NY)")]  # without `enter` and `leave`
    major, minor = CAPABILITY
    program = nvrtc.createProgram(text, "kernels.cu", (), ())
    try:
        nvrtc.compileProgram(program, (f"--gpu-architecture=sm_{major}{minor}", *fused_gpu.OPTIONS))
    except Exception:
        return "", nvrtc.getProgramLog(program)
    path = folder / f"{abs(hash((text, CAPABILITY)))}.cubin"
    path.write_bytes(nvrtc.getCUBIN(program))
    return str(path), ""


CAPABILITY = (9, 0)


class Kernels:
    """The kernels of a variant on the device."""

    def __init__(self, variant: Variant | None, path: str, cupy: Any) -> None:
        self.variant = variant
        self.plan = (variant or VARIANTS[512, 512][0]).plan()
        module = cupy.RawModule(path=path)
        self.kernels = {name: module.get_function(name) for name in ("rows", "columns")}
        self.roots = {
            "rows": cupy.asarray(fused_gpu.roots(self.plan.x)),
            "columns": cupy.asarray(fused_gpu.roots(self.plan.y)),
        }
        for name, kernel in self.kernels.items():
            kernel.max_dynamic_shared_size_bytes = kernel_plan.geometry(self.plan, name, 1)[2]

    def work(self, name: str, waves: Any, factor: Any) -> Any:
        grid, block, shared = kernel_plan.geometry(self.plan, name, len(waves))
        arguments = (waves, factor, self.roots[name], np.int32(len(waves)))
        return lambda: self.kernels[name](grid, block, arguments, shared_mem=shared)


def graph_of(works: list[Any], stream: Any) -> Any:
    with stream:
        stream.begin_capture()
        for work in works:
            work()
        return stream.end_capture()


def seconds_of(graphs: list[Any], streams: list[Any], cupy: Any, repeats: int = 3) -> float:
    """The median time in which all graphs, each on its stream, have finished."""
    times = []
    for _ in range(repeats + 1):
        before, after = cupy.cuda.Event(), cupy.cuda.Event()
        before.record(streams[0])
        for stream, graph in zip(streams, graphs, strict=True):
            stream.wait_event(before)
            graph.launch(stream)
        for stream in streams[1:]:
            done = cupy.cuda.Event()
            done.record(stream)
            streams[0].wait_event(done)
        after.record(streams[0])
        after.synchronize()
        times.append(cupy.cuda.get_elapsed_time(before, after) * 1e-3)
    return statistics.median(times[1:])


class Problem:
    """Random waves, t and P of a grid, scaled so that repeated passes keep the norm."""

    def __init__(self, shape: tuple[int, int], batch: int, cupy: Any) -> None:
        rng = np.random.default_rng(0)
        self.shape, self.cupy = shape, cupy
        ny, nx = shape

        def phases(*shape: int) -> Any:
            return np.exp(2j * np.pi * rng.random(shape, dtype=np.float32)).astype(np.complex64)

        self.t, p, noise = phases(ny, nx), phases(ny, nx), phases(4, ny, nx)
        p[ny // 3 + 1 : ny - ny // 3] = 0
        p[:, nx // 3 + 1 : nx - nx // 3] = 0
        noise[:, :, nx // 3 + 1 : nx - nx // 3] = 0
        self.t, self.p, self.noise = (cupy.asarray(a) for a in (self.t, p, noise))
        self.batch = batch

    def packed(self, plan: Any, columns: Any, before: bool) -> Any:
        stored = self.cupy.zeros((*columns.shape[:-1], plan.pitch), np.complex64)
        low, tail = plan.x.low, plan.x.n - plan.x.high
        stored[..., :low] = columns[..., :low]
        place = slice(low, low + tail) if before else slice(plan.pitch - tail, None)
        stored[..., place] = columns[..., plan.x.high :]
        return stored

    def arrays(self, kernels: "Kernels", batch: int, gain: float = 1) -> tuple[Any, Any, Any]:
        """Waves, t / nx and P / ny in the kernels' layout."""
        ny, nx = self.shape
        plan, before = kernels.plan, kernels.variant is None
        waves = self.packed(plan, self.cupy.concatenate([self.noise] * -(-batch // 4))[:batch], before)
        return waves, self.t * np.float32(gain / nx), self.packed(plan, self.p * np.float32(1 / ny), before)

    def expected(self, name: str) -> Any:
        """Two probes after a pass, in double precision, over the whole rows."""
        nx = self.shape[1]
        waves = self.noise[:2].get().astype(np.complex128)
        if name == "columns":
            return np.fft.ifft(self.p.get() * np.fft.fft(waves, axis=1), axis=1)
        waves = np.fft.fft(self.t.get() * np.fft.ifft(waves, axis=2), axis=2)
        waves[:, :, nx // 3 + 1 : nx - nx // 3] = 0
        return waves


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.profile:
        profile(options.out)
    else:
        sweep(options.out, time.monotonic() + options.seconds)


def sweep(out: Path, end: float) -> None:
    start = time.monotonic()
    pool = concurrent.futures.ProcessPoolExecutor(14, multiprocessing.get_context("spawn"))
    jobs = {
        (shape, v): pool.submit(compiled, v, out)
        for shape in GRIDS
        for v in (*([None] if shape == (512, 512) else []), *VARIANTS[shape])
    }
    import cupy

    device, bandwidth = card(cupy)
    answer: dict[str, Any] = {"device": device, "copy_bytes_per_s": bandwidth, "kernels": []}
    for shape in GRIDS:
        batch = 96 * 2**18 // (shape[0] * shape[1])
        small = max(4, batch // 6)
        problem = Problem(shape, batch, cupy)
        expected = {name: problem.expected(name) for name in ("rows", "columns")}
        built: list[Kernels] = []
        rows: list[dict[str, Any]] = []
        for variant in [v for s, v in jobs if s == shape]:
            path, log = jobs[shape, variant].result()
            if not path:
                print(shape, variant, "does not compile:", log[:2000])
                continue
            try:
                kernels = Kernels(variant, path, cupy)
                built.append(kernels)
                for name in ("rows", "columns"):
                    row = measure(kernels, name, problem, expected[name], batch, small, cupy)
                    rows.append(row | {"grid": shape, "at": len(built) - 1, "path": path})
            except Exception as error:
                print(shape, variant, "failed:", repr(error)[:300])
            if time.monotonic() > end:
                print("out of time")
                break
        answer["kernels"] += rows
        show(shape, rows, bandwidth)
        (out / "sweep.json").write_text(json.dumps(answer))
        if time.monotonic() > end:
            break
        best = {
            name: min((r for r in rows if r["kernel"] == name), key=lambda r: (r["error"] > 1e-6, r["us"]))
            for name in ("rows", "columns")
        }
        answer.setdefault("best", {})[f"{shape}"] = best
        columns = built[best["columns"]["at"]]
        rower = built[best["rows"]["at"]]
        if rower.plan.pitch != columns.plan.pitch and rower.variant is not None:
            variant = rower.variant._replace(tile=columns.plan.tile)
            rower = Kernels(variant, pool.submit(compiled, variant, out).result()[0], cupy)
        pairs = [("best", rower, columns)] + [("before", built[0], built[0])] * (shape == (512, 512))
        answer.setdefault("whole", []).extend(whole(pairs, problem, batch, bandwidth, cupy, end))
        (out / "sweep.json").write_text(json.dumps(answer))
        print(f"{time.monotonic() - start:.0f} s so far", flush=True)
    pool.shutdown(cancel_futures=True)


def card(cupy: Any) -> tuple[str, float]:
    """The device's name and its bytes a second of a copy."""
    properties = cupy.cuda.runtime.getDeviceProperties(0)
    source, target = cupy.ones(2**28, np.float32), cupy.empty(2**28, np.float32)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    graph = graph_of([lambda: target.data.copy_from_device_async(source.data, source.nbytes, stream)] * 5, stream)
    bandwidth = 10 * source.nbytes / seconds_of([graph], [stream], cupy)
    name = properties["name"].decode()
    print(f"{name}, L2 {properties['l2CacheSize'] / 2**20:.0f} MiB, copy {bandwidth / 1e12:.2f} TB/s")
    return name, bandwidth


def measure(
    kernels: Kernels, name: str, problem: Problem, expected: Any, batch: int, small: int, cupy: Any
) -> dict[str, Any]:
    plan, variant = kernels.plan, kernels.variant
    factor = problem.arrays(kernels, 1)[1 if name == "rows" else 2]
    waves = problem.arrays(kernels, batch)[0]
    kernels.work(name, waves, factor)()
    found = cupy.zeros((2, *problem.shape), np.complex64)
    low, high = plan.x.low, plan.x.high
    tail = plan.x.n - high
    found[:, :, :low] = waves[:2, :, :low]
    found[:, :, high:] = waves[:2, :, plan.pitch - tail :] if variant is not None else waves[:2, :, low : low + tail]
    error = float(np.linalg.norm(found.get() - expected) / np.linalg.norm(expected))
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    times = []
    for probes, count in ((batch, 6), (small, 24)):
        graph = graph_of([kernels.work(name, waves[:probes], factor)] * count, stream)
        times.append(seconds_of([graph], [stream], cupy) / count / probes * 1e6)
    kernel = kernels.kernels[name]
    return {
        "kernel": name,
        "variant": variant.name(name) if variant else "before",
        "us": times[0],
        "us_small": times[1],
        "registers": kernel.num_regs,
        "spilt": kernel.local_size_bytes,
        "error": error,
        "bytes": 16 * plan.y.n * plan.pitch,
    }


def show(shape: tuple[int, int], rows: list[dict[str, Any]], bandwidth: float) -> None:
    print(f"\n{shape}: kernel, µs a probe in a large batch and in a sixth, of a copy's rate, registers, spilt, error")
    for name in ("rows", "columns"):
        for row in sorted((r for r in rows if r["kernel"] == name), key=lambda r: r["us"]):
            share = row["bytes"] / bandwidth / row["us"] * 1e6
            numbers = f"{row['us']:7.3f} {row['us_small']:7.3f} {share:5.2f} {row['registers']:4} {row['spilt']:4}"
            print(f"{name:8}{numbers} {row['error']:.1e}  {row['variant']}", flush=True)


def whole(pairs: Any, problem: Problem, batch: int, bandwidth: float, cupy: Any, end: float) -> list[dict[str, Any]]:
    """50 slices of rows and columns for batches and numbers of streams; µs a probe and slice."""
    answers = []
    slices = 50
    for label, rower, columns in pairs:
        for streams in (1, 2, 3) if label == "best" else (1,):
            for share in (12, 8, 6, 4, 3, 2, 1):
                probes = max(1, batch // share)
                if probes * streams > batch * 2 or time.monotonic() > end:
                    continue
                line, graphs = [cupy.cuda.Stream(non_blocking=True) for _ in range(streams)], []
                kept = []
                for stream in line:
                    waves, t, p = problem.arrays(columns, probes, 1.5)
                    kept.append((waves, t, p))
                    cupy.cuda.Device().synchronize()
                    works = [rower.work("rows", waves, t), columns.work("columns", waves, p)] * slices
                    graphs.append(graph_of(works, stream))
                each = seconds_of(graphs, line, cupy, 3) / slices / probes / streams * 1e6
                share_of = 4 * 8 * columns.plan.y.n * columns.plan.pitch / bandwidth / each * 1e6
                answers.append({"grid": problem.shape, "pair": label, "streams": streams, "batch": probes, "us": each})
                text = f"whole, {label}: {streams} streams, batch {probes:3}: {each:6.3f} µs a probe and slice"
                print(f"{text}, {share_of:.2f} of the roofline", flush=True)
    return answers


def profile(out: Path) -> None:
    import cupy

    best = json.loads((out / "sweep.json").read_text())["best"]["(512, 512)"]
    problem = Problem((512, 512), 96, cupy)
    before = next(
        r["path"] for r in json.loads((out / "sweep.json").read_text())["kernels"] if r["variant"] == "before"
    )
    for name in ("rows", "columns"):
        variants: list[Variant | None] = [
            *(v for v in VARIANTS[512, 512] if v.name(name) == best[name]["variant"]),
            None,
        ]
        for variant, path in ((variants[0], best[name]["path"]), (None, before)):
            kernels = Kernels(variant, path, cupy)
            waves, t, p = problem.arrays(kernels, 96)
            kernels.work(name, waves, t if name == "rows" else p)()
    cupy.cuda.Device().synchronize()


if __name__ == "__main__":
    main()
