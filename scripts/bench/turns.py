"""Programs that take turns: each reads a JSON object per line from its standard input and answers with one."""

import json
import subprocess
from typing import Any


def ask(process: "subprocess.Popen[str]", request: dict[str, Any]) -> dict[str, Any]:
    """Returns the answer of a program; ends this one if it has ended."""
    assert process.stdin
    assert process.stdout
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    if not answer:
        raise SystemExit(f"{process.args} ended: {process.wait()}")
    return dict(json.loads(answer))
