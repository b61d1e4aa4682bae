"""A document (`namsa.figures.document`) as Markdown: the model card of a network."""

import html
import re
from collections.abc import Iterable, Iterator

from namsa.figures.document import (
    Block,
    BulletList,
    Document,
    DocumentSection,
    Fold,
    Note,
    Paragraph,
    Picture,
    Preformatted,
    Styled,
    Table,
    Text,
)


def to_markdown(document: Document) -> str:
    """Returns a document as Markdown."""
    lines = [f"# {text_markdown(document.title)}"]
    if document.kind:
        lines.extend(("", text_markdown(document.kind)))
    lines.extend(_blocks_lines(document.blocks, 2))
    return "\n".join(lines) + "\n"


def _blocks_lines(blocks: Iterable[Block], level: int) -> Iterator[str]:
    """Yields the lines of blocks, with an empty line before each."""
    for block in blocks:
        yield ""
        yield from _block_lines(block, level)


def _block_lines(block: Block, level: int) -> Iterator[str]:
    """Yields the lines of a block.

    Args:
        level: Level of the heading of a section.
    """
    match block:
        case DocumentSection(title, blocks):
            yield f"{'#' * level} {text_markdown(title)}"
            yield from _blocks_lines(blocks, level + 1)
        case Fold(summary, blocks):
            yield f"**{text_markdown(summary)}**"
            yield from _blocks_lines(blocks, level)
        case Paragraph(text) | Note(text):
            yield text_markdown(text)
        case Table():
            yield from _table_lines(block)
        case Picture():
            yield f"![{text_markdown(block.alt)}]({block.source})"
            if block.caption:
                yield ""
                yield text_markdown(block.caption)
        case BulletList(items):
            for item in items:
                yield f"- {text_markdown(item)}"
        case Preformatted(text):
            for line in text.splitlines():
                yield f"    {line}"


def _table_lines(table: Table) -> Iterator[str]:
    """Yields the lines of a table below its caption."""
    if table.caption:
        yield f"{text_markdown(table.caption)}:"
        yield ""
    columns = len(table.head) or max((len(row) for row in table.rows), default=0)
    head = table.head or [""] * columns
    yield _row_line(head)
    yield "|" + "---|" * columns
    for row in table.rows:
        yield _row_line(row)


def _row_line(cells: Iterable[Text]) -> str:
    return f"| {' | '.join(text_markdown(cell) for cell in cells)} |"


def text_markdown(text: Text) -> str:
    """Returns a text as Markdown on one line, in which its own characters have no meaning."""
    return _inline(text).strip()


def _inline(text: Text) -> str:
    """Returns a part of a text, with the space at its ends."""
    if isinstance(text, str):
        return _plain(text)
    if isinstance(text, Styled):
        return _styled(text)
    return "".join(_inline(piece) for piece in text)


def _styled(piece: Styled) -> str:
    """Returns a part that looks different; Markdown has neither small nor grey."""
    if piece.style == "strong":
        return f"**{text_markdown(piece.text)}**"
    if (
        piece.style == "code"
        and isinstance(piece.text, str)
        and not re.search(r"[`|<>&]", piece.text)
    ):
        return f"`{' '.join(piece.text.split())}`"
    if piece.style == "note":
        return f" ({text_markdown(piece.text)})"
    return _inline(piece.text)


def _plain(text: str) -> str:
    """Returns a text in which Markdown and HTML have no meaning."""
    words = html.escape(re.sub(r"\s+", " ", text), quote=False)
    return re.sub(r"([\\`*|\[\]])", r"\\\1", words)
