"""Libraries and devices of this machine, and the command that installs what it lacks.

TensorFlow, JAX, Horovod and CuPy are imported in processes of their own. They may be missing or
crash, and to load them here would start devices that a later computation sets up itself.
"""

import importlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from rich.table import Table
from rich.text import Text

from namsa.base.errors import InputError
from namsa.base.installation import CHECKOUT, HOROVOD, SYNC, command
from namsa.base.launcher import rank_and_size
from namsa.cli.machine_report import Check, Report
from namsa.engines import fused_library
from namsa.physics.backend import available_cores

if CHECKOUT:
    SYNC_GPU = "scripts/uv sync --no-group cpu --extra train --extra gpu"
else:
    SYNC_GPU = "pip install 'namsa[gpu]'"
if CHECKOUT:
    REBUILD = f"scripts/uv cache clean horovod && {SYNC} --reinstall-package horovod"
else:
    REBUILD = HOROVOD
if CHECKOUT:
    REBUILD_GPU = f"source scripts/horovod_nccl.sh && {SYNC_GPU}, with nvcc of CUDA 12 on PATH"
else:
    REBUILD_GPU = (
        "build it in a checkout, with nvcc of CUDA 12 on PATH: source scripts/horovod_nccl.sh"
    )
SHOW_GPU = (
    "start each rank with a GPU (jsrun -g 1, srun --gpus-per-task=1), and see what nvidia-smi "
    "lists there"
)
PROBE_TIMEOUT_S = 120.0
LIBRARIES = ("numpy", "scipy", "h5py", "lmdb", "ase", "gemmi", "pymatgen", "spglib", "xxhash")
NETWORK_FILE_SYSTEMS = ("nfs", "lustre", "gpfs", "beegfs", "ceph", "panfs", "cifs", "fuse.sshfs")

_TENSORFLOW = """
import json, tensorflow as tf, keras
print(json.dumps({"tensorflow": tf.__version__, "keras": keras.__version__,
    "cuda": tf.test.is_built_with_cuda(),
    "gpus": [tf.config.experimental.get_device_details(g).get("device_name", g.name)
        for g in tf.config.list_physical_devices("GPU")]}))
"""
_JAX = """
import json, jax
kinds = sorted({device.device_kind for device in jax.devices()})
print(json.dumps({"version": jax.__version__, "devices": kinds}))
"""
_HOROVOD = """
import json, horovod, horovod.tensorflow as hvd
print(json.dumps({"version": horovod.__version__, "gloo": bool(hvd.gloo_built()),
    "mpi": bool(hvd.mpi_built()), "nccl": bool(hvd.nccl_built())}))
"""
_CUPY = """
import json, cupy
def device(i):
    p = cupy.cuda.runtime.getDeviceProperties(i)
    return {"name": p["name"].decode(), "memory_gib": round(p["totalGlobalMem"] / 2**30, 1),
        "bus": cupy.cuda.Device(i).pci_bus_id}
print(json.dumps({"version": cupy.__version__, "cuda": cupy.cuda.runtime.runtimeGetVersion(),
    "devices": [device(i) for i in range(cupy.cuda.runtime.getDeviceCount())]}))
"""


class Probe(NamedTuple):
    """The answer of a process of its own: a JSON value, or None and the fault."""

    answer: Any
    fault: str = ""


def report(
    directory: Path = Path(),
    *,
    gpu: bool = False,
    timeout_s: float = PROBE_TIMEOUT_S,
    backend: str | None = None,
) -> Report:
    """Checks this machine. Whatever is missing or broken is reported, never raised.

    Args:
        gpu: Whether a job on GPUs needs this machine: CuPy, a GPU for TensorFlow, and NCCL in
            Horovod; under JAX, CuPy and a GPU for JAX.
        timeout_s: Time for TensorFlow, JAX, Horovod and CuPy to be imported.
        backend: What computes networks here. Under "jax" ranks need neither TensorFlow nor Horovod,
            which are not looked for. `None` for what KERAS_BACKEND names.
    """
    under_jax = (backend or os.environ.get("KERAS_BACKEND")) == "jax"
    probes = [_CUPY]
    if not under_jax:
        probes += [_TENSORFLOW, _HOROVOD]
    # several ranks of TensorFlow have no use for JAX
    if under_jax or not _several_ranks():
        probes.append(_JAX)
    with ThreadPoolExecutor() as pool:
        probed = dict(
            zip(probes, pool.map(lambda code: probe(code, timeout_s), probes), strict=True)
        )
    return Report(
        (
            *_machine(),
            *(
                _disk(name, path)
                for name, path in (("data", directory), ("temporary", Path(tempfile.gettempdir())))
            ),
            *map(_library, LIBRARIES),
            _engine(),
            _cupy(probed[_CUPY], gpu),
            *(_jax_alone(probed[_JAX], gpu) if under_jax else _tensorflow_or_jax(probed, gpu)),
            _launcher(),
        )
    )


