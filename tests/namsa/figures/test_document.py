"""Documents as HTML and as Markdown: the same contents, and text that is never markup."""

from html.parser import HTMLParser

import pytest

from namsa.base.markup import Verbatim, element, fill, to_html
from namsa.figures.document import (
    BulletList,
    Document,
    DocumentSection,
    Fold,
    Note,
    Paragraph,
    Picture,
    Preformatted,
    Table,
    code,
    note,
    page_html,
    small,
    strong,
    subscript,
    wide,
)
from namsa.figures.document_markdown import text_markdown, to_markdown

HOSTILE = "<script>alert('1')</script>\"><img src=x><!--{{data}}$x|[a](b)`c`*d*"

DOCUMENT = Document(
    title="tiny",
    kind="Density: report",
    window_title="tiny: report",
    blocks=(
        Paragraph(("The SSIM is ", strong("0.93"), "; run ", code("train card"), "."), "headline"),
        DocumentSection(
            "Scores",
            (
                Table(
                    head=("Split", "SSIM"),
                    rows=[(("test", note("held out")), ("0.93 ", small("0.1")))],
                    text_columns=1,
                    caption="Means",
                ),
                DocumentSection("Worst", (Note("None."), BulletList(("one", "two")))),
                Picture("data:image/png;base64,AA", "Images", ("P4", subscript("2")), plot=True),
            ),
        ),
        Fold("Configuration", (Preformatted("a: 1\nb: 2"),)),
    ),
)


class Tags(HTMLParser):
    """The start tags and the text of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data


def test_every_block_as_html():
    page = page_html(DOCUMENT)
    for expected in (
        "<title>tiny: report</title>",
        '<header><p class="kind">Density: report</p><h1>tiny</h1></header>',
        '<p class="headline">The SSIM is <strong>0.93</strong>; run <code>train card</code>.</p>',
        "<h2>Scores</h2>",
        "<caption>Means</caption>",
        '<th>Split</th><th class="number">SSIM</th>',
        '<td>test<span class="note">held out</span></td>',
        '<td class="number">0.93 <small>0.1</small></td>',
        "<h3>Worst</h3>",
        '<p class="missing">None.</p>',
        "<ul><li>one</li><li>two</li></ul>",
        '<figure><figcaption>P4<sub>2</sub></figcaption><img src="data:image/png;base64,AA" '
        'alt="Images" class="plot"></figure>',
        "<details><summary>Configuration</summary><pre>a: 1\nb: 2</pre></details>",
    ):
        assert expected in page
    styles = page[page.index("<style>") : page.index("</style>")]
    for name in ("kind", "headline", "missing", "number", "note", "plot", "scroll", "wide"):
        assert f".{name}" in styles


def test_on_a_narrow_screen_pictures_keep_a_legible_width_and_scroll():
    page = page_html(Document("tiny", (Picture("data:image/png;base64,AA", "Images"),)))
    narrow = page[page.index("@media screen and (max-width: 40rem)") : page.index("@page")]
    assert "figure { overflow-x: auto; }" in narrow
    assert "img { max-width: 56rem; }" in narrow


def test_every_block_as_markdown():
    assert to_markdown(DOCUMENT) == "\n".join(
        (
            "# tiny",
            "",
            "Density: report",
            "",
            "The SSIM is **0.93**; run `train card`.",
            "",
            "## Scores",
            "",
            "Means:",
            "",
            "| Split | SSIM |",
            "|---|---|",
            "| test (held out) | 0.93 0.1 |",
            "",
            "### Worst",
            "",
            "None.",
            "",
            "- one",
            "- two",
            "",
            "![Images](data:image/png;base64,AA)",
            "",
            "P42",
            "",
            "**Configuration**",
            "",
            "    a: 1",
            "    b: 2",
            "",
        )
    )


def test_text_is_never_markup():
    document = Document(
        HOSTILE,
        (
            Paragraph((HOSTILE, strong(HOSTILE), code(HOSTILE))),
            Table((HOSTILE,), [((HOSTILE, note(HOSTILE)),), (wide(HOSTILE),)], 1, HOSTILE),
            Note(HOSTILE),
            BulletList((HOSTILE,)),
            Preformatted(HOSTILE),
            DocumentSection(HOSTILE, (Fold(HOSTILE, (Picture("data:,", HOSTILE, HOSTILE),)),)),
        ),
        kind=HOSTILE,
    )
    page = Tags(page_html(document))
    tags = [tag for tag, _ in page.tags]
    assert "script" not in tags
    assert tags.count("img") == 1
    assert page.text.count(HOSTILE) == 17
    markdown = to_markdown(document)
    without_preformatted = markdown.replace(f"    {HOSTILE}", "")
    assert "<" not in without_preformatted
    assert "](b)" not in without_preformatted.replace(r"\](b)", "")


@pytest.mark.parametrize("text", ["a\n\n# b", "  a\t# b "])
def test_a_text_of_markdown_is_one_line(text):
    assert text_markdown(text) == "a # b"


def test_a_template_is_filled_once_with_text_and_elements():
    values = {
        "text": "{{items}} <b>",
        "items": [element("i", {"title": '"<>"'}), element("br"), "&"],
        "script": Verbatim("if (a < b) {}"),
    }
    filled = fill("<p>{{text}}</p>\n{{items}}\n<script>{{script}}</script>", values)
    assert filled == (
        "<p>{{items}} &lt;b&gt;</p>\n"
        '<i title="&quot;&lt;&gt;&quot;"></i>\n<br>\n&amp;\n'
        "<script>if (a < b) {}</script>"
    )
    with pytest.raises(KeyError, match="other"):
        fill("{{other}}", values)
    assert to_html("a", element("circle", {"r": "1"}), separator="\n") == 'a\n<circle r="1"/>'
