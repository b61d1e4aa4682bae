"""Headless Chromium, where there is one: the document of a page after its scripts have run."""

import html
import re
import shutil
import subprocess
from pathlib import Path

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OPTIONS = "--headless --no-sandbox --disable-gpu --disable-background-networking --disable-component-update"


def rendered(address: str, folder: Path, milliseconds: int = 5000) -> str:
    """The HTML of a page after so much of its own time; the browser's profile is kept in `folder`."""
    command = [str(BROWSER), *OPTIONS.split(), "--disable-sync", f"--user-data-dir={folder / 'browser'}"]
    command += [f"--virtual-time-budget={milliseconds}", "--dump-dom", address]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def reported(address: str, folder: Path, milliseconds: int = 5000) -> str:
    """The text of the element `report` that a script of the page has added."""
    found = re.search(r'id="report">(.*?)</pre>', rendered(address, folder, milliseconds))
    assert found
    return html.unescape(found[1])
