"""Code of the documentation, for a test to run."""

import re

from paths import ROOT


def code(page: str, word: str) -> str:
    """Returns the one block of Python in a page of `docs` that has a word."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    (code_block,) = (
        block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if word in block
    )
    return code_block
