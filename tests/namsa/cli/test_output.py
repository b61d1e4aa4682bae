"""What commands print."""

import json
import os
import subprocess
import sys

from namsa.cli.commands.output import print_json


def test_json_is_one_write_without_pythons_buffer():
    """Two writes let lines of other ranks in between."""
    code = "from namsa.cli.commands.output import print_json; print_json({'rank': 1, 'material': 'β-SiC'})"
    reader, writer = os.pipe2(os.O_DIRECT)  # which keeps writes apart
    try:
        utf8 = os.environ | {"PYTHONIOENCODING": "utf-8"}
        subprocess.run([sys.executable, "-u", "-c", code], stdout=writer, env=utf8, check=True)
    finally:
        os.close(writer)
    with open(reader, "rb", buffering=0) as pipe:
        assert [pipe.read(4096), pipe.read(4096)] == ['{"rank": 1, "material": "β-SiC"}\n'.encode(), b""]


def test_json_escapes_what_a_terminal_would_act_on(capsys):
    name = "a\u202eb\x9bc\x7f β\u2028"
    print_json({"id": name})
    (line,) = capsys.readouterr().out.splitlines()
    assert line == '{"id": "a\\u202eb\\u009bc\\u007f β\\u2028"}'
    assert json.loads(line) == {"id": name}
