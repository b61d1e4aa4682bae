"""What a configuration says of reductions is modelled as it is, or refused."""

from dataclasses import replace

import pytest
from paths import CONFIGS

from fcdensenet.config import NetworkConfig
from namsa.errors import InputError
from train.experiment.reduction import Hybrid, Reduction
from train.scaling import published
from train.scaling.machine import Machine
from train.scaling.model import estimate_step
from train.scaling.report import report
from train.scaling.strategy import Strategy, Unit, fused, strategy_of, units
from train.scaling.workload import Gradient, workload

GRADIENTS = workload(
    NetworkConfig(input_shape=(6, 16, 24), layers=(1, 2, 1), growth=4, first_filters=8), "float32", 0.3
).gradients
QUIET = Machine(jitter=0, late_rate=0)
PAPER = CONFIGS / "paper.yaml"


def test_every_key_of_the_section_reaches_the_model() -> None:
    section = Reduction(
        groups=3, contiguous=True, fuse_groups=False, hierarchical=True, lag=1, cycle_time_ms=2, fusion_threshold_mib=7
    )
    assert strategy_of(section, GRADIENTS) == Strategy(
        "bitvector", 3, "hierarchical", True, cycle_s=2e-3, fusion_bytes=7 * 2**20, fuse_groups=False, contiguous=True
    )
    assert strategy_of(Reduction(cache_capacity=0), GRADIENTS).coordination == "master-worker"
    local = Reduction(synchronise=7)
    assert strategy_of(local, GRADIENTS) == replace(strategy_of(Reduction(), GRADIENTS), synchronise=7)
    with_moments = Reduction(synchronise=7, average_moments=True)
    assert [strategy_of(with_moments, GRADIENTS, moments).averaged_per_weight for moments in (1, 2)] == [2, 3]


@pytest.mark.parametrize(
    ("section", "number"),
    [
        (Reduction(groups=0), 16),
        (Reduction(groups=4), 4),
        (Reduction(grouping="layer"), 9),
        (Reduction(grouping="block"), 7),
        (Reduction(grouping="list", group_list=(("down*", "first*"), ("up*", "td*", "tu*", "bottom*", "last*"))), 2),
    ],
    ids=("none", "bytes", "layer", "block", "list"),
)
def test_groups_are_those_of_the_job(section: Reduction, number: int) -> None:
    made = units(GRADIENTS, strategy_of(section, GRADIENTS))
    assert len(made) == number
    assert sum(len(unit.sizes) for unit in made) == len(GRADIENTS)
    assert sum(sum(unit.sizes) for unit in made) == sum(gradient.size for gradient in GRADIENTS)
    assert [unit.ready_s for unit in made] == sorted(unit.ready_s for unit in made)


def test_a_group_waits_for_its_last_gradient_and_is_one_tensor_if_contiguous() -> None:
    gradients = [Gradient(8, 1.0, "a"), Gradient(4, 2.0, "b"), Gradient(4, 3.0, "c")]
    assert units(gradients, Strategy("bitvector", 2, "tree")) == [Unit(1.0, (8,)), Unit(3.0, (4, 4))]
    assert units(gradients, Strategy("bitvector", 1, "tree", contiguous=True)) == [Unit(3.0, (16,))]


def test_complete_groups_are_fused_up_to_the_threshold_or_not_at_all() -> None:
    ready = [Unit(1.0, (5, 5)), Unit(1.0, (5,)), Unit(1.0, (30,))]
    strategy = Strategy("bitvector", 3, "tree", fusion_bytes=20)
    assert fused(ready, strategy) == [15, 30]  # the threshold splits no tensor
    assert fused(ready, replace(strategy, fuse_groups=False)) == [10, 5, 30]
    assert fused(ready, replace(strategy, fuse_groups=False, fusion_bytes=8)) == [5, 5, 5, 30]  # but groups


def test_fusing_makes_fewer_operations_of_groups_that_complete_together() -> None:
    lagging = replace(published.CACHE_AND_GROUPS, lag=True)  # all groups are there when the step begins
    work = published.FIGURE_1_WORKLOAD
    assert estimate_step(QUIET, work, lagging, 96).operations == 1
    assert estimate_step(QUIET, work, replace(lagging, fuse_groups=False), 96).operations == 8
    apart = replace(published.CACHE_AND_GROUPS, fuse_groups=False)
    assert estimate_step(QUIET, published.PAPER_WORKLOAD, apart, 96).operations == 8
    single = replace(published.CACHE_AND_GROUPS, groups=0, cycle_s=0)
    assert estimate_step(QUIET, published.PAPER_WORKLOAD, single, 96).operations == 25  # a layer's tensors together


def test_what_the_model_does_not_know_is_refused_with_the_key_and_the_remedy() -> None:
    with pytest.raises(InputError, match=r"training\.reduction\.cache_capacity 3 .* 16 or more, or to 0"):
        strategy_of(Reduction(cache_capacity=3), GRADIENTS)
    assert strategy_of(Reduction(cache_capacity=3, groups=3, contiguous=True), GRADIENTS).coordination == "bitvector"
    with pytest.raises(InputError, match=r"training\.reduction\.hybrid: leave it out"):
        strategy_of(Reduction(hybrid=Hybrid(node_ranks=6, leaders=4)), GRADIENTS)
    with pytest.raises(InputError, match=r"training\.reduction\.group_list"):
        strategy_of(Reduction(grouping="list", group_list=(("down*",),)), GRADIENTS)
    epoch = ["training.reduction.synchronise=epoch", "training.reduction.compression=none"]
    local = [*epoch, "training.precision.compute=float32"]
    with pytest.raises(InputError, match=r"training\.reduction\.synchronise epoch.*--samples"):
        report(PAPER, local, ranks="6")
    assert report(PAPER, local, ranks="6", samples=60).curve[0]["operations"] > 0
