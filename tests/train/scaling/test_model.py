"""The model of scaling: its limits and its laws."""

import math
from dataclasses import replace

import pytest

from fcdensenet.config import NetworkConfig
from fcdensenet.count import count
from train.scaling import published
from train.scaling.model import (
    allreduce_s,
    block_bytes,
    checkpoint_s,
    coordination_s,
    efficiency,
    estimate_step,
    steps_between,
    straggler_delay_s,
)
from train.scaling.strategy import SUMMIT, Machine, Strategy
from train.scaling.workload import Gradient, Workload, workload

QUIET = Machine(jitter=0, late_rate=0)
NETWORK = NetworkConfig(input_shape=(6, 16, 24), layers=(1, 2, 1), growth=4, first_filters=8)
LOAD = workload(NETWORK, "float32", compute_s=0.3)


def test_gradients_are_all_there_and_ready_from_the_last_layer_to_the_first() -> None:
    assert sum(gradient.size for gradient in LOAD.gradients) == count(NETWORK).gradient_bytes("float32")
    times = [gradient.ready_s for gradient in LOAD.gradients]
    assert times == sorted(times)
    assert times[0] > LOAD.compute_s / 3
    assert times[-1] == pytest.approx(LOAD.compute_s)
    assert LOAD.gradients[0].path == "last/kernel"


def test_accumulated_gradients_are_ready_in_the_last_pass() -> None:
    four = workload(NETWORK, "float32", compute_s=4 * 0.3, accumulate=4)
    assert [gradient.size for gradient in four.gradients] == [gradient.size for gradient in LOAD.gradients]
    for gradient, alone in zip(four.gradients, LOAD.gradients, strict=True):
        assert gradient.ready_s == pytest.approx(3 * 0.3 + alone.ready_s)


@pytest.mark.parametrize("strategy", published.STRATEGIES.values(), ids=published.STRATEGIES)
def test_efficiency_falls_with_ranks_and_stays_between_zero_and_one(strategy: Strategy) -> None:
    values = [efficiency(SUMMIT, published.PAPER_WORKLOAD, strategy, 6 * 4**power) for power in range(7)]
    assert all(0 < value <= 1 for value in values)
    assert efficiency(SUMMIT, LOAD, strategy, 1) == 1  # a rank alone waits for nobody
    assert values == sorted(values, reverse=True)


def test_with_ideal_machinery_nothing_is_lost() -> None:
    free = Machine(
        jitter=0, late_rate=0, hop_between_nodes_s=0, hop_within_node_s=0, message_s=0, announcement_s=0,
        node_link_bytes_per_s=1e30, within_node_bytes_per_s=1e30,
    )  # fmt: skip
    assert efficiency(free, LOAD, replace(published.CACHE_AND_GROUPS, cycle_s=0), 4096) == pytest.approx(1)


def test_a_step_ends_with_the_last_reduction() -> None:
    """One gradient, ready when the computation ends: the step is computation, agreement, reduction."""
    load = Workload(0.5, (Gradient(10**8, 0.5),), "float32")
    strategy = Strategy("master-worker", 0, "tree")
    expected = 0.5 + coordination_s(QUIET, strategy, 600, 1) + allreduce_s(QUIET, "tree", 600, 10**8, "float32")
    assert estimate_step(QUIET, load, strategy, 600).seconds == pytest.approx(expected)


def test_coordination_master_worker_is_linear_bitvector_logarithmic() -> None:
    master, bits = Strategy("master-worker", 0, "tree"), Strategy("bitvector", 0, "tree")
    hops = Machine(hop_between_nodes_s=0)
    assert coordination_s(hops, master, 8000, 50) == pytest.approx(8 * coordination_s(hops, master, 1000, 50))
    assert coordination_s(QUIET, bits, 2**14, 50) == pytest.approx(2 * coordination_s(QUIET, bits, 2**7, 50))
    tree = Strategy("tree", 0, "tree", radix=4)
    assert coordination_s(QUIET, tree, 4**7, 50) < coordination_s(QUIET, master, 4**7, 50) / 50


def test_reductions_are_bound_by_the_link_for_large_messages_and_by_hops_for_small_ones() -> None:
    large, small = 10**10, 8
    limit = 2 * large / QUIET.node_link_bytes_per_s
    assert allreduce_s(QUIET, "ring", 6000, large, "float16") == pytest.approx(limit, rel=0.1)
    assert allreduce_s(QUIET, "tree", 6000, large, "float16") == pytest.approx(limit, rel=0.1)
    assert allreduce_s(QUIET, "ring", 6000, small, "float16") > 50 * allreduce_s(QUIET, "tree", 6000, small, "float16")


def test_hierarchical_reductions_of_float16_lose_with_the_number_of_nodes() -> None:
    """Laanait et al. 2019, section 2.3: their loss is at large numbers of nodes."""
    lost = [
        estimate_step(QUIET, published.FIGURE_1_WORKLOAD, published.HIERARCHICAL_BASELINE, 6 * nodes).seconds
        - published.FIGURE_1_WORKLOAD.compute_s
        for nodes in (16, 1024)
    ]
    assert lost[0] < 0.1 * published.FIGURE_1_WORKLOAD.compute_s
    assert lost[1] > 5 * published.FIGURE_1_WORKLOAD.compute_s


