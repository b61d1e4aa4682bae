"""Checks the built documentation: every link within the site leads to a file that is there and to
an anchor in it.

python scripts/check_site.py docs/_build
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The links and anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = {"", "top"}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value is not None:
                self.links.append(value)
            elif name in ("id", "name") and value is not None:
                self.anchors.add(value)


def dead_links(site: Path) -> list[str]:
    """Returns a line for each link within the site that leads nowhere."""
    pages = {path.resolve(): Page(path) for path in sorted(site.rglob("*.html"))}
    dead = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            is_anchor = target in pages and unquote(parts.fragment) in pages[target].anchors
            if not (is_anchor or (target not in pages and target.is_file())):
                dead.append(f"{path.relative_to(site.resolve())}: {link}")
    return dead


def main() -> int:
    """Prints the dead links; returns 1 if there are any, or if there is no site."""
    site = Path(sys.argv[1])
    dead = dead_links(site)
    print(*dead, sep="\n", end="\n" if dead else "")
    return 1 if dead or not (site / "index.html").exists() else 0


if __name__ == "__main__":
    sys.exit(main())
