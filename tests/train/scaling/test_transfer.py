"""The four terms of sending weights in fewer bytes, against the tables of Zhuang et al. 2020."""

from itertools import pairwise

import pytest

from train.scaling.transfer import (
    POWER,
    VGG_WEIGHTS,
    X86,
    TransferRates,
    break_even_bytes_per_s,
    fitted,
    published_transfers,
    transfer_times,
)

RESULTS = published_transfers()


def of_table(table):
    return {result.name: result for result in RESULTS if result.source.endswith(f"table {table}")}


def test_the_first_table_is_fitted_and_of_the_second_the_wire_alone():
    assert all(result.fitted and result.met for result in of_table("II").values())
    assert [name for name, result in of_table("III").items() if result.fitted] == ["transfer in float32, ms"]


def test_no_single_term_of_the_second_system_is_met_and_their_sum_is_within_four_percent():
    terms = [of_table("III")[f"{name}, ms"] for name in ("transfer", "norms", "pack", "unpack")]
    assert not any(term.met for term in terms)
    errors = [term.model / term.published - 1 for term in terms]
    assert errors == pytest.approx([0.088, 0.669, -0.250, 0.083], abs=2e-3)
    assert sum(term.model for term in terms) / sum(term.published for term in terms) - 1 == pytest.approx(
        -0.034, abs=2e-3
    )


def test_shares_of_the_overheads_follow_from_the_tables():
    for table, (_, _, norm, pack, unpack, step) in (("II", X86), ("III", POWER)):
        shares = of_table(table)
        assert shares["share of norms in the step, %"].published == pytest.approx(100 * norm / step, abs=0.01)
        both = shares["share of pack and unpack in the step, %"].published
        assert both == pytest.approx(100 * (pack + unpack) / step, abs=0.01)


def test_the_weights_are_those_of_the_network_of_the_paper():
    filters = (3, 64, 128, 256, 256, 512, 512, 512, 512)
    convolutions = sum(9 * a * b for a, b in pairwise(filters))
    assert convolutions + 25_088 * 4_096 + 4_096**2 + 4_096 * 200 == VGG_WEIGHTS


def test_below_the_break_even_rate_fewer_bytes_take_less_time():
    rates, size = fitted()
    limit = break_even_bytes_per_s(rates, size)
    for factor, faster in ((0.9, True), (1.1, False)):
        wire = TransferRates(factor * limit, rates.norm, rates.pack, rates.unpack)
        saved = transfer_times(wire, 1e6, 4).total_s - transfer_times(wire, 1e6, size).total_s
        assert (saved > 0) == faster