def test_lag_hides_what_fits_into_a_step() -> None:
    slow = Machine(jitter=0, late_rate=0, node_link_bytes_per_s=1.5e9)
    work, strategy = published.PAPER_WORKLOAD, published.CACHE_AND_GROUPS
    assert efficiency(slow, work, strategy, 600) < 0.9
    assert efficiency(slow, work, replace(strategy, lag=True), 600) == pytest.approx(1)


# ---- Stragglers -----------------------------------------------------------------------------------------------------


def test_stragglers_grow_with_ranks_and_are_bounded() -> None:
    machine = Machine(jitter=0, late_rate=1e-4, late_share=0.2)
    assert straggler_delay_s(machine, 1, 1.0, 1.0) == 0
    assert straggler_delay_s(machine, 101, 1.0, 1.0) == pytest.approx(0.2 * 0.01, rel=0.01)  # rare: linear in ranks
    assert straggler_delay_s(machine, 10**5, 1.0, 1.0) == pytest.approx(0.2, rel=0.01)


def test_over_many_steps_delays_add_up_to_the_latest_ranks() -> None:
    gaussian, late = Machine(jitter=0.01, late_rate=0), Machine(jitter=0, late_rate=1e-3, late_share=0.2)
    once = straggler_delay_s(gaussian, 1000, 1.0, 1.0)
    assert straggler_delay_s(gaussian, 1000, 1.0, 1.0, steps=25) == pytest.approx(5 * once)
    for steps in (20, 99_000, 101_000, 10**7):  # one other rank: its mean number of events
        assert straggler_delay_s(late, 2, 1.0, 1.0, steps) == pytest.approx(0.2 * 1e-3 * steps, rel=0.2)
    many = straggler_delay_s(late, 10_001, 1.0, 1.0, steps=20)  # a mean of 0.02 events per rank
    assert 1.5 * 0.2 < many < 2.5 * 0.2


# ---- Local SGD ------------------------------------------------------------------------------------------------------


def local(every: int | str) -> Strategy:
    return replace(published.CACHE_AND_GROUPS, synchronise=every)  # type: ignore[arg-type]


def test_local_sgd_every_k_steps_sends_one_kth_of_a_block() -> None:
    every_step = estimate_step(QUIET, LOAD, local(1), 600)
    gradients = estimate_step(QUIET, LOAD, published.CACHE_AND_GROUPS, 600)
    assert every_step.reduced_bytes == gradients.reduced_bytes
    assert every_step.operations == 1
    with_moments = estimate_step(QUIET, LOAD, replace(local(1), averaged_per_weight=3), 600)
    assert with_moments.reduced_bytes == 3 * gradients.reduced_bytes
    kernels = sum(each.size for each in LOAD.gradients if each.path.endswith("/kernel"))
    packed = block_bytes(LOAD, replace(local(1), kernel_bytes=1))
    assert block_bytes(LOAD, local(1)) - packed == kernels * 3 // 4 > 0
    for k in (5, 50):
        step = estimate_step(QUIET, LOAD, local(k), 600)
        assert step.reduced_bytes == pytest.approx(every_step.reduced_bytes / k)
        assert step.operations == pytest.approx(every_step.operations / k)
        lost = step.seconds - LOAD.compute_s
        assert lost == pytest.approx((every_step.seconds - LOAD.compute_s) / k)


def test_local_sgd_hides_no_reduction() -> None:
    step = estimate_step(QUIET, LOAD, local(1), 600)
    agreement = coordination_s(QUIET, local(1), 600, 1)
    reduction = allreduce_s(QUIET, "tree", 600, block_bytes(LOAD, local(1)), "float32")
    assert step.seconds == pytest.approx(LOAD.compute_s + agreement + reduction)


def test_local_sgd_synchronises_at_the_end_of_an_epoch_too() -> None:
    assert steps_between(local(10), None) == 10
    assert steps_between(local(10), 25) == pytest.approx(25 / 3)
    assert steps_between(local("epoch"), 25) == 25
    assert steps_between(local("epoch"), 0) == 1
    with pytest.raises(ValueError, match="steps_per_epoch"):
        steps_between(local("epoch"), None)
    assert estimate_step(QUIET, LOAD, local("epoch"), 6, 40) == estimate_step(QUIET, LOAD, local(40), 6)


def test_waiting_less_often_costs_less() -> None:
    values = [efficiency(SUMMIT, LOAD, local(k), 6000) for k in (1, 10, 100, 1000)]
    assert values == sorted(values)
    assert math.isclose(values[-1], 1, abs_tol=0.01)


def test_a_checkpoint_that_is_written_behind_the_training_holds_it_only_while_it_is_copied() -> None:
    machine = Machine(copy_bytes_per_s=5e9, disk_bytes_per_s=2e9)
    assert checkpoint_s(machine, 10_000_000_000, between_s=600) == 2
    assert checkpoint_s(machine, 10_000_000_000, between_s=1) == 2 + 4  # the next is due before this one is written
