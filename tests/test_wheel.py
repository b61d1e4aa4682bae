"""An installed wheel beside a checkout: the package `train` by another name."""

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

import namsa_train
import train


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder that holds `namsa_train` and no `train`, as that of a wheel's installation."""
    folder = tmp_path_factory.mktemp("installed")
    for package, name in (
        ("namsa", "namsa"),
        ("fcdensenet", "fcdensenet"),
        ("train", "namsa_train"),
    ):
        shutil.copytree(
            ROOT / package, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.npz")
        )
    shutil.copytree(ROOT / "configs", folder / "namsa" / "cli" / "starter" / "configs")
    return folder


def run(folder, *arguments):
    command = [sys.executable, *arguments]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, env=environment
    )


@pytest.mark.slow  # TensorFlow is imported
def test_under_the_installed_name_no_module_imports_train(installed):
    """Every module is imported where a `train` would be another package."""
    (installed / "train.py").write_text(
        "raise ImportError('the package of another project')\n", encoding="utf-8"
    )
    code = (
        "import pkgutil, importlib, namsa_train\n"
        "for found in pkgutil.walk_packages(namsa_train.__path__, 'namsa_train.'):\n"
        "    if not found.name.endswith('__main__'): importlib.import_module(found.name)\n"
    )
    done = run(installed, "-c", code)
    assert done.returncode == 0, done.stderr


def test_an_installed_package_advises_no_file_of_a_checkout(installed):
    code = (
        "import json; from namsa.cli import doctor\n"
        "doctor.probe = lambda code, timeout_s: doctor.Probe(None, 'gone')\n"
        "doctor.LIBRARIES = ('nothing',)\n"
        "print(json.dumps([doctor.report(gpu=gpu).as_json()['checks'] for gpu in (False, True)]))"
    )
    reports = json.loads(run(installed, "-c", code).stdout)
    for report in reports:
        for check in report:
            if not check["ok"]:
                assert check["remedy"]
                assert "scripts/uv" not in check["remedy"]
    remedies = {check["name"]: check["remedy"] for check in reports[0]}
    assert remedies["JAX"] == "pip install 'namsa[jax]'"
    assert "--no-build-isolation" in remedies["Horovod (several ranks)"]
    needed = set()
    for check in reports[0]:
        if check["needed"] and not check["ok"]:
            needed.add(check["name"])
    assert needed == {"nothing"}  # namsa alone simulates


def test_help_and_messages_name_the_installed_package(installed, tmp_path):
    shown = run(installed, "-m", "namsa_train", "--help").stdout
    assert "usage: namsa-train CONFIG" in shown
    assert "python -m" not in shown.partition("Bash and zsh")[0]
    done = run(installed, "-m", "namsa_train", "describe", str(tmp_path / "missing.yaml"))
    assert (done.returncode, done.stdout) == (2, "")
    printed = run(installed, "-c", "from namsa_train.program import PROGRAM; print(PROGRAM)")
    assert printed.stdout == "namsa-train\n"


def test_a_new_folder_has_the_configurations_that_help_names(installed, tmp_path):
    assert run(installed, "-m", "namsa", "init", str(tmp_path / "new")).returncode == 0
    configs = tmp_path / "new" / "configs"
    assert {file.name for file in configs.iterdir()} == {
        file.name for file in (ROOT / "configs").iterdir()
    }
    text = (configs / "quickstart.yaml").read_text(encoding="utf-8")
    (command,) = re.findall("# +(.*) -np 2", text)
    assert command == "namsa-train configs/quickstart.yaml --supervise -- horovodrun"


def test_a_checkout_has_the_installed_name_too():
    assert namsa_train is train
    command = [sys.executable, "-m", "namsa_train", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.startswith("namsa ")
    assert Path(train.__file__).is_relative_to(ROOT)


def test_a_module_by_the_installed_name_is_no_second_copy():
    ours = importlib.import_module("namsa_train.input.imperfections")
    assert ours is importlib.import_module("train.input.imperfections")
    assert ours.__spec__.name == "train.input.imperfections"
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("namsa_train.nothing")
