"""Code is found by its name, and what is not there is an error that names it."""

import sys

import pytest
from installed_package import install

from namsa import InputError
from namsa.base import registry as registry_module
from namsa.base.registry import (
    Registry,
    allow_function,
    allowed_function,
    entry_points,
    function_named,
)


@pytest.fixture
def registry(tmp_path, monkeypatch):
    for kind in ("beta", "alpha", "empty"):
        folder = tmp_path / "kinds_of_test" / "seam" / kind
        folder.mkdir(parents=True)
        if kind != "empty":
            (folder / "section.py").write_text(f"NAME = {kind!r}\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield Registry("kinds_of_test", tmp_path / "kinds_of_test")
    for name in [name for name in sys.modules if name.startswith("kinds_of_test")]:
        del sys.modules[name]


def test_modules_below_a_package_are_found_by_name(registry):
    assert registry.names("seam", having="section.py") == ["alpha", "beta"]
    assert registry.module("seam", "beta", "section").NAME == "beta"
    assert registry.find("seam", "empty", "section") is None
    with pytest.raises(ModuleNotFoundError, match="gamma"):
        registry.module("seam", "gamma")


def test_functions_are_found_in_modules_and_files(tmp_path):
    assert function_named("os.path:join")("a", "b") == "a/b"
    file = tmp_path / "own.py"
    file.write_text("def twice(x):\n    return 2 * x\n\n\nnumber = 3\n")
    assert function_named(f"{file}:twice")(4) == 8
    for name, message in (("absent", "has no absent"), ("number", "is a int, not a function")):
        with pytest.raises(ImportError, match=message):
            function_named(f"{file}:{name}")


@pytest.fixture
def other_package(tmp_path, monkeypatch):
    """A package that is installed beside this one, with an entry point of a seam."""
    modules = {
        "other_package_of_test/__init__.py": "",
        "other_package_of_test/section.py": "NAME = 'gamma of others'\n",
        "decoy.py": "raise AssertionError\n",
    }
    points = {"gamma": "other_package_of_test", "alpha": "decoy"}
    install(tmp_path, monkeypatch, modules, "kinds.seam", points)
    yield tmp_path / "other_package_of_test"
    sys.modules.pop("other_package_of_test", None)
    sys.modules.pop("other_package_of_test.section", None)


def test_another_package_adds_kinds_by_entry_points_and_replaces_none(
    registry, other_package, tmp_path
):
    open_registry = Registry("kinds_of_test", tmp_path / "kinds_of_test", "kinds")
    assert open_registry.names("seam", having="section.py") == ["alpha", "beta", "gamma"]
    assert open_registry.module("seam", "gamma", "section").NAME == "gamma of others"
    assert open_registry.module("seam", "alpha", "section").NAME == "alpha"
    assert open_registry.find("seam", "gamma", "code") is None
    assert registry.names("seam", having="section.py") == ["alpha", "beta"]  # without a group


def test_two_packages_of_one_name_are_refused(other_package):
    second = other_package.parent / "second-1.dist-info"
    second.mkdir()
    (second / "METADATA").write_text("Metadata-Version: 2.1\nName: second\nVersion: 1\n")
    (second / "entry_points.txt").write_text("[kinds.seam]\ngamma = another\n")
    with pytest.raises(InputError, match="gamma of kinds.seam is .*: uninstall one"):
        entry_points("kinds.seam")


def test_a_function_is_run_if_the_command_or_the_environment_names_it(monkeypatch):
    monkeypatch.setattr(registry_module, "_allowed", set())
    with pytest.raises(InputError, match="not run unasked: set NAMSA_FUNCTIONS=os.path:join in"):
        allowed_function("os.path:join", "key")
    monkeypatch.setenv("NAMSA_FUNCTIONS", "os:stat, os.path:join")
    assert allowed_function("os.path:join", "key")("a", "b") == "a/b"
    monkeypatch.delenv("NAMSA_FUNCTIONS")
    allow_function("os.path:join")
    assert allowed_function("os.path:join", "key")("a", "b") == "a/b"
