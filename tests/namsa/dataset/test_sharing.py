"""Shares: every sample in one, equal in cost, mixed like the whole, and the same on every rank."""

import random
from dataclasses import replace

import pytest
from fake_samples import MATERIALS, config

from namsa.dataset.entries import build_entries
from namsa.dataset.sharing import share

AXES = [(1, v, w) for v in range(8) for w in range(8)]
ENTRIES = build_entries(config(specimen={"thickness_angstrom": [10, 20, 40, 80], "zone_axes": AXES}), MATERIALS)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_shares_cover_the_manifest_and_do_not_overlap(size):
    shares = [share(ENTRIES, rank, size) for rank in range(size)]
    assert sorted(entry.id for own in shares for entry in own) == sorted(entry.id for entry in ENTRIES)
    assert shares == [share(random.Random(size).sample(ENTRIES, len(ENTRIES)), rank, size) for rank in range(size)]


@pytest.mark.parametrize("size", [2, 5, 16])
def test_shares_are_of_equal_cost(size):
    shares = [share(ENTRIES, rank, size) for rank in range(size)]
    work = [sum(entry.cost for entry in entries) for entries in shares]
    by_hash = sorted(ENTRIES, key=lambda entry: (entry.seed, entry.id))
    before = [sum(entry.cost for entry in by_hash[rank::size]) for rank in range(size)]
    assert max(work) < 1.03 * sum(work) / size
    assert max(work) < max(before)


def test_an_entry_without_a_cost_counts_as_one_of_many_and_what_is_skipped_is_spread():
    unknown = [replace(entry, cost=0) for entry in ENTRIES]
    assert max(len(share(unknown, rank, 5)) for rank in range(5)) <= len(ENTRIES) / 5 + 1
    whole = sum(bool(entry.skipped) for entry in ENTRIES)
    counts = [sum(bool(entry.skipped) for entry in share(ENTRIES, rank, 4)) for rank in range(4)]
    assert sum(counts) == whole > 0
    assert max(counts) - min(counts) <= 1


def test_any_beginning_of_a_share_is_a_fair_mix():
    """A time limit leaves a beginning: it must not be the cheap, the thick, or the first material."""
    own = share(ENTRIES, 1, 4)
    begun = own[: len(own) // 3]
    mean = [sum(entry.thickness_angstrom for entry in entries) / len(entries) for entries in (begun, ENTRIES)]
    assert mean[0] == pytest.approx(mean[1], rel=0.25)
    for material in MATERIALS:
        assert sum(entry.material == material.name for entry in begun) == pytest.approx(len(begun) / 3, rel=0.5)


@pytest.mark.parametrize("nodes", [1, 2, 5, 46])
def test_every_node_has_a_batch_for_each_of_its_ranks_and_held_out_samples(nodes):
    """As 400,000 entries on 1 to 4,600 nodes of six ranks: 14.5 entries per rank, here of 46 nodes."""
    ranks = 6 * nodes
    rng = random.Random(7)
    splits = ["train"] * 18 + ["dev", "test"]
    entries = [
        replace(ENTRIES[0], id=f"e{i}", seed=rng.getrandbits(40), cost=rng.randint(95, 105), split=rng.choice(splits))
        for i in range(4000)
    ]
    shares = [share(entries, rank, ranks) for rank in range(ranks)]
    training = [sum(entry.split == "train" for entry in own) for own in shares]
    assert max(training) - min(training) <= max(2, 0.04 * max(training))
    for node in range(nodes):
        own = [entry for rank in range(6 * node, 6 * node + 6) for entry in shares[rank]]
        steps = sum(entry.split == "train" for entry in own) // 6
        assert steps >= int(0.9 * 4000 / ranks) - 1 >= 1
        assert any(entry.split != "train" for entry in own)


def test_cost_is_slices_times_pixels_times_probes():
    coarse = config(specimen={"thickness_angstrom": [20, 40]}, simulation={"sampling_angstrom": 0.5})
    fine = config(specimen={"thickness_angstrom": [20, 40]}, simulation={"sampling_angstrom": 0.25})
    thin, thick = build_entries(coarse, MATERIALS[:1])
    assert thick.cost == pytest.approx(2 * thin.cost, rel=0.1)
    assert build_entries(fine, MATERIALS[:1])[0].cost == pytest.approx(4 * thin.cost, rel=0.1)
    few = config(specimen={"thickness_angstrom": [20]}, simulation={"sampling_angstrom": 0.5}, scan={"shape": [4, 4]})
    assert build_entries(few, MATERIALS[:1])[0].cost == thin.cost // 16
