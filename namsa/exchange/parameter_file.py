"""Parameter files in YAML."""

from pathlib import Path
from typing import Any

import yaml

from namsa.files import write_text_atomic


def write_yaml(path: Path, comment: str, values: dict[str, Any]) -> None:
    """Writes values in their order under a comment.

    Args:
        path: The file.
        comment: One line.
        values: Plain numbers, text, lists and mappings.

    Raises:
        WorkError: If the file cannot be written.
    """
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)
    write_text_atomic(path, f"# {comment}\n{text}")
