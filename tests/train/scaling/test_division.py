"""The step of a rank that has a part of each sample, in the model of scaling."""

import json

import pytest
from needs_kind import needs
from paths import CONFIGS

from fcdensenet.config import NetworkConfig
from namsa.base.errors import InputError
from train.__main__ import main
from train.networks import count
from train.scaling.division import Division, divided_step
from train.scaling.model import estimate_step
from train.scaling.rank_counts import way_counts
from train.scaling.report import report
from train.scaling.strategy import SUMMIT, Strategy
from train.scaling.workload import workload

NETWORK = NetworkConfig(
    input_shape=(3, 64, 48), layers=(1, 2, 1), growth=4, kernel=5, first_kernel=3, first_filters=6
)
STRATEGY = Strategy("bitvector", groups=4, allreduce="tree", cycle_s=1e-3)
FREE = {
    "hop_between_nodes_s": 0.0,
    "hop_within_node_s": 0.0,
    "within_node_bytes_per_s": 1e18,
    "jitter": 0.0,
}
UNET = CONFIGS / "neighbours/unet3d.yaml"


def part(ways, strategy=STRATEGY, exchange="direct", compute_s=1.0, **machine):
    changed = SUMMIT.model_copy(update=FREE | machine)
    return divided_step(
        NETWORK, "float32", compute_s, changed, strategy, Division(ways, exchange=exchange)
    )


def test_one_part_is_the_whole_sample() -> None:
    step = part(1, exchange="alltoall")
    undivided = workload(NETWORK, "float32", 1.0)
    assert (
        step.work.compute_s
        == pytest.approx(undivided.compute_s)
        == pytest.approx(step.computation_s)
    )
    assert step.backward_s == pytest.approx(2 * step.forward_s)
    for one, other in zip(step.work.gradients, undivided.gradients, strict=True):
        assert (one.size, one.path) == (other.size, other.path)
        assert one.ready_s == pytest.approx(other.ready_s)


def test_parts_without_costs_take_their_share() -> None:
    assert part(4).work.compute_s == pytest.approx(0.25)
    assert part(4, kernel_rows=8.0).work.compute_s > 0.3  # kernels that are slower on few rows


def test_each_exchange_waits_for_an_agreement_that_the_interior_may_hide() -> None:
    """Equation 2: max{main, exchange} + halo. Moments have no interior to hide them."""
    counted = count(NETWORK, ways=2)
    shared = 2 * sum(layer.shared_values > 0 for layer in counted.layers)
    wait_s = STRATEGY.cycle_s / 2
    bare = part(2, exchange="alltoall", compute_s=1e-9)
    assert bare.work.compute_s == pytest.approx(counted.exchanges * wait_s, rel=1e-5)
    hidden = part(2, exchange="alltoall", compute_s=100.0)
    border_s = sum(
        50.0 * layer.forward_flop / counted.forward_flop * layer.border_rows / layer.output_shape[0]
        for layer in counted.layers
        if 0 < layer.border_rows <= layer.output_shape[0] // 2
    )
    assert hidden.work.compute_s == pytest.approx(50.0 + shared * wait_s + border_s, rel=1e-4)


def test_halos_travel_at_the_rate_of_the_slowest_link() -> None:
    counted = count(NETWORK, ways=8)
    rate = 1e3
    between = part(8, compute_s=1e-9, node_link_bytes_per_s=rate).work.compute_s
    halos_s = counted.halo_bytes("float32") / rate
    assert between == pytest.approx(
        halos_s, rel=0.1
    )  # moments are reduced within and between nodes
    assert (
        part(4, compute_s=1e-9, node_link_bytes_per_s=rate).work.compute_s < 1e-6
    )  # all within a node


def test_gradients_are_reduced_over_all_ranks_during_the_backward_pass() -> None:
    """Equation 3: the forward passes, and the longer of backward passes and reductions."""
    work = part(2).work
    machine = SUMMIT.model_copy(update=FREE | {"node_link_bytes_per_s": 1e18, "late_rate": 0.0})
    fixed = Strategy("none", groups=0, allreduce="tree", cycle_s=0.0)
    assert estimate_step(machine, work, fixed, 8).seconds == pytest.approx(work.compute_s, rel=1e-6)
    slow = machine.model_copy(update={"node_link_bytes_per_s": 1e2})
    last_s = estimate_step(slow, work, fixed, 8).seconds
    # (nodes - 1) / nodes of 2 nodes
    sent_s = 2 * sum(gradient.size for gradient in work.gradients) / 2 / 1e2
    assert work.gradients[0].ready_s + sent_s == pytest.approx(last_s, rel=1e-6)


def test_command_for_a_configuration_with_a_network_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert (
        main(["scaling", str(UNET), "--ranks", "1", "--ways", "1,2,8", "--groups", "4", "--json"])
        == 0
    )
    rows = json.loads(capsys.readouterr().out)["division"]
    assert [(row["ways"], row["ranks"]) for row in rows] == [(1, 4), (2, 8), (8, 32)]
    assert rows[0]["speed_up"] == 1 < rows[1]["speed_up"] < 2 < rows[2]["speed_up"] < 8
    for row in rows:
        sum_s = row["computation_s"] + row["exchange_s"] + row["reduction_s"]
        assert row["step_s"] == pytest.approx(sum_s)
    assert rows[0]["exchange_s"] == rows[0]["exchanges"] == rows[0]["exchanged_bytes"] == 0
    assert rows[2]["activation_bytes"] * 8 == pytest.approx(rows[0]["activation_bytes"], rel=1e-6)
    assert main(["scaling", str(UNET), "--ranks", "1", "--ways", "1,2"]) == 0
    assert "Samples divided over ranks" in capsys.readouterr().out


@needs("parts", "division")
def test_the_curve_of_a_divided_job_counts_groups() -> None:
    undivided, divided = (
        report(
            CONFIGS / "quickstart.yaml",
            [f"training.split.ways={ways}"],
            ranks="4,6,12",
            samples=1200,
        )
        for ways in (1, 4)
    )
    assert [row["ranks"] for row in divided.curve] == [4, 12]
    one = undivided.curve[0]
    other = divided.curve[0]
    assert other["steps_per_epoch"] == 4 * one["steps_per_epoch"]
    assert other["samples_per_s"] * other["step_s"] * 4 == pytest.approx(
        one["samples_per_s"] * one["step_s"]
    )
    assert divided.ways == 4


@needs("parts", "division")
def test_what_does_not_fit_is_refused() -> None:
    assert way_counts("1,2,4") == [1, 2, 4]
    for text in ("", "0,2", "two"):
        with pytest.raises(InputError, match="--ways"):
            way_counts(text)
    with pytest.raises(InputError, match=r"3 ways along y: .* at most"):
        report(UNET, ranks="1", ways="3")
    with pytest.raises(InputError, match=r"--ranks 2,3 has no multiple of training.split.ways, 4"):
        report(CONFIGS / "quickstart.yaml", ["training.split.ways=4"], ranks="2,3")
