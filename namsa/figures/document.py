"""A document: sections of paragraphs, tables, pictures and lists, written as HTML or Markdown.

Reports and model cards are documents. Whoever writes one says what it contains; how it looks is
decided here (HTML, with the style sheet `document.css`) and in `namsa.figures.document_markdown`.

    document = Document(
        title="tiny",
        kind="Electron density: report",
        blocks=(
            Paragraph(("The SSIM is ", strong("0.93"), "."), role="headline"),
            Section(
                "Scores",
                (
                    Table(head=("Split", "SSIM"), rows=[("test", "0.93")], text_columns=1),
                    Picture(data_uri, alt="Images of a sample", caption="A sample"),
                ),
            ),
            Fold("Configuration", (Preformatted(config_text),)),
        ),
    )
    write_text_atomic(path, page_html(document))
    write_text_atomic(path, to_markdown(document))

Text is never markup: a `str` is written so that it stays what it is, in HTML and in Markdown alike.
Parts of a text that look different are `Styled`, made by `strong`, `code`, `small`, `subscript` and
`note`, and a text may be a sequence of such parts. There is no way to write markup by hand.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

from namsa.base.markup import NO_ATTRIBUTES, Element, Node, Verbatim, element, to_html

# ---- Text
# ------------------------------------------------------------------------------------------------

Style = Literal["strong", "code", "small", "subscript", "note", "wide"]


@dataclass(frozen=True)
class Styled:
    """A part of a text that looks different."""

    text: "Text"
    style: Style


Text = str | Styled | Sequence["Text"]


def strong(text: Text) -> Styled:
    """Returns a text in bold."""
    return Styled(text, "strong")


def code(text: str) -> Styled:
    """Returns a command, a key or a file's name as code."""
    return Styled(text, "code")


def small(text: Text) -> Styled:
    """Returns a text that is small and grey, such as the score of a baseline."""
    return Styled(text, "small")


def subscript(text: str) -> Styled:
    """Returns a subscript."""
    return Styled(text, "subscript")


def note(text: Text) -> Styled:
    """Returns a small, grey remark on a line of its own, below the text before it in a cell."""
    return Styled(text, "note")


def wide(text: Text) -> Styled:
    """Returns the text of a table's cell that is as wide as a few words at least."""
    return Styled(text, "wide")


# ---- Blocks
# ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Paragraph:
    """A paragraph. The headline of a document is larger."""

    text: Text
    role: Literal["", "headline"] = ""


@dataclass(frozen=True)
class Note:
    """A highlighted paragraph: something is missing, or must be known before reading on."""

    text: Text


@dataclass(frozen=True)
class Table:
    """A table of text and numbers."""

    head: Sequence[Text]  # headings of the columns; none if empty
    rows: Sequence[Sequence[Text]]  # cells of each row
    text_columns: int = 0  # number of leading columns that hold text; the others hold numbers
    caption: str = ""  # none if empty


@dataclass(frozen=True)
class Picture:
    """An image with its caption."""

    source: str  # `data:` address
    alt: str  # what it shows, for readers who cannot see it
    caption: Text = ""  # none if empty
    plot: bool = False  # whether it is a plot of the width of the page


@dataclass(frozen=True)
class BulletList:
    """A list of items with bullets."""

    items: Sequence[Text]


@dataclass(frozen=True)
class Preformatted:
    """Lines of text that are shown as they are: a file, or a command."""

    text: str


@dataclass(frozen=True)
class DocumentSection:
    """Blocks below a heading, whose size follows from the sections around it."""

    title: Text
    blocks: Sequence["Block"]


@dataclass(frozen=True)
class Fold:
    """Blocks that the reader opens by a click on their summary."""

    summary: str
    blocks: Sequence["Block"]


Block = Paragraph | Note | Table | Picture | BulletList | Preformatted | DocumentSection | Fold


@dataclass(frozen=True)
class Document:
    """A document."""

    title: str  # its heading
    blocks: Sequence[Block]  # its contents, in order
    kind: str = ""  # what it is, in a line above the title; none if empty
    window_title: str = ""  # title of the browser's window; that of the document if empty


# ---- HTML
# ------------------------------------------------------------------------------------------------

# The elements and the classes, of document.css, that styles of text are written with.
STYLE_ELEMENTS: dict[Style, tuple[str, str]] = {
    "strong": ("strong", ""),
    "code": ("code", ""),
    "small": ("small", ""),
    "subscript": ("sub", ""),
    "note": ("span", "note"),
    "wide": ("div", "wide"),
}


