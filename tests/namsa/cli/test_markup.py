"""Names on the terminal are text: rich's markup in them has no meaning and no fault."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_samples import produce

from namsa.cli import parser as cli
from namsa.cli.commands import output
from namsa.cli.commands.output import print_json


@pytest.mark.parametrize("name", ["[/]", "[red]x[/red]", "[link=http://x]a", "a[/b]c"])
def test_a_table_shows_names_as_they_are(name, capsys):
    output.print_table([(name, "1")], columns=("sample", "number"))
    assert name in capsys.readouterr().out


def test_no_name_and_no_reason_reaches_the_terminal_with_what_it_acts_on(capsys):
    output.print_failures({"a": "\x1b[31mred\x07\nfailed b: \u202egnp\x9b2J"})
    assert capsys.readouterr().out == r"failed a: \x1b[31mred\x07 failed b: \u202egnp\x9b2J" + "\n"


@pytest.mark.parametrize(
    "words", [("verify",), ("info",), ("show", "--html", "--out", "d\x1b[2J\u202e.png")]
)
def test_the_name_of_a_folder_is_escaped(words, tmp_path, monkeypatch, capsys, fake_materials):
    monkeypatch.chdir(tmp_path)
    produce(Path("d\x1b[2J\u202e"), limit=1)
    assert cli.main([words[0], "d\x1b[2J\u202e", *words[1:]]) == 0
    printed = capsys.readouterr()
    assert r"d\x1b[2J\u202e" in printed.out + printed.err
    assert not {"\x1b", "\u202e"} & set(printed.out + printed.err)


def test_json_is_one_write_without_pythons_buffer():
    """Two writes let lines of other ranks in between."""
    code = (
        "from namsa.cli.commands.output import print_json; print_json({'rank': 1, 'material': "
        "'β-SiC'})"
    )
    reader, writer = os.pipe2(os.O_DIRECT)  # which keeps writes apart
    try:
        utf8 = os.environ | {"PYTHONIOENCODING": "utf-8"}
        subprocess.run([sys.executable, "-u", "-c", code], stdout=writer, env=utf8, check=True)
    finally:
        os.close(writer)
    with open(reader, "rb", buffering=0) as pipe:
        assert [pipe.read(4096), pipe.read(4096)] == [
            '{"rank": 1, "material": "β-SiC"}\n'.encode(),
            b"",
        ]


def test_json_escapes_what_a_terminal_would_act_on(capsys):
    name = "a\u202eb\x9bc\x7f β\u2028"
    print_json({"id": name})
    (line,) = capsys.readouterr().out.splitlines()
    assert line == '{"id": "a\\u202eb\\u009bc\\u007f β\\u2028"}'
    assert json.loads(line) == {"id": name}
