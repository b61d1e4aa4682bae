"""What commands print."""

import os
import subprocess
import sys


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
