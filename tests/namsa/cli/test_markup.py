"""Names on the terminal are text: rich's markup in them has no meaning and no fault."""

import io

import pytest
from rich.console import Console

from namsa.cli import doctor
from namsa.cli.commands import output


@pytest.mark.parametrize("name", ["[/]", "[red]x[/red]", "[link=http://x]a", "a[/b]c"])
def test_a_table_shows_names_as_they_are(name, capsys):
    output.print_table([(name, "1")], columns=("sample", "number"))
    assert name in capsys.readouterr().out


def test_the_doctor_shows_remedies_as_they_are():
    check = doctor.Check("machine", "data disk", False, "[/]: no such folder", "mkdir -p [/]", needed=False)
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(doctor.table(doctor.Report((check,))))
    assert "mkdir -p [/]" in console.export_text()
