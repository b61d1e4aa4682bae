"""The data that the script of a page reads."""

import json
import re
from typing import Any


def data_of(text: str) -> dict[str, Any]:
    """Returns the data in the text of a page."""
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert match, "the page holds no data"
    return dict(json.loads(match[1]))


def numbers_of(text: str, title: str) -> list[float]:
    """Returns the numbers of the value of a title, one a position."""
    values = data_of(text)["values"]
    titles = [value["title"] for value in values]
    return list(values[titles.index(title)]["numbers"])
