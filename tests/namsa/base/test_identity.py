"""The comparison of what made a thing with what would continue it."""

import pytest

from namsa.base import identity
from namsa.base.errors import InputError

BEFORE = {"training": {"epochs": 3, "rates": [1e-3, 1e-4]}, "data": {"digest": "ab"}, "seed": 1}


def test_the_order_of_keys_does_not_change_a_digest():
    assert identity.digest_of({"a": 1, "b": [2, 3]}) == identity.digest_of({"b": [2, 3], "a": 1})
    assert identity.digest_of({"a": [2, 3]}) != identity.digest_of({"a": [3, 2]})


def test_a_file_of_the_same_size_has_another_digest(tmp_path):
    file = tmp_path / "weights"
    file.write_bytes(b"abc" * 1_000_000)
    before = identity.digest_of_file(file)
    file.write_bytes(b"abd" * 1_000_000)
    assert identity.digest_of_file(file) != before


def test_differences_are_named_by_dotted_keys_with_both_values():
    now = {"training": {"epochs": 5, "rates": [1e-3, 1e-4], "power": 0.5}, "data": {"digest": "ab"}}
    assert [str(difference) for difference in identity.compare(BEFORE, now)] == [
        "training.epochs: was 3, is 5",
        "training.power: was (none), is 0.5",
        "seed: was 1, is (none)",
    ]


def test_what_changes_nothing_is_returned_and_everything_else_refused():
    now = BEFORE | {"training": {"epochs": 5, "rates": [1e-3]}}
    epochs = {"training.epochs"}.__contains__
    with pytest.raises(InputError) as refusal:
        identity.check_same("the run", BEFORE, now, changes_nothing=epochs, remedy="use another.")
    assert str(refusal.value).splitlines() == [
        "the run was made differently:",
        "  training.rates: was [0.001, 0.0001], is [0.001]",
        "use another.",
    ]
    now = BEFORE | {"training": BEFORE["training"] | {"epochs": 5}}
    differences = identity.check_same("the run", BEFORE, now, changes_nothing=epochs, remedy="")
    assert [difference.key for difference in differences] == ["training.epochs"]
