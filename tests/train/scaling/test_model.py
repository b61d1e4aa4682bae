"""The model of scaling: its limits, its laws and published results."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fcdensenet.config import NetworkConfig
from namsa.errors import InputError
from train.__main__ import main
from train.scaling import published
from train.scaling.model import (
    Gradient,
    Machine,
    Strategy,
    Workload,
    allreduce_s,
    coordination_s,
    efficiency,
    estimate_step,
    straggler_delay_s,
    workload,
)
from train.scaling.report import measured_compute_s, rank_counts

QUIET = Machine(jitter=0, late_rate=0)
NETWORK = NetworkConfig(input_shape=(6, 16, 24), layers=(1, 2, 1), growth=4, first_filters=8)
LOAD = workload(NETWORK, "float32", compute_s=0.3)


def test_gradients_are_all_there_and_ready_from_the_last_layer_to_the_first() -> None:
    from fcdensenet.count import count

    assert sum(gradient.size for gradient in LOAD.gradients) == count(NETWORK).gradient_bytes("float32")
    times = [gradient.ready_s for gradient in LOAD.gradients]
    assert times == sorted(times)
    assert times[0] > LOAD.compute_s / 3
    assert times[-1] == pytest.approx(LOAD.compute_s)


def test_a_rank_alone_waits_for_nobody() -> None:
    assert efficiency(Machine(), LOAD, published.BASELINE, 1) == 1


@pytest.mark.parametrize("strategy", published.STRATEGIES.values(), ids=published.STRATEGIES)
def test_efficiency_falls_with_ranks_and_stays_between_zero_and_one(strategy: Strategy) -> None:
    values = [efficiency(Machine(), published.PAPER_WORKLOAD, strategy, 6 * 4**power) for power in range(7)]
    assert all(0 < value <= 1 for value in values)
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


def test_groups_are_reduced_whole_and_few() -> None:
    assert estimate_step(QUIET, published.PAPER_WORKLOAD, published.CACHE_AND_GROUPS, 96).operations == 8
    layer_by_layer = estimate_step(
        QUIET, published.PAPER_WORKLOAD, replace(published.CACHE_AND_GROUPS, groups=0, cycle_s=0), 96
    )
    assert layer_by_layer.operations == 25  # a layer's kernel and bias are ready together and travel together


def test_lag_hides_what_fits_into_a_step() -> None:
    slow = Machine(jitter=0, late_rate=0, node_link_bytes_per_s=1.5e9)
    assert efficiency(slow, published.PAPER_WORKLOAD, published.CACHE_AND_GROUPS, 600) < 0.9
    assert efficiency(
        slow, published.PAPER_WORKLOAD, replace(published.CACHE_AND_GROUPS, lag=True), 600
    ) == pytest.approx(1)


def test_stragglers_grow_with_ranks_and_are_bounded() -> None:
    machine = Machine(jitter=0, late_rate=1e-4, late_share=0.2)
    assert straggler_delay_s(machine, 1, 1.0, 1.0) == 0
    assert straggler_delay_s(machine, 101, 1.0, 1.0) == pytest.approx(0.2 * 0.01, rel=0.01)  # rare: linear in ranks
    assert straggler_delay_s(machine, 10**7, 1.0, 1.0) == pytest.approx(0.2)


def test_the_published_facts_come_out_together() -> None:
    for result in published.published_results(Machine()):
        if result.kind == "equal":
            assert result.model == pytest.approx(result.published, rel=0.02), result.name
        else:
            assert result.model >= result.published, result.name


def test_the_fit_is_where_the_two_efficiencies_of_a_whole_machine_are_met_equally() -> None:
    """One rate of late ranks for two runs of the whole machine: neither is favoured."""
    first, last = published.published_results(Machine())[0], published.published_results(Machine())[-1]
    assert first.model - first.published == pytest.approx(last.published - last.model, abs=2e-3)


def test_rank_counts() -> None:
    assert rank_counts("1..100", Machine()) == [1, 2, 4, 6, 12, 24, 48, 96, 100]
    assert rank_counts("2,5", Machine()) == [2, 5]
    for text in ("0..4", "4..1", "many", "", "3,0"):
        with pytest.raises(InputError, match="--ranks"):
            rank_counts(text, Machine())


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["scaling", "configs/paper.yaml", "--ranks", "1..27600", "--samples", "200000"]
    assert main([*arguments, "--json", "--out", str(tmp_path / "scaling.png")]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {"name", "kind", "published", "model"} <= report["published"][0].keys()
    assert report["curve"][-1]["ranks"] == 27600
    assert report["curve"][-1]["steps_per_epoch"] == 200000 // 27600
    assert report["recommended"]["efficiency"] >= 0.9
    assert (tmp_path / "scaling.png").stat().st_size > 10_000
    assert main(arguments) == 0
    assert "Ask for up to" in capsys.readouterr().out


def test_a_run_tells_how_long_a_step_computes(tmp_path: Path) -> None:
    row = {"step_s": 0.9, "data_s": 0.1, "comm_s": 0.3}
    lines = [json.dumps(row | {"step": step, "step_s": s}) for step, s in enumerate((9.0, 0.9, 0.9, 0.9), start=1)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + '\n{"step": 5, "step')  # still being written
    assert measured_compute_s(tmp_path) == pytest.approx(0.5)
    with pytest.raises(InputError, match="metrics.jsonl"):
        measured_compute_s(tmp_path / "nothing")


def test_bad_input_is_said_in_a_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["scaling", "configs/paper.yaml", "--ranks", "none"]) == 2
    machine = tmp_path / "machine.yaml"
    machine.write_text("jiter: 0.1\n")
    assert main(["scaling", "configs/paper.yaml", "--machine", str(machine)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "jitter" in lines[1]
