"""Where ranks hold what is their own (late gradients, weights of local SGD), stops and restarts change no bit."""

import json
import math

import launch
import pytest
import restarts
from needs_kind import needs

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    out = tmp_path_factory.mktemp("restarts")
    launch.script("restarts.py", out)
    return json.loads((out / "restarts.json").read_text())


@pytest.mark.parametrize(
    ("way", "stood"),
    [
        pytest.param(way, stood, marks=needs(restarts.KINDS[way]))
        for way, stood in (("lag", 6), ("local", 8), ("changes", 7), ("sharded", 6))
    ],
)
def test_stopped_after_an_epoch_and_within_one_two_ranks_give_the_same_bits(found, way, stood):
    assert found[way]["codes"] == [[0, 0], [130, 130], [0, 0]], found[way]["out"]
    assert "resumed after step 4, 1 whole epochs" in found[way]["out"][1]
    assert found[way]["stood"] == [stood, 12]  # the signal comes after the first of the second epoch's four steps
    assert found[way]["differ"] == []


@needs("lag")
def test_gradients_that_waited_over_a_stop_had_another_loss_scale(found):
    """Or the test above would not see that it is kept, too: step 4 is where the job was stopped first."""
    scales = [row["loss_scale"] for row in found["lag"]["rows"]]
    assert scales[4] == 2 * scales[3]
    assert sum(math.isfinite(row["grad_norm"] or math.inf) for row in found["lag"]["rows"]) >= 9


@needs("sharded")
def test_the_bits_of_layers_are_recorded_and_the_same_after_a_restart(found):
    undisturbed, stopped = found["sharded"]["transfers"]
    assert stopped == undisturbed
    rows = [json.loads(line) for line in undisturbed.splitlines()]
    assert [(row["epoch"], row["step"]) for row in rows] == [(0, 4), (1, 8), (2, 12)]
    bits = [set(row["bits"].values()) for row in rows]
    assert all(len(each) == 1 for each in bits)  # every step of every layer counts
    assert max(bits[0]) < max(bits[2])
    assert rows[0]["sent_bytes"] < rows[2]["sent_bytes"]
