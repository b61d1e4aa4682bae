"""Files of a dataset that others have replaced, and the commands that read them."""

import os
from pathlib import Path

COMMANDS = {
    "verify": ["verify", "d"],
    "info": ["info", "d"],
    "repair": ["repair", "d"],
    "show": ["show", "d"],
    "export": ["export", "d", "--out", "o.h5"],
    "merge": ["merge", "d", "--out", "m"],
}


def replace_file(path: Path, kind: str) -> None:
    """Puts something that is no file of data in the place of one."""
    path.unlink(missing_ok=True)
    match kind:
        case "folder":
            path.mkdir()
        case "link to nothing":
            path.symlink_to("/nowhere")
        case "link to itself":
            path.symlink_to(path.name)
        case "pipe":
            os.mkfifo(path)
