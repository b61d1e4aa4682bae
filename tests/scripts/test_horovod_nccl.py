"""The variables of NCCL that a build of Horovod sees."""

import os
import subprocess
import tarfile

import pytest
from paths import ROOT


def _with_nvcc(folder, release):
    """Returns the environment with an nvcc of some release first on PATH."""
    nvcc = folder / "nvcc"
    nvcc.write_text(
        f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.131'\n"
    )
    nvcc.chmod(0o755)
    return os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}


def test_horovod_finds_header_and_library_by_the_names_that_it_looks_for(tmp_path):
    nccl = tmp_path / "nvidia/nccl"
    for file in ("include/nccl.h", "lib/libnccl.so.2"):  # as PyPI's package has them
        (nccl / file).parent.mkdir(parents=True)
        (nccl / file).touch()
    line = f"source scripts/horovod_nccl.sh {tmp_path} && env"
    with_nvcc = _with_nvcc(tmp_path, "12.4")
    done = subprocess.run(
        ["bash", "-ec", line], cwd=ROOT, env=with_nvcc, capture_output=True, text=True, check=True
    )
    environment = dict(
        line.split("=", 1) for line in done.stdout.splitlines() if line.startswith("HOROVOD_")
    )
    assert environment.items() >= {
        ("HOROVOD_GPU_OPERATIONS", "NCCL"),
        ("HOROVOD_NCCL_LINK", "SHARED"),
        ("HOROVOD_NCCL_INCLUDE", str(nccl / "include")),
        ("HOROVOD_NCCL_LIB", str(nccl / "lib")),
    }
    assert (nccl / "lib/libnccl.so").exists()


@pytest.mark.parametrize("release", ["11.8", "13.0"])
def test_an_nvcc_of_another_cuda_than_tensorflow_is_refused(release, tmp_path):
    line = f"source scripts/horovod_nccl.sh {tmp_path} && env"
    with_nvcc = _with_nvcc(tmp_path, release)
    done = subprocess.run(
        ["bash", "-c", line], cwd=ROOT, env=with_nvcc, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert f"needs nvcc of CUDA 12, and found {release}: put it first on PATH" in done.stderr


def test_a_node_loads_nccl_from_its_own_environment(tmp_path):
    """`libpython` of the unpacked environment is first on LD_LIBRARY_PATH, before the folder of
    Horovod's build.
    """
    library = tmp_path / "packed/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2"
    library.parent.mkdir(parents=True)
    library.write_text("nccl")
    with tarfile.open(tmp_path / "environment.tar", "w") as archive:
        archive.add(tmp_path / "packed", ".")
    subprocess.run(
        ["scripts/environment.sh", "unpack", tmp_path / "environment.tar", tmp_path / "env"],
        cwd=ROOT,
        check=True,
    )
    assert (tmp_path / "env/libpython/libnccl.so.2").read_text() == "nccl"
