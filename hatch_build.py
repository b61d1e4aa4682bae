"""Compiles namsa/engines/fused.c for a wheel or an editable installation, and names `train` in a
wheel.

The library goes beside the package, not into the source tree: it then always is the one of the
installed build, whose files uv caches. It is loaded with ctypes and knows nothing of Python, so any
C compiler and any Python will do. Where there is no compiler, or it fails, namsa installs without:
simulations then run on SciPy's transforms, slower and to the same result. So they do on macOS and
Windows, for which nothing is compiled.

In a wheel the package `train` is `namsa_train`: `train` is the name of many people's own module. A
checkout has both. The configurations go where `namsa init` finds them.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIBRARY = "_namsa_fused.so"
# The source picks instruction sets at run time: a build runs on every processor of its kind.
FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-shared", "-Wno-psabi")


class NamsaBuildHook(BuildHookInterface):
    """Hatchling finds it by [tool.hatch.build.targets.wheel.hooks.custom]."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        self._built = Path(self.directory).absolute() / ".namsa-build"
        self._built.mkdir(parents=True, exist_ok=True)
        included = build_data[
            "force_include_editable" if version == "editable" else "force_include"
        ]
        if version != "editable":
            included |= {"train": "namsa_train", "configs": "namsa/cli/starter/configs"}
        if self._compile():
            included[str(self._built / LIBRARY)] = LIBRARY
            build_data["pure_python"] = False
            build_data["tag"] = (
                f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
            )

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        shutil.rmtree(self._built, ignore_errors=True)  # the wheel has it

    def _compile(self) -> bool:
        """Compiles the library; returns whether there is one."""
        if not sys.platform.startswith("linux"):
            return False
        compiler = shlex.split(os.environ.get("CC") or "cc")
        command = [*compiler, *FLAGS, "-o", str(self._built / LIBRARY), "namsa/engines/fused.c"]
        try:
            subprocess.run(command, cwd=self.root, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            reason = getattr(error, "stderr", None) or error
            self.app.display_warning(
                f"namsa installs without its compiled engine: {shlex.join(command)}: {reason}"
            )
            return False
        return True
