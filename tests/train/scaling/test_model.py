"""The model of scaling: its limits and its laws, and what of a configuration it takes or
refuses.
"""

import math
from dataclasses import replace

import pytest
from needs_kind import needs
from paths import CONFIGS

from fcdensenet.config import NetworkConfig
from fcdensenet.count import count
from namsa.base.errors import InputError
from train.experiment.sections import Training
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
from train.scaling.report import report
from train.scaling.strategy import SUMMIT, Machine, Strategy, Unit, fused, strategy_of, units
from train.scaling.workload import Gradient, StepWorkload, workload

QUIET = Machine(jitter=0, late_rate=0)
NETWORK = NetworkConfig(input_shape=(6, 16, 24), layers=(1, 2, 1), growth=4, first_filters=8)
LOAD = workload(NETWORK, "float32", compute_s=0.3)
PAPER = CONFIGS / "paper.yaml"


def test_gradients_are_all_there_and_ready_from_the_last_layer_to_the_first() -> None:
    assert sum(gradient.size for gradient in LOAD.gradients) == count(NETWORK).gradient_bytes(
        "float32"
    )
    times = [gradient.ready_s for gradient in LOAD.gradients]
    assert times == sorted(times)
    assert times[0] > LOAD.compute_s / 3
    assert times[-1] == pytest.approx(LOAD.compute_s)
    assert LOAD.gradients[0].path == "last/kernel"


def test_accumulated_gradients_are_ready_in_the_last_pass() -> None:
    four = workload(NETWORK, "float32", compute_s=4 * 0.3, accumulate=4)
    assert [gradient.size for gradient in four.gradients] == [
        gradient.size for gradient in LOAD.gradients
    ]
    for gradient, alone in zip(four.gradients, LOAD.gradients, strict=True):
        assert gradient.ready_s == pytest.approx(3 * 0.3 + alone.ready_s)


@pytest.mark.parametrize("strategy", published.STRATEGIES.values(), ids=published.STRATEGIES)
def test_efficiency_falls_with_ranks_and_stays_between_zero_and_one(strategy: Strategy) -> None:
    values = []
    for power in range(7):
        values.append(efficiency(SUMMIT, published.PAPER_WORKLOAD, strategy, 6 * 4**power))
    for value in values:
        assert 0 < value <= 1
    assert efficiency(SUMMIT, LOAD, strategy, 1) == 1  # a rank alone waits for nobody
    assert values == sorted(values, reverse=True)


def test_with_ideal_machinery_nothing_is_lost() -> None:
    free = Machine(
        jitter=0, late_rate=0, hop_between_nodes_s=0, hop_within_node_s=0, message_s=0,
        announcement_s=0,
        node_link_bytes_per_s=1e30, within_node_bytes_per_s=1e30,
    )  # fmt: skip
    assert efficiency(
        free, LOAD, replace(published.CACHE_AND_GROUPS, cycle_s=0), 4096
    ) == pytest.approx(1)


def test_a_step_ends_with_the_last_reduction() -> None:
    """One gradient, ready when the computation ends: the step is computation, agreement,
    reduction.
    """
    load = StepWorkload(0.5, (Gradient(10**8, 0.5),), "float32")
    strategy = Strategy("master-worker", 0, "tree")
    expected = (
        0.5
        + coordination_s(QUIET, strategy, 600, 1)
        + allreduce_s(QUIET, "tree", 600, 10**8, "float32")
    )
    assert estimate_step(QUIET, load, strategy, 600).seconds == pytest.approx(expected)


def test_coordination_master_worker_is_linear_bitvector_logarithmic() -> None:
    master = Strategy("master-worker", 0, "tree")
    bits = Strategy("bitvector", 0, "tree")
    hops = Machine(hop_between_nodes_s=0)
    assert coordination_s(hops, master, 8000, 50) == pytest.approx(
        8 * coordination_s(hops, master, 1000, 50)
    )
    assert coordination_s(QUIET, bits, 2**14, 50) == pytest.approx(
        2 * coordination_s(QUIET, bits, 2**7, 50)
    )
    tree = Strategy("tree", 0, "tree", radix=4)
    assert coordination_s(QUIET, tree, 4**7, 50) < coordination_s(QUIET, master, 4**7, 50) / 50


def test_reductions_are_bound_by_the_link_for_large_messages_and_by_hops_for_small_ones() -> None:
    large = 10**10
    small = 8
    limit = 2 * large / QUIET.node_link_bytes_per_s
    assert allreduce_s(QUIET, "ring", 6000, large, "float16") == pytest.approx(limit, rel=0.1)
    assert allreduce_s(QUIET, "tree", 6000, large, "float16") == pytest.approx(limit, rel=0.1)
    assert allreduce_s(QUIET, "ring", 6000, small, "float16") > 50 * allreduce_s(
        QUIET, "tree", 6000, small, "float16"
    )


