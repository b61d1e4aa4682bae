"""Parameter files in YAML."""

from pathlib import Path
from typing import Any

import yaml


def write_yaml(path: Path, comment: str, values: dict[str, Any]) -> None:
    """Writes values in their order under a comment.

    Args:
        values: Plain numbers, text, lists and mappings.
    """
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)
    path.write_text(f"# {comment}\n{text}", encoding="utf-8")
