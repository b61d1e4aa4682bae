"""Report and card say whether held-out materials were learnt before."""

import pytest

from namsa.base.markup import to_html
from namsa.figures.document import blocks_html
from train.reports.held_out import held_out_words, unseen
from train.reports.report import run_facts


@pytest.mark.parametrize(
    ("facts", "described", "words"),
    [
        (
            {"learnt_known": True, "left_out": []},
            "that training never saw",
            "none was learnt, in the last training or before it",
        ),
        (
            {"learnt_known": True, "left_out": ["Cu-fcc"]},
            "that training never saw",
            "1 material was learnt in a training before the last one, and left out: Cu-fcc",
        ),
        (
            {"learnt_known": False, "left_out": ["Au<b>", "Cu-fcc"]},
            "held out of the last training",
            "2 materials were learnt in a training before the last one, and left out: Au<b>, "
            "Cu-fcc; whether trainings before the last one learnt others is not known",
        ),
        (
            None,  # of an earlier version
            "held out of the last training",
            "whether trainings before the last one learnt them is not known",
        ),
    ],
)
def test_what_is_not_known_is_not_claimed(facts, described, words):
    run = {"epochs": 3} | ({"held_out": facts} if facts else {})
    assert unseen(run) == described
    assert held_out_words(run) == words
    page = to_html(*blocks_html([run_facts(run, None)]))
    assert words.replace("<b>", "&lt;b&gt;") in page
    assert "learnt_known" not in page
