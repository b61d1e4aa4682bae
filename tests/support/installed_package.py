"""A package of other people that is installed beside this one, with entry points."""

from collections.abc import Mapping
from pathlib import Path

import pytest


def install(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    modules: Mapping[str, str],
    group: str,
    points: Mapping[str, str],
) -> None:
    """Writes modules and their metadata to a folder, and has Python import from it.

    Args:
        modules: Text of each file, by its path in the folder.
        group: Group of the entry points.
        points: The module that each entry point names.
    """
    for name, text in modules.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    metadata = folder / "package_of_test-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    lines = [f"[{group}]"]
    for name, module in points.items():
        lines.append(f"{name} = {module}")
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(folder)