def test_hierarchical_reductions_of_float16_lose_with_the_number_of_nodes() -> None:
    """Laanait et al. 2019, section 2.3: their loss is at large numbers of nodes."""
    lost = []
    for nodes in (16, 1024):
        lost.append(
            estimate_step(
                QUIET, published.FIGURE_1_WORKLOAD, published.HIERARCHICAL_BASELINE, 6 * nodes
            ).seconds
            - published.FIGURE_1_WORKLOAD.compute_s
        )
    assert lost[0] < 0.1 * published.FIGURE_1_WORKLOAD.compute_s
    assert lost[1] > 5 * published.FIGURE_1_WORKLOAD.compute_s


def test_lag_hides_what_fits_into_a_step() -> None:
    slow = Machine(jitter=0, late_rate=0, node_link_bytes_per_s=1.5e9)
    work = published.PAPER_WORKLOAD
    strategy = published.CACHE_AND_GROUPS
    assert efficiency(slow, work, strategy, 600) < 0.9
    assert efficiency(slow, work, replace(strategy, lag=True), 600) == pytest.approx(1)


# ---- Stragglers


def test_stragglers_grow_with_ranks_and_are_bounded() -> None:
    machine = Machine(jitter=0, late_rate=1e-4, late_share=0.2)
    assert straggler_delay_s(machine, 1, 1.0, 1.0) == 0
    assert straggler_delay_s(machine, 101, 1.0, 1.0) == pytest.approx(
        0.2 * 0.01, rel=0.01
    )  # rare: linear in ranks
    assert straggler_delay_s(machine, 10**5, 1.0, 1.0) == pytest.approx(0.2, rel=0.01)


def test_over_many_steps_delays_add_up_to_the_latest_ranks() -> None:
    gaussian = Machine(jitter=0.01, late_rate=0)
    late = Machine(jitter=0, late_rate=1e-3, late_share=0.2)
    once = straggler_delay_s(gaussian, 1000, 1.0, 1.0)
    assert straggler_delay_s(gaussian, 1000, 1.0, 1.0, steps=25) == pytest.approx(5 * once)
    for steps in (20, 99_000, 101_000, 10**7):  # one other rank: its mean number of events
        assert straggler_delay_s(late, 2, 1.0, 1.0, steps) == pytest.approx(
            0.2 * 1e-3 * steps, rel=0.2
        )
    many = straggler_delay_s(late, 10_001, 1.0, 1.0, steps=20)  # a mean of 0.02 events per rank
    assert 1.5 * 0.2 < many < 2.5 * 0.2


# ---- Local SGD


def local(every: int | str) -> Strategy:
    return replace(published.CACHE_AND_GROUPS, synchronise=every)  # type: ignore[arg-type]


def test_local_sgd_every_k_steps_sends_one_kth_of_a_block() -> None:
    every_step = estimate_step(QUIET, LOAD, local(1), 600)
    gradients = estimate_step(QUIET, LOAD, published.CACHE_AND_GROUPS, 600)
    assert every_step.reduced_bytes == gradients.reduced_bytes
    assert every_step.operations == 1
    with_moments = estimate_step(QUIET, LOAD, replace(local(1), averaged_per_weight=3), 600)
    assert with_moments.reduced_bytes == 3 * gradients.reduced_bytes
    kernels = sum(gradient.size for gradient in LOAD.gradients if gradient.path.endswith("/kernel"))
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
    assert estimate_step(QUIET, LOAD, local("epoch"), 6, 40) == estimate_step(
        QUIET, LOAD, local(40), 6
    )


def test_waiting_less_often_costs_less() -> None:
    values = [efficiency(SUMMIT, LOAD, local(k), 6000) for k in (1, 10, 100, 1000)]
    assert values == sorted(values)
    assert math.isclose(values[-1], 1, abs_tol=0.01)


def test_a_checkpoint_that_is_written_behind_the_training_holds_it_only_while_it_is_copied() -> (
    None
):
    machine = Machine(copy_bytes_per_s=5e9, disk_bytes_per_s=2e9)
    assert checkpoint_s(machine, 10_000_000_000, between_s=600) == 2
    assert (
        checkpoint_s(machine, 10_000_000_000, between_s=1) == 2 + 4
    )  # the next is due before this one is written


# ---- What a configuration says of reductions is modelled as it is, or refused


def of(exchange: dict[str, object], **sections: object) -> Strategy:
    return strategy_of(
        Training.model_validate({"epochs": 1, "exchange": exchange} | sections), LOAD.gradients
    )


def test_every_key_of_the_section_reaches_the_model() -> None:
    allreduce = {"groups": 3, "contiguous": True, "fuse_groups": False, "hierarchical": True}
    ranks = {"cycle_time_ms": 2, "fusion_threshold_mib": 7}
    wanted = Strategy(
        "bitvector",
        3,
        "hierarchical",
        cycle_s=2e-3,
        fusion_bytes=7 * 2**20,
        fuse_groups=False,
        contiguous=True,
    )
    assert of(allreduce, ranks=ranks) == wanted
    assert of({}, ranks={"cache_capacity": 0}).coordination == "master-worker"


@needs("lag")
def test_lag_reaches_the_model() -> None:
    assert of({"kind": "lag", "of": {"groups": 3}}) == replace(of({"groups": 3}), lag=True)


