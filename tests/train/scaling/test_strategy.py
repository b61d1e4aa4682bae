"""What a configuration says of reductions is modelled as it is, or refused."""

from dataclasses import replace

import pytest
from needs_kind import needs
from paths import CONFIGS

from fcdensenet.config import NetworkConfig
from namsa.errors import InputError
from train.experiment.sections import Training
from train.scaling import published
from train.scaling.model import estimate_step
from train.scaling.report import report
from train.scaling.strategy import Machine, Strategy, Unit, fused, strategy_of, units
from train.scaling.workload import Gradient, workload

GRADIENTS = workload(
    NetworkConfig(input_shape=(6, 16, 24), layers=(1, 2, 1), growth=4, first_filters=8), "float32", 0.3
).gradients
QUIET = Machine(jitter=0, late_rate=0)
PAPER = CONFIGS / "paper.yaml"


def of(exchange: dict[str, object], **sections: object) -> Strategy:
    return strategy_of(Training.model_validate({"epochs": 1, "exchange": exchange} | sections), GRADIENTS)


def test_every_key_of_the_section_reaches_the_model() -> None:
    allreduce = {"groups": 3, "contiguous": True, "fuse_groups": False, "hierarchical": True}
    ranks = {"cycle_time_ms": 2, "fusion_threshold_mib": 7}
    wanted = Strategy(
        "bitvector", 3, "hierarchical", cycle_s=2e-3, fusion_bytes=7 * 2**20, fuse_groups=False, contiguous=True
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
    assert [of(local | {"average_moments": True}, **each).averaged_per_weight for each in (momentum, adam)] == [2, 3]


@pytest.mark.parametrize(
    ("section", "number"),
    [
        ({"groups": 0}, 16),
        ({"groups": 4}, 4),
        ({"grouping": "layer"}, 9),
        ({"grouping": "block"}, 7),
        ({"grouping": "list", "group_list": [["down*", "first*"], ["up*", "td*", "tu*", "bottom*", "last*"]]}, 2),
    ],
    ids=("none", "bytes", "layer", "block", "list"),
)
def test_groups_are_those_of_the_job(section: dict[str, object], number: int) -> None:
    made = units(GRADIENTS, of(section))
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
    few = {"cache_capacity": 3}
    with pytest.raises(InputError, match=r"training\.ranks\.cache_capacity 3 .* 16 or more, or to 0"):
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
    with pytest.raises(InputError, match=rf"does not model training\.exchange\.kind {section['kind']}: take kind all"):
        of(section)


@needs("local_sgd")
def test_averages_once_an_epoch_need_the_number_of_samples() -> None:
    local = ["training.exchange={kind: local_sgd, synchronise: epoch}", "training.precision.compute=float32"]
    with pytest.raises(InputError, match=r"training\.exchange\.synchronise epoch.*--samples"):
        report(PAPER, local, ranks="6")
    assert report(PAPER, local, ranks="6", samples=60).curve[0]["operations"] > 0
