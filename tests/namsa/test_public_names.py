"""`import namsa`: public names are imported when they are used, and `namsa.simulate` is the function."""

import importlib
import subprocess
import sys

import pytest
from paths import ROOT

import namsa


@pytest.mark.parametrize("name", namsa._MODULES)
def test_a_public_name_is_that_of_its_module(name):
    assert getattr(namsa, name) is getattr(importlib.import_module(namsa._MODULES[name]), name)
    assert name in dir(namsa)
    assert getattr(namsa, name).__doc__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'namsa' has no attribute 'simulat'"):
        namsa.simulat  # noqa: B018 - the access is what is tested


@pytest.mark.parametrize("name", ["simulate", "scatter"])
def test_importing_the_module_does_not_hide_the_function(name):
    code = f"import namsa.{name}, namsa; print(callable(namsa.{name}), namsa.{name}.__module__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == f"True namsa.{name}\n"


def test_the_package_alone_imports_no_library():
    code = "import sys, namsa; print(sorted({'numpy', 'scipy', 'pydantic', 'matplotlib', 'ase'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "[]\n"
