"""The package `train` by the name that it has in an installed wheel, for a checkout.

    import namsa_train

    result = namsa_train.reconstruct("scan.h5", "200kv-20mrad-reality")

`python -m namsa_train` is `namsa-train`, and `namsa_train.networks` is `train.networks`. A
wheel has the package itself by this name (see hatch_build.py).
"""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

import train

PREFIX = "namsa_train."


class _ModulesOfTrain(MetaPathFinder, Loader):
    """Finds `namsa_train.x`: the module `train.x`, never a second copy of it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname.startswith(PREFIX) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module("train." + spec.name.removeprefix(PREFIX))
        spec.loader_state = module.__spec__  # which the import system replaces by `spec`
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


if __name__ == "__main__":
    from train.__main__ import main

    sys.exit(main())
sys.meta_path.insert(0, _ModulesOfTrain())
sys.modules[__name__] = train