@needs("local_sgd")
def test_local_sgd_reaches_the_model() -> None:
    local = {"kind": "local_sgd", "synchronise": 7}
    assert of(local) == replace(of({}), synchronise=7)
    assert of(local | {"precision": 16}).kernel_bytes == 2
    momentum, adam = ({"optimizer": {"kind": kind}} for kind in ("momentum", "adam"))
    assert [
        of(local | {"average_moments": True}, **optimizer).averaged_per_weight
        for optimizer in (momentum, adam)
    ] == [2, 3]


@pytest.mark.parametrize(
    ("section", "group_count"),
    [
        ({"groups": 0}, 16),
        ({"groups": 4}, 4),
        ({"grouping": "layer"}, 9),
        ({"grouping": "block"}, 7),
        (
            {
                "grouping": "list",
                "group_list": [["down*", "first*"], ["up*", "td*", "tu*", "bottom*", "last*"]],
            },
            2,
        ),
    ],
    ids=("none", "bytes", "layer", "block", "list"),
)
def test_groups_are_those_of_the_job(section: dict[str, object], group_count: int) -> None:
    made = units(LOAD.gradients, of(section))
    assert len(made) == group_count
    assert sum(len(unit.sizes) for unit in made) == len(LOAD.gradients)
    assert sum(sum(unit.sizes) for unit in made) == sum(
        gradient.size for gradient in LOAD.gradients
    )
    assert [unit.ready_s for unit in made] == sorted(unit.ready_s for unit in made)


def test_a_group_waits_for_its_last_gradient_and_is_one_tensor_if_contiguous() -> None:
    gradients = [Gradient(8, 1.0, "a"), Gradient(4, 2.0, "b"), Gradient(4, 3.0, "c")]
    assert units(gradients, Strategy("bitvector", 2, "tree")) == [
        Unit(1.0, (8,)),
        Unit(3.0, (4, 4)),
    ]
    assert units(gradients, Strategy("bitvector", 1, "tree", contiguous=True)) == [Unit(3.0, (16,))]


def test_complete_groups_are_fused_up_to_the_threshold_or_not_at_all() -> None:
    ready = [Unit(1.0, (5, 5)), Unit(1.0, (5,)), Unit(1.0, (30,))]
    strategy = Strategy("bitvector", 3, "tree", fusion_bytes=20)
    assert fused(ready, strategy) == [15, 30]  # the threshold splits no tensor
    assert fused(ready, replace(strategy, fuse_groups=False)) == [10, 5, 30]
    assert fused(ready, replace(strategy, fuse_groups=False, fusion_bytes=8)) == [
        5,
        5,
        5,
        30,
    ]  # but groups


def test_fusing_makes_fewer_operations_of_groups_that_complete_together() -> None:
    lagging = replace(
        published.CACHE_AND_GROUPS, lag=True
    )  # all groups are there when the step begins
    work = published.FIGURE_1_WORKLOAD
    assert estimate_step(QUIET, work, lagging, 96).operations == 1
    assert estimate_step(QUIET, work, replace(lagging, fuse_groups=False), 96).operations == 8
    apart = replace(published.CACHE_AND_GROUPS, fuse_groups=False)
    assert estimate_step(QUIET, published.PAPER_WORKLOAD, apart, 96).operations == 8
    single = replace(published.CACHE_AND_GROUPS, groups=0, cycle_s=0)
    assert (
        estimate_step(QUIET, published.PAPER_WORKLOAD, single, 96).operations == 25
    )  # a layer's tensors together


def test_what_the_model_does_not_know_is_refused_with_the_key_and_the_remedy() -> None:
    few = {"cache_capacity": 3}
    with pytest.raises(
        InputError, match=r"training\.ranks\.cache_capacity 3 .* 16 or more, or to 0"
    ):
        of({}, ranks=few)
    assert of({"groups": 3, "contiguous": True}, ranks=few).coordination == "bitvector"
    with pytest.raises(InputError, match=r"training\.exchange\.group_list"):
        of({"grouping": "list", "group_list": [["down*"]]})


@pytest.mark.parametrize(
    "section",
    [
        pytest.param({"kind": "hybrid", "node_ranks": 6, "leaders": 4}, marks=needs("hybrid")),
        pytest.param({"kind": "sharded"}, marks=needs("sharded")),
    ],
)
def test_a_kind_that_the_model_does_not_know_is_refused(section: dict[str, object]) -> None:
    with pytest.raises(
        InputError,
        match=rf"does not model training\.exchange\.kind {section['kind']}: take kind all",
    ):
        of(section)


@needs("local_sgd")
def test_averages_once_an_epoch_need_the_number_of_samples() -> None:
    local = [
        "training.exchange={kind: local_sgd, synchronise: epoch}",
        "training.precision.compute=float32",
    ]
    with pytest.raises(InputError, match=r"training\.exchange\.synchronise epoch.*--samples"):
        report(PAPER, local, ranks="6")
    assert report(PAPER, local, ranks="6", samples=60).curve[0]["operations"] > 0
