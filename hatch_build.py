"""Compiles namsa/engines/fused.c as namsa is installed, editable or not.

The library goes beside the package, not into the source tree: it then always is the one of the installed build, whose
files uv caches. It is loaded with ctypes and knows nothing of Python, so any C compiler and any Python will do. Where
there is no compiler, or it fails, namsa installs without: simulations then run on SciPy's transforms, slower and to
the same result.
"""

import os
import shlex
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIBRARY = "_namsa_fused.so"
# The source picks instruction sets at run time: a build runs on every processor of its kind.
FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-shared", "-Wno-psabi")


class FusedBuildHook(BuildHookInterface):
    """Hatchling finds it by [tool.hatch.build.targets.wheel.hooks.custom]."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        library = Path(self.directory).absolute() / LIBRARY
        library.parent.mkdir(parents=True, exist_ok=True)
        command = [*shlex.split(os.environ.get("CC") or "cc"), *FLAGS, "-o", str(library), "namsa/engines/fused.c"]
        try:
            subprocess.run(command, cwd=self.root, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            reason = getattr(error, "stderr", None) or error
            self.app.display_warning(f"namsa installs without its compiled engine: {shlex.join(command)}: {reason}")
            return
        build_data["force_include_editable" if version == "editable" else "force_include"][str(library)] = LIBRARY
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        (Path(self.directory) / LIBRARY).unlink(missing_ok=True)  # the wheel has it
