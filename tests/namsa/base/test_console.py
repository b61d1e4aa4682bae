"""Tables in a log are not cut."""

import io
import sys

import pytest
from rich.table import Table

from namsa.base.console import LOG_WIDTH, output_console

HEADINGS = [f"column{index}-of-a-result" for index in range(10)]


class _Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def table():
    rows = Table(*HEADINGS)
    rows.add_row(*["0.12345678"] * len(HEADINGS))
    return rows


def test_a_log_has_all_of_a_table_that_a_narrow_terminal_cuts(monkeypatch, table):
    monkeypatch.delenv("COLUMNS", raising=False)
    log = io.StringIO()
    monkeypatch.setattr(sys, "stdout", log)
    output_console().print(table)
    for heading in HEADINGS:
        assert heading in log.getvalue()
    assert log.getvalue().count("0.12345678") == len(HEADINGS)
    assert max(map(len, log.getvalue().splitlines())) <= LOG_WIDTH


def test_a_width_that_was_asked_for_is_kept(monkeypatch, table):
    monkeypatch.setenv("COLUMNS", "60")
    log = io.StringIO()
    monkeypatch.setattr(sys, "stdout", log)
    output_console().print(table)
    assert max(map(len, log.getvalue().splitlines())) <= 60
    assert "…" not in log.getvalue()
    digits = sum(character.isdigit() for character in log.getvalue())
    assert digits >= len("012345678") * len(HEADINGS)  # folded, not cut


def test_a_terminal_has_its_own_width(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(sys, "stdout", _Terminal())
    assert output_console().width != LOG_WIDTH
