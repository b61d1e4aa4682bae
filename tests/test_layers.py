"""The layers of the packages: a module imports only from its own layer's package or from the layers
below it.

The lists document the structure; a package or module that is in none of them fails the test.
"""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from paths import ROOT

from train.tasks.registry import TASKS
from train.tasks.sections import TaskSections

# From the ground up. Those of one line do not know each other.
LAYERS = {
    "namsa": (
        ("base",),
        ("config",),
        ("crystals", "physics"),
        ("io", "figures"),
        ("samples", "setup"),
        ("engines",),
        ("sampling",),
        ("simulation_plan",),
        ("simulation", "scattered_samples", "pacbed"),
        ("scattering", "tilted_beams"),
        ("dataset",),
        ("inverse", "inspection"),
        ("view", "exchange", "parallax"),
        ("cli",),
        ("__init__", "__main__"),
    ),
    "fcdensenet": (
        ("problems",),
        ("config", "layer_counts", "split"),
        ("blocks", "fused", "philox"),
        ("divided_convolution", "keras_layers", "shape_layers"),
        ("divided_layers",),
        ("build",),
        ("count",),
        ("describe", "step_memory"),
        ("__init__",),
        ("__main__",),
    ),
    "train": (
        ("program",),
        ("execution",),
        ("networks",),
        ("tasks by name",),
        ("experiment",),
        ("ranks",),
        ("input", "measure"),
        ("optimization",),
        ("reports",),
        ("tasks",),
        ("staging", "scaling", "apply", "profiling"),
        ("tasks.card",),
        ("strategies",),
        tuple(f"tasks.{task}" for task in TASKS),
        ("integrations", "pack"),
        ("phases",),
        ("main",),
        ("recipe",),
        ("commands", "evaluation"),
        ("__init__", "__main__"),
    ),
}
BELOW = {
    "namsa": (),
    "fcdensenet": (),
    "train": ("namsa", "fcdensenet"),
}  # the packages that a package stands on


# All that may import them, modules or the beginnings of their names: numbers are written in
# `keras.ops`, and these are their executions, which are imported in the process of their backend
# alone.
EXECUTIONS = {
    "tensorflow": (
        "fcdensenet.fused",
        "train.execution.tensorflow",
        "train.profiling.trace",
        "train.optimization.fused",
        "train.optimization.gradients",
        "train.optimization.tensorflow_step",
        "train.profiling.profile",
        "train.ranks.exchange",
        "train.ranks.buffers",
        "train.ranks.horovod",
        "train.strategies.division.parts.",
        "train.strategies.exchange.",
    ),
    "horovod": ("train.ranks.horovod",),
    "jax": (
        *("fcdensenet.philox", "train.execution.jax", "train.optimization.jax_step"),
        "train.ranks.jax_processes",
    ),
}


def modules() -> dict[str, Path]:
    files = (path for package in LAYERS for path in (ROOT / package).rglob("*.py"))
    return {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in files}


def absolute(path: Path, node: ast.ImportFrom) -> str:
    """The module that `node` imports from. `train`, whose folder has another name in a wheel, names
    itself nowhere.
    """
    package = path.relative_to(ROOT).parent.parts
    within_train = package[0] == "train" and (
        node.level > 0 or str(node.module).split(".")[0] == "train"
    )
    assert (node.level > 0) == within_train, (
        f"{path}:{node.lineno}: imports are relative within train, absolute elsewhere"
    )
    above = package[: len(package) - node.level + 1] if node.level else ()
    return ".".join((*above, *([node.module] if node.module else [])))


