"""What an installed wheel is, beside a checkout: the package `train` by another name."""

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

import namsa_train
import train


@pytest.fixture(scope="module")
def installed_text():
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    return build.installed_text


def imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module)


def test_no_file_of_a_wheel_imports_or_names_train(installed_text):
    parts = {path.stem for path in (ROOT / "train").iterdir()}
    for path in (ROOT / "train").rglob("*.py"):
        text = installed_text(path.read_text(encoding="utf-8"))
        assert not [name for name in imported(ast.parse(text)) if name.split(".")[0] == "train"], path
        named = re.findall(r"(?<!\w)train\.(\w+)", text)  # in strings: modules that are imported later
        assert not parts & set(named), path
        assert "-m train" not in text, path


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from train.main import train", "from namsa_train.main import train"),
        ("        from train import main", "        from namsa_train import main"),
        ('    "Model": "train.apply.models",', '    "Model": "namsa_train.apply.models",'),
        ('[sys.executable, "-m", "train"]', '[sys.executable, "-m", "namsa_train"]'),
        ("`python -m train CONFIG`", "`python -m namsa_train CONFIG`"),
        ('splits["train"], entry.split == "train"', 'splits["train"], entry.split == "train"'),
        ("def train(config): ...", "def train(config): ..."),
    ],
)
def test_names_of_the_package_change_and_nothing_else(installed_text, source, expected):
    assert installed_text(source) == expected


def test_a_checkout_has_the_installed_name_too():
    assert namsa_train is train
    command = [sys.executable, "-m", "namsa_train", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.startswith("namsa ")
    assert Path(train.__file__).is_relative_to(ROOT)
