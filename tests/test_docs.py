"""The API pages name every public name, and links between the pages lead somewhere."""

import importlib
import re

import pytest
from paths import ROOT

DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "scripts/bench/README.md"])


@pytest.mark.parametrize("package", ["namsa", "fcdensenet", "train"])
def test_the_api_page_has_every_public_name(package):
    page = (DOCS / "api" / f"{package}.md").read_text(encoding="utf-8")
    public = set(importlib.import_module(package).__all__) - {"__version__"}
    assert set(re.findall(rf"\b{package}\.(\w+)", page)) == public


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_files_and_headings_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        name, _, heading = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), target
        if heading:
            assert heading in headings(path.read_text(encoding="utf-8")), target


def headings(text):
    """The anchors of a page's headings, as GitHub and MyST make them."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
