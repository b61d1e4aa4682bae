"""What a build of Horovod sees of NCCL."""

import subprocess

from paths import ROOT


def test_horovod_finds_header_and_library_by_the_names_that_it_looks_for(tmp_path):
    nccl = tmp_path / "nvidia/nccl"
    for file in ("include/nccl.h", "lib/libnccl.so.2"):  # as PyPI's package has them
        (nccl / file).parent.mkdir(parents=True)
        (nccl / file).touch()
    line = f"source scripts/horovod_nccl.sh {tmp_path} && env"
    done = subprocess.run(["bash", "-ec", line], cwd=ROOT, capture_output=True, text=True, check=True)
    environment = dict(line.split("=", 1) for line in done.stdout.splitlines() if line.startswith("HOROVOD_"))
    assert environment.items() >= {
        ("HOROVOD_GPU_OPERATIONS", "NCCL"),
        ("HOROVOD_NCCL_LINK", "SHARED"),
        ("HOROVOD_NCCL_INCLUDE", str(nccl / "include")),
        ("HOROVOD_NCCL_LIB", str(nccl / "lib")),
    }
    assert (nccl / "lib/libnccl.so").exists()
