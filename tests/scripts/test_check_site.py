"""The check of the built site finds links to missing files and to missing anchors, and no
others.
"""

import check_site


def test_dead_files_and_anchors_are_found(tmp_path):
    (tmp_path / "guide").mkdir()
    (tmp_path / "index.html").write_text(
        '<h1 id="start"></h1><a href="guide/page.html#caf%C3%A9">a</a><a href="#start">b</a><img '
        'src="image.png"><a href="guide/none.html">c</a><a href="guide/page.html#none">d</a><a '
        'href="https://example.org/none.html">e</a>'
    )
    (tmp_path / "guide" / "page.html").write_text(
        '<p id="café"></p><a href="../index.html">f</a><a href="">g</a>'
    )
    (tmp_path / "image.png").write_bytes(b"")
    assert check_site.dead_links(tmp_path) == [
        "index.html: guide/none.html",
        "index.html: guide/page.html#none",
    ]
