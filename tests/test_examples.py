"""Examples in the docstrings of public names are right."""

import doctest
import warnings

import guides
import pytest
from paths import ROOT

import fcdensenet
import namsa
import train

PUBLIC = {
    f"{package.__name__}.{name}": getattr(package, name)
    for package in (namsa, train, fcdensenet)
    for name in package.__all__
}
EXAMPLES = [name for name, thing in PUBLIC.items() if ">>>" in (thing.__doc__ or "")]


@pytest.fixture(scope="module")
def names():
    """The lines that examples begin with, by the page of the API."""
    (setup,) = (
        block.text
        for block in guides.blocks(ROOT / "docs/api/namsa.md")
        if block.language == "python"
    )
    names = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(setup, names)
    return names


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_gives_what_it_says(name, names, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    finder = doctest.DocTestFinder(recurse=False)
    (example,) = finder.find(PUBLIC[name], name, globs=dict(names))
    results = doctest.DocTestRunner(verbose=False).run(example)
    assert results.attempted > 0
    assert results.failed == 0


def test_functions_of_namsa_have_an_example():
    functions = set()
    for name in namsa.__all__:
        if name[0].islower() and name != "__version__":
            functions.add(name)
    missing = set()
    for name in functions:
        if f"namsa.{name}" not in EXAMPLES:
            missing.add(name)
    assert missing == set()
