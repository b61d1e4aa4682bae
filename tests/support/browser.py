"""Headless Chromium, where there is one: the document of a page after its scripts have run."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

BROWSER = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
OPTIONS = (
    "--headless --no-sandbox --disable-gpu --disable-background-networking "
    "--disable-component-update"
)


def rendered(address: str, folder: Path, milliseconds: int = 5000) -> str:
    """The HTML of a page after so much of its own time; the browser's profile is kept in
    `folder`.
    """
    command = [
        str(BROWSER),
        *OPTIONS.split(),
        "--disable-sync",
        f"--user-data-dir={folder / 'browser'}",
    ]
    command += [f"--virtual-time-budget={milliseconds}", "--dump-dom", address]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


SCRIPT = """<script>
ready.then(async () => {
%s
  const answer = Object.assign(document.createElement("pre"), { id: "report", textContent: JSON.stringify(report) });
  document.body.append(answer);
});
</script>"""  # noqa: E501


def report_of(page: str, script: str, folder: Path, fragment: str, milliseconds: int = 5000) -> Any:
    """The value that a script leaves in `report`, in a page of namsa that is opened at a fragment
    of its address.
    """
    (folder / "page.html").write_text(page + SCRIPT % script, encoding="utf-8")
    return json.loads(reported(f"file://{folder}/page.html{fragment}", folder, milliseconds))


def reported(address: str, folder: Path, milliseconds: int = 5000) -> str:
    """The text of the element `report` that a script of the page has added."""
    match = re.search(r'id="report">(.*?)</pre>', rendered(address, folder, milliseconds))
    assert match
    return html.unescape(match[1])