def _tensorflow_or_jax(probed: Mapping[str, Probe], gpu: bool) -> list[Check]:
    """Returns what trains here: TensorFlow with Horovod, or in one process JAX."""
    jax = probed.get(_JAX)
    # one of the two is enough for one process
    needed = jax is None or (CHECKOUT and jax.answer is None)
    checks = _tensorflow(probed[_TENSORFLOW], gpu, needed)
    if jax:
        checks.append(_jax(jax, needed=False))
    return checks + _horovod(probed[_HOROVOD], gpu)


def _jax_alone(probed: Probe, gpu: bool) -> list[Check]:
    """Returns what trains here if it is JAX that computes."""
    checks = [_jax(probed, needed=True)]
    if probed.answer:
        devices = [kind for kind in probed.answer["devices"] if kind != "cpu"]
        listed = ", ".join(devices) or "JAX finds none"
        remedy = f"{SHOW_GPU}, and install JAX for it (pip install 'jax[cuda12]')"
        checks.append(Check("training", "GPUs", bool(devices), listed, remedy, needed=gpu))
    return checks


def table(report: Report) -> Table:
    """Returns a report as a table for a terminal, without the remedies."""
    lines = Table("", "", "found", box=None, pad_edge=False, header_style="dim")
    group = None
    for check in report.checks:
        if check.group != group:
            group = check.group
            lines.add_row("", Text(group, "bold"))
        lines.add_row(_mark(check), check.name, Text(check.found))
    return lines


def _mark(check: Check) -> Text:
    if check.ok:
        return Text("ok", "green")
    if check.needed:
        return Text("missing", "red")
    return Text("none", "yellow")


def remedies(report: Report) -> str:
    """Returns a line for each thing that is not there: its name and the command that installs
    it.
    """
    return "\n".join(
        f"{check.name}: {check.remedy}" for check in report.checks if not check.ok and check.remedy
    )


def _machine() -> list[Check]:
    version = sys.version_info
    cores = available_cores()
    memory = psutil.virtual_memory().total / 2**30
    return [
        Check(
            "machine",
            "Python",
            (3, 11) <= version < (3, 15),
            f"{platform.python_version()} ({sys.executable})",
            "scripts/uv python pin 3.11, then " + SYNC
            if CHECKOUT
            else "an environment of Python 3.11 to 3.14",
        ),
        Check("machine", "cores", True, f"{cores} usable of {os.cpu_count()}"),
        Check("machine", "memory", True, f"{memory:.1f} GiB"),
    ]


def _disk(name: str, path: Path) -> Check:
    try:
        free = shutil.disk_usage(path).free
        kind = _file_system(path.resolve())
    except OSError as error:
        return Check(
            "machine",
            f"{name} disk",
            False,
            f"{path}: {error.strerror}",
            f"mkdir -p {path}",
            needed=False,
        )
    if kind.startswith(NETWORK_FILE_SYSTEMS):
        shared = ", shared: keep datasets on a node's own disk"
    else:
        shared = ""
    return Check(
        "machine",
        f"{name} disk",
        True,
        f"{path.resolve()}: {free / 2**30:.1f} GiB free, {kind}{shared}",
    )


