"""Public names are on the API pages and are imported when they are used; links between the pages
lead somewhere.
"""

import importlib
import pkgutil
import re
import runpy
import subprocess

import pytest
from paths import ROOT

import namsa
import train

DOCS = ROOT / "docs"
INSTALLED_NAMES = {"train": "namsa_train"}
PAGES = sorted(
    [
        *DOCS.rglob("*.md"),
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "scripts/bench/README.md",
    ]
)


@pytest.mark.parametrize("package", ["namsa", "fcdensenet", "train"])
def test_the_api_page_has_every_public_name(package):
    page = (DOCS / "api" / f"{package}.md").read_text(encoding="utf-8")
    public = set(importlib.import_module(package).__all__) - {"__version__"}
    name = INSTALLED_NAMES.get(package, package)
    assert set(re.findall(rf"\b{name}\.(\w+)", page)) >= public
    documented = re.findall(rf"auto(?:function|class|exception):: {name}\.(\w+)", page)
    assert set(documented) <= public
    assert len(documented) == len(set(documented))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_files_and_headings_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        name, _, heading = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), target
        if heading:
            assert heading in headings(path.read_text(encoding="utf-8")), target


NAMED = re.compile(r"(?<![\w/])scripts/[\w/.-]+\.(?:py|sh|yaml|lsf|c)\b")
AT_COMMIT = re.compile(r"[Aa]t commit ([0-9a-f]{8}):|\bcommit ([0-9a-f]{8})\b")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_scripts_that_a_page_names_are_there_or_at_the_commit_that_it_names(page):
    """A study whose question is answered keeps its table, with the last commit that has its script:
    "At commit HASH:" before the block of its command, or "commit HASH" after its name.
    """
    blocks = page.read_text(encoding="utf-8").split("\n\n")
    for index, block in enumerate(blocks):
        for named in NAMED.finditer(block):
            if (ROOT / named[0]).exists():
                continue
            commits = AT_COMMIT.search(block, named.end())
            if block.startswith("    "):
                commits = AT_COMMIT.search(block_before(blocks, index))
            assert commits, f"{named[0]} is neither there nor at a commit"
            assert is_in_commit(named[0], commits[1] or commits[2]), named[0]


def block_before(blocks, index):
    """The last block before a block of commands that is no command itself."""
    while blocks[index].startswith("    "):
        index -= 1
    return blocks[index]


def is_in_commit(path, commit):
    """Whether git has the file in the commit; true where the history is not there to ask."""

    def git(*words):
        return subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, check=False
        ).returncode

    return git("cat-file", "-e", commit) != 0 or git("cat-file", "-e", f"{commit}:{path}") == 0


def test_every_benchmark_is_listed_with_what_it_measures():
    page = (ROOT / "scripts/bench/README.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(\w+\.py)", page, flags=re.MULTILINE))
    scripts = []
    for path in (ROOT / "scripts/bench").glob("*.py"):
        if "main(" in path.read_text():
            scripts.append(path)
    assert listed == {path.name for path in scripts} - {"gpu_page.py"}


def test_the_build_executes_every_notebook_and_fails_with_one_that_fails():
    settings = runpy.run_path(str(DOCS / "conf.py"))
    assert settings["nb_execution_mode"] == "force"
    assert settings["nb_execution_raise_on_error"] is True
    assert settings["sphinx_gallery_conf"]["abort_on_example_error"] is True
    assert "nb_execution_excludepatterns" not in settings
    assert "sphinx-build -q -W" in (ROOT / ".ci/run").read_text(encoding="utf-8")
    listed = (DOCS / "index.md").read_text(encoding="utf-8").splitlines()
    notebooks = sorted((DOCS / "notebooks").glob("*.ipynb"))
    assert notebooks
    for notebook in notebooks:
        assert f"notebooks/{notebook.stem}" in listed, "a page of the site is executed"
    for page in [*notebooks, *DOCS.rglob("*.md")]:
        for exempt in ("skip-execution", "raises-exception"):
            assert exempt not in page.read_text(encoding="utf-8"), f"{page}: {exempt}"


def headings(text):
    """The anchors of a page's headings, as GitHub and MyST make them."""
    titles = re.findall(
        r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), flags=re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


# ---- Names of the packages
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("package", [namsa, train])
def test_public_names_are_objects_with_documentation_that_no_module_hides(package):
    """Importing a module of such a name would put it in the place of the function."""
    for name in set(package.__all__) - {"__version__"}:
        assert getattr(package, name).__doc__, name
        assert name in dir(package)
    assert not set(package.__all__) & {
        module.name for module in pkgutil.iter_modules(package.__path__)
    }


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="simulat"):
        namsa.simulat  # noqa: B018 - the access is what is tested


def test_tests_that_pages_name_are_there():
    named = set()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        named.update(re.findall(r"`(test_[a-z0-9_]+)`", text))
        for name in re.findall(r"`(tests/[a-z0-9_/]+\.py)`", text):
            assert (ROOT / name).exists(), name
    defined = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        defined.update(re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8")))
    assert len(named) > 20
    assert named - defined == set()


def test_each_guide_begins_with_a_picture():
    references = {"configuration.md", "index.md", "paper.md"}
    pages = [page for page in (ROOT / "docs").glob("*.md") if page.name not in references]
    pages += (ROOT / "docs/tasks").glob("*.md")
    pages += (ROOT / "docs/strategies").glob("*.md")
    assert len(pages) > 25
    for page in pages:
        heading, _, picture, *_ = page.read_text(encoding="utf-8").splitlines()
        assert heading.startswith("# "), page
        match = re.fullmatch(r"!\[.+\]\((.+)\)", picture)
        assert match, page
        assert (page.parent / match[1]).is_file(), page
