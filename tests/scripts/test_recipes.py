"""The recipes for conda-forge and EasyBuild are made of the archives of a release and a lock."""

import hashlib
import subprocess
import sys

import pytest
import yaml
from paths import ROOT

from namsa.base.version import __version__

PYPI = "https://files.pythonhosted.org/packages/"
SOURCE = f"namsa-{__version__}.tar.gz"
WHEEL = f"namsa-{__version__}-py3-none-manylinux_2_17_x86_64.whl"
LOCK = f"""
[[packages]]
name = "sourced"
version = "0.5"
sdist = {{ url = "{PYPI}aa/sourced-0.5.tar.gz", hashes = {{ sha256 = "5a" }} }}

[[packages]]
name = "compiled"
version = "1.2"
sdist = {{ url = "{PYPI}bb/compiled-1.2.tar.gz", hashes = {{ sha256 = "12" }} }}
[[packages.wheels]]
url = "{PYPI}cc/compiled-1.2-cp312-cp312-manylinux_2_17_x86_64.whl"
hashes = {{ sha256 = "c312" }}
[[packages.wheels]]
url = "{PYPI}dd/compiled-1.2-cp311-cp311-manylinux_2_17_x86_64.whl"
hashes = {{ sha256 = "c311" }}
[[packages.wheels]]
url = "{PYPI}ee/compiled-1.2-py3-none-any.whl"
hashes = {{ sha256 = "c3" }}

[[packages]]
name = "elsewhere"
version = "3.0"
marker = "sys_platform == 'win32'"
sdist = {{ url = "{PYPI}ff/elsewhere-3.0.tar.gz", hashes = {{ sha256 = "30" }} }}
"""


@pytest.fixture(scope="module")
def recipes(tmp_path_factory):
    """The folder of a release of two archives, with the recipes that the script has written."""
    folder = tmp_path_factory.mktemp("dist")
    (folder / SOURCE).write_bytes(b"the source archive")
    (folder / WHEEL).write_bytes(b"the wheel")
    command = [sys.executable, "scripts/packaging/recipes.py", folder]
    subprocess.run(command, cwd=ROOT, input=LOCK, text=True, check=True, timeout=60)
    return folder


@pytest.mark.slow
def test_the_recipe_of_conda_has_the_source_and_the_requirements_by_their_names_there(recipes):
    recipe = yaml.safe_load((recipes / "recipe.yaml").read_text(encoding="utf-8"))
    assert recipe["context"] == {"version": __version__}
    assert recipe["source"]["sha256"] == hashlib.sha256(b"the source archive").hexdigest()
    simulator, *extras = recipe["outputs"]
    required = [line.split()[0] for line in simulator["requirements"]["run"]]
    assert {"python", "numpy", "python-lmdb", "python-xxhash"} <= set(required)
    assert not {"lmdb", "xxhash"} & set(required)
    names = [output["package"]["name"] for output in extras]
    assert names == ["namsa-reconstruct", "namsa-jax", "namsa-formats"]
    for output in extras:
        assert output["requirements"]["run"][0] == "namsa ==${{ version }}"


@pytest.mark.slow
def test_the_easyconfig_has_an_archive_of_each_package_and_the_wheel_last(recipes):
    text = (recipes / f"namsa-{__version__}.eb").read_text(encoding="utf-8")
    easyconfig = {"SYSTEM": {"name": "system"}}
    exec(text, easyconfig)
    assert (easyconfig["name"], easyconfig["version"]) == ("namsa", __version__)
    archives = [(name, version) for name, version, _ in easyconfig["exts_list"]]
    assert archives == [("compiled", "1.2"), ("sourced", "0.5"), ("namsa", __version__)]
    compiled, sourced, namsa = (options for _, _, options in easyconfig["exts_list"])
    assert compiled == {
        "source_urls": [f"{PYPI}dd"],
        "sources": ["compiled-1.2-cp311-cp311-manylinux_2_17_x86_64.whl"],
        "checksums": ["c311"],
    }
    assert sourced["sources"] == ["sourced-0.5.tar.gz"]
    assert namsa["sources"] == [WHEEL]
    assert namsa["checksums"] == [hashlib.sha256(b"the wheel").hexdigest()]
