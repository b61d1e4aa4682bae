"""Public names are imported when they are used, and no module hides one."""

import pkgutil
import subprocess
import sys

import pytest
from paths import ROOT

import namsa
import train


@pytest.mark.parametrize("package", [namsa, train])
def test_public_names_are_objects_with_documentation_that_no_module_hides(package):
    """Importing a module of such a name would put it in the place of the function."""
    for name in set(package.__all__) - {"__version__"}:
        assert getattr(package, name).__doc__, name
        assert name in dir(package)
    assert not set(package.__all__) & {module.name for module in pkgutil.iter_modules(package.__path__)}


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="simulat"):
        namsa.simulat  # noqa: B018 - the access is what is tested


def test_the_package_alone_imports_no_library():
    code = "import sys, namsa; print(sorted({'numpy', 'scipy', 'pydantic', 'matplotlib', 'ase'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "[]\n"