def _file_system(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """Returns the type of the file system of `path`: that of the deepest mount above it, of equal
    ones the latest.
    """
    if not mounts.exists():
        return "unknown"
    kind_of_deepest = "unknown"
    most_parts = 0
    for line in mounts.read_text().splitlines():
        _, point, kind, *_ = line.split()
        parts = len(Path(point).parts)
        if parts >= most_parts and path.is_relative_to(point.replace("\\040", " ")):
            kind_of_deepest = kind
            most_parts = parts
    return kind_of_deepest


def _library(name: str) -> Check:
    try:
        importlib.import_module(name)
        return Check("simulation", name, True, metadata.version(name))
    except Exception as error:  # a binary that does not fit raises anything
        return Check("simulation", name, False, f"{type(error).__name__}: {error}", command(name))


def _engine() -> Check:
    remedy = "with a C compiler on PATH: scripts/uv sync --reinstall-package namsa"
    if not CHECKOUT:
        remedy = "a wheel for Linux, or with a C compiler on PATH: pip install from the source"
    if fused_library.available():
        engine = f"fused, with vectors of {fused_library.vector_bytes()} bytes"
    else:
        engine = "plain, on SciPy's FFT"
    return Check(
        "simulation", "compiled engine", fused_library.available(), engine, remedy, needed=False
    )


def _cupy(probed: Probe, gpu: bool) -> Check:
    answer = probed.answer
    if answer is None:
        # installed, and without a driver or a device
        remedy = SHOW_GPU if "cudaError" in probed.fault else SYNC_GPU
        return Check("simulation", "CuPy", False, probed.fault, remedy, needed=gpu)
    devices = []
    buses = []
    memories = []
    for device in answer["devices"]:
        devices.append(f"{device['name']} {device['memory_gib']} GiB")
        buses.append(device["bus"])
        memories.append(device["memory_gib"])
    listed = ", ".join(devices) or "no device"
    return Check(
        "simulation",
        "CuPy",
        bool(devices),
        f"{answer['version']}: {listed}",
        SHOW_GPU,
        gpu,
        tuple(buses),
        min(memories, default=None),
    )


def _tensorflow(probed: Probe, gpu: bool, needed: bool) -> list[Check]:
    answer = probed.answer
    if answer is None:
        remedy = SYNC_GPU if gpu else command("tensorflow")
        return [Check("training", "TensorFlow", False, probed.fault, remedy, needed or gpu)]
    gpus = ", ".join(answer["gpus"]) or (
        "no device" if answer["cuda"] else "this build is for CPUs"
    )
    return [
        Check("training", "TensorFlow", True, answer["tensorflow"]),
        Check("training", "Keras", True, answer["keras"]),
        Check(
            "training",
            "GPUs",
            bool(answer["gpus"]),
            gpus,
            SHOW_GPU if answer["cuda"] else SYNC_GPU,
            needed=gpu,
        ),
    ]


def _jax(probed: Probe, needed: bool) -> Check:
    answer = probed.answer
    if answer is None:
        return Check("training", "JAX", False, probed.fault, command("jax"), needed)
    return Check("training", "JAX", True, f"{answer['version']}: {', '.join(answer['devices'])}")


def _horovod(probed: Probe, gpu: bool) -> list[Check]:
    answer = probed.answer
    if answer is None:
        remedy = SYNC_GPU if gpu and CHECKOUT else command("horovod")
        needed = CHECKOUT or gpu or _several_ranks()
        return [Check("training", "Horovod (several ranks)", False, probed.fault, remedy, needed)]

    def feature(name: str, use: str, lacking: str, remedy: str, needed: bool = False) -> Check:
        present = answer[name.lower()]
        return Check("training", name, present, use if present else lacking, remedy, needed)

    return [
        Check("training", "Horovod (several ranks)", True, answer["version"]),
        feature("Gloo", "horovodrun", "not built in", REBUILD),
        feature(
            "MPI",
            "mpirun, jsrun, srun",
            "not built in: jsrun and srun need it",
            f"with mpicxx on PATH: {REBUILD_GPU if gpu else REBUILD}",
            # Where a launcher that is not Horovod's leaves it to MPI to connect several ranks.
            needed=_several_ranks() and os.environ.get("HOROVOD_CONTROLLER") != "gloo",
        ),
        feature("NCCL", "gradients go from GPU to GPU", "not built in", REBUILD_GPU, needed=gpu),
    ]


def _several_ranks() -> bool:
    """Whether a launcher started this process as one of several ranks."""
    try:
        return rank_and_size()[1] > 1
    except InputError:
        return False


def _launcher() -> Check:
    start = "horovodrun -np N ..., or jsrun or srun"
    try:
        rank, size = rank_and_size()
    except InputError as error:
        return Check("ranks", "launcher", False, str(error), start)
    launched = f"rank {rank} of {size}" if size > 1 else "one process"
    return Check("ranks", "launcher", size > 1, launched, start, needed=False)


def probe(code: str, timeout_s: float = PROBE_TIMEOUT_S) -> Probe:
    """Runs `code` in a Python of its own and returns the JSON value that it prints last."""
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Probe(None, f"no answer in {timeout_s:g} s")
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return Probe(None, lines[-1][:200] if lines else f"ended with status {done.returncode}")
    return Probe(json.loads(done.stdout.strip().splitlines()[-1]))