def imports(path: Path) -> Iterator[str]:
    """Names of modules of the three packages that `path` imports, at its top or inside a
    function.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            named = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = absolute(path, node)
            prefix = f"{module}."
            named = [
                prefix + alias.name if prefix + alias.name in KNOWN else module
                for alias in node.names
            ]
        else:
            continue
        yield from (
            name if name in KNOWN else f"{name}.__init__"
            for name in named
            if name.split(".")[0] in LAYERS
        )


@cache
def imports_of_all() -> dict[str, list[str]]:
    """Imports of each module. Read once, by the worker that runs these tests, in seconds."""
    return {name: sorted(set(imports(path))) for name, path in KNOWN.items()}


KNOWN = modules()
FLOOR = {
    (package, name): floor
    for package, layers in LAYERS.items()
    for floor, names in enumerate(layers)
    for name in names
}


def part(module: str) -> tuple[str, str]:
    """The package and its sub-package, or module beside the sub-packages, that a module belongs to.

    Each task is a part of its own. The configuration contains the tasks' sections, which are
    therefore below it.
    """
    package, name, *rest = module.split(".")
    if (package, name) == ("train", "tasks"):
        if rest[-1] in ("registry", "sections", "section"):
            return package, "tasks by name"
        if rest == ["card"]:
            return package, "tasks.card"
        if len(rest) > 1:
            return package, f"tasks.{rest[0]}"
    return package, name


@pytest.mark.parametrize("module", KNOWN)
def test_a_module_imports_from_its_own_part_and_from_layers_below(module):
    package, layer = part(module)
    upward = []
    for imported in imports_of_all()[module]:
        other = part(imported)
        if other[0] != package:
            # a program may use the whole distribution
            allowed = other[0] in BELOW[package] or layer == "__main__"
        else:
            allowed = other[1] == layer or FLOOR[other] < FLOOR[package, layer]
        if not allowed:
            upward.append(imported)
    assert not upward


def test_a_strategy_is_imported_by_its_own_modules_alone():
    """The registry imports those that a configuration names, by their names."""
    for module, names in imports_of_all().items():
        for imported in names:
            *seam, kind, _ = imported.split(".")
            if seam[:2] == ["train", "strategies"] and len(seam) == 3:
                assert module.split(".")[:4] == [*seam, kind], f"{module} imports {imported}"
            elif imported.startswith("train.strategies"):  # what the kinds of a seam share
                assert module.startswith("train.strategies"), f"{module} imports {imported}"


def test_no_module_imports_an_integration():
    """They are for other programs, which import them."""
    folder = "train.integrations."
    importers = []
    for module, imported in imports_of_all().items():
        if not module.startswith(folder) and any(folder in name for name in imported):
            importers.append(module)
    assert not importers


def test_a_task_is_a_folder_that_its_registry_alone_imports():
    folders = {path.parent.name for path in (ROOT / "train/tasks").glob("*/__init__.py")}
    assert folders == set(TASKS)
    key = TaskSections.model_json_schema()["properties"]["task"]
    assert sorted(key["enum"]) == sorted(TASKS)
    inside = tuple(f"train.tasks.{task}." for task in TASKS)
    importers = set()
    for module, imported in imports_of_all().items():
        if module.startswith((*inside, "train.integrations.")):  # of networks of the density alone
            continue
        if any(name.startswith(inside) for name in imported):
            importers.add(module)
    assert importers == {"train.tasks.sections"}


def test_no_import_is_circular():
    imports_of = {}
    for name, imported in imports_of_all().items():
        imports_of[name] = set(imported) - {name}
    order = TopologicalSorter(imports_of)
    order.prepare()  # raises CycleError, which names the modules


def test_executions_alone_import_tensorflow_horovod_or_jax():
    importers: dict[str, set[str]] = {library: set() for library in EXECUTIONS}
    for module, path in KNOWN.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names.append(str(node.module))
            for library in {name.split(".")[0] for name in names} & set(EXECUTIONS):
                importers[library].add(module)
    for library, allowed in EXECUTIONS.items():
        assert not {module for module in importers[library] if not module.startswith(allowed)}, (
            library
        )
        for name in allowed:
            assert any(module.startswith(name) for module in importers[library]), (library, name)
