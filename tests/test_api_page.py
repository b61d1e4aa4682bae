"""Signatures of the API page can be read."""

import inspect
import runpy

import pytest
from paths import ROOT

import namsa
import train

sphinx_inspect = pytest.importorskip("sphinx.util.inspect")  # of the dependency group docs
shorten = runpy.run_path(str(ROOT / "docs/signatures.py"))["shorten"]
FUNCTIONS = [
    getattr(package, name)
    for package in (namsa, train)
    for name in package.__all__
    if inspect.isfunction(getattr(package, name))
]


def written(function):
    """Returns the signature of a function as the API page has it."""
    signature = sphinx_inspect.signature(function)
    return shorten(sphinx_inspect.stringify_signature(signature, unqualified_typehints=True))


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_a_signature_names_no_private_type_and_no_lambda(function):
    text = written(function)
    assert "_Supports" not in text
    assert "_NestedSequence" not in text
    assert "_DTypeDict" not in text
    assert "lambda" not in text
    assert "ndarray[" not in text


def test_an_argument_that_numpy_takes_is_an_array_like():
    text = written(namsa.simulate)
    assert "positions_angstrom: ArrayLike | None = None" in text
