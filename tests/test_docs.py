"""Public names are on the API pages and are imported when they are used; links between the pages lead somewhere."""

import importlib
import pkgutil
import re

import pytest
from paths import ROOT

import namsa
import train

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


# ---- Names of the packages ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("package", [namsa, train])
def test_public_names_are_objects_with_documentation_that_no_module_hides(package):
    """Importing a module of such a name would put it in the place of the function."""
    for name in set(package.__all__) - {"__version__"}:
        assert getattr(package, name).__doc__, name
        assert name in dir(package)
    assert not set(package.__all__) & {module.name for module in pkgutil.iter_modules(package.__path__)}


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="simulat"):
        namsa.simulat  # noqa: B018 - the access is what is tested
