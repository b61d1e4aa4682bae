"""The bar of a notebook: it comes with long calls only, and goes with them."""

import sys
from types import SimpleNamespace

import pytest

from namsa.base import notebook_progress
from namsa.base.notebook_progress import bar_html, notebook_bar


class ZMQInteractiveShell:
    """The name that IPython's shell has in a notebook."""


@pytest.fixture
def shown(monkeypatch):
    """Makes this process a notebook's, and returns what it shows."""
    texts = []

    def display(html, display_id):
        texts.append(html)
        return SimpleNamespace(update=texts.append)

    shell = SimpleNamespace(get_ipython=ZMQInteractiveShell)
    monkeypatch.setitem(sys.modules, "ipykernel", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "IPython", shell)
    module = SimpleNamespace(HTML=str, display=display)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return texts


def test_a_long_call_has_a_bar_that_goes_at_its_end(shown, monkeypatch):
    monkeypatch.setattr(notebook_progress, "SHOWN_AFTER_SECONDS", 0)
    monkeypatch.setattr(notebook_progress, "EVERY_SECONDS", 0)
    with notebook_bar(None) as report:
        report("probes", 1, 4)
        report("probes", 2, 4)
    assert [text.partition("</progress> ")[2][:10] for text in shown] == [
        "probes 1/4",
        "probes 2/4",
        "",
    ]


def test_short_calls_and_calls_with_a_callback_show_nothing(shown):
    with notebook_bar(None) as report:
        report("probes", 1, 4)
    rows = []
    with notebook_bar(lambda *row: rows.append(row)) as report:
        report("probes", 2, 4)
    assert (shown, rows) == ([], [("probes", 2, 4)])


def test_outside_of_a_notebook_nothing_is_shown(capsys):
    with notebook_bar(None) as report:
        report("probes", 1, 4)
    assert capsys.readouterr().out == ""


def test_the_bar_says_how_long_it_takes():
    text = bar_html("probes", 100, 400, 60.0)
    assert text.endswith("probes 100/400, about 3 min left")
    assert 'value="100" max="400"' in text
    assert "left" not in bar_html("probes", 0, 400, 60.0)