def page_html(document: Document) -> str:
    """Returns a document as an HTML page that loads nothing and runs no script."""
    style = files("namsa.figures").joinpath("document.css").read_text(encoding="utf-8")
    head = element(
        "head",
        NO_ATTRIBUTES,
        element("meta", {"charset": "utf-8"}),
        element("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        element("title", NO_ATTRIBUTES, document.window_title or document.title),
        element("style", NO_ATTRIBUTES, Verbatim(f"\n{style}")),
    )
    header = [element("h1", NO_ATTRIBUTES, document.title)]
    if document.kind:
        header.insert(0, element("p", {"class": "kind"}, document.kind))
    body = to_html(
        element("header", NO_ATTRIBUTES, *header),
        *blocks_html(document.blocks),
        separator="\n",
    )
    return f'<!doctype html>\n<html lang="en">\n{to_html(head)}\n<body>\n{body}\n</body>\n</html>\n'


def blocks_html(blocks: Iterable[Block], level: int = 2) -> list[Element]:
    """Returns blocks as HTML elements.

    Args:
        level: Level of the headings of their sections: 2 is that below the title.
    """
    elements: list[Element] = []
    for block in blocks:
        if isinstance(block, DocumentSection):
            elements.append(element(f"h{level}", NO_ATTRIBUTES, *text_html(block.title)))
            elements.extend(blocks_html(block.blocks, level + 1))
        else:
            elements.append(_block_html(block, level))
    return elements


def _block_html(
    block: Paragraph | Note | Table | Picture | BulletList | Preformatted | Fold, level: int
) -> Element:
    """Returns one block, which is not a section."""
    match block:
        case Paragraph(text, role):
            attributes = {"class": role} if role else NO_ATTRIBUTES
            return element("p", attributes, *text_html(text))
        case Note(text):
            return element("p", {"class": "missing"}, *text_html(text))
        case Table():
            return _table_html(block)
        case Picture():
            return _picture_html(block)
        case BulletList(items):
            entries = [element("li", NO_ATTRIBUTES, *text_html(item)) for item in items]
            return element("ul", NO_ATTRIBUTES, *entries)
        case Preformatted(text):
            return element("pre", NO_ATTRIBUTES, text)
        case Fold(summary, blocks):
            heading = element("summary", NO_ATTRIBUTES, summary)
            return element("details", NO_ATTRIBUTES, heading, *blocks_html(blocks, level))


def _table_html(table: Table) -> Element:
    """Returns a table, which scrolls if it is wider than the page."""
    parts = []
    if table.caption:
        parts.append(element("caption", NO_ATTRIBUTES, table.caption))
    if table.head:
        head = _row_html("th", table.head, table.text_columns)
        parts.append(element("thead", NO_ATTRIBUTES, head))
    rows = [_row_html("td", row, table.text_columns) for row in table.rows]
    parts.append(element("tbody", NO_ATTRIBUTES, *rows))
    return element("div", {"class": "scroll"}, element("table", NO_ATTRIBUTES, *parts))


def _row_html(tag: str, cells: Sequence[Text], text_columns: int) -> Element:
    """Returns a row of a table, whose cells are elements of a tag."""
    row = []
    for column, cell in enumerate(cells):
        attributes = NO_ATTRIBUTES if column < text_columns else {"class": "number"}
        row.append(element(tag, attributes, *text_html(cell)))
    return element("tr", NO_ATTRIBUTES, *row)


def _picture_html(picture: Picture) -> Element:
    """Returns a picture below its caption."""
    attributes = {"src": picture.source, "alt": picture.alt}
    if picture.plot:
        attributes["class"] = "plot"
    parts = []
    if picture.caption:
        parts.append(element("figcaption", NO_ATTRIBUTES, *text_html(picture.caption)))
    parts.append(element("img", attributes))
    return element("figure", NO_ATTRIBUTES, *parts)


def text_html(text: Text) -> list[Node]:
    """Returns a text as nodes of HTML."""
    if isinstance(text, str):
        return [text]
    if isinstance(text, Styled):
        tag, css_class = STYLE_ELEMENTS[text.style]
        attributes = {"class": css_class} if css_class else NO_ATTRIBUTES
        return [element(tag, attributes, *text_html(text.text))]
    nodes: list[Node] = []
    for piece in text:
        nodes.extend(text_html(piece))
    return nodes
