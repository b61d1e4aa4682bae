import numpy as np
import pytest
import tensorflow as tf

from namsa.base.errors import InputError
from train.strategies.exchange.sharded import gain
from train.strategies.exchange.sharded.ownership import balanced_owners, joined_groups, wire_bytes
from train.strategies.exchange.sharded.precision import (
    initial_states,
    next_states,
    norms_of_units,
    threshold,
    units_of,
)
from train.strategies.exchange.sharded.section import Transfer

CONFIG = Transfer(precision="adaptive", threshold=0.01, interval=2)


def after(norms, config=CONFIG, updated=None):
    """The states after each of the `norms`, rows of one norm per layer."""
    states = initial_states(len(norms[0]), config)
    trace = []
    for index, row in enumerate(norms):
        done = True if updated is None else updated[index]
        states = next_states(states, tf.constant(row, tf.float32), config, done)
        trace.append([value.numpy().tolist() for value in states])
    return trace


def test_layers_switch_by_themselves_after_the_steps_that_the_interval_says():
    # Rates of the first layer: none, 0.005, 0.5, -0.2, 0, 0; of the second always 0.1.
    first = 100 * np.cumprod([1, 1.005, 1.5, 0.8, 1, 1])
    second = 1.1 ** np.arange(6)
    trace = after(np.stack([first, second], 1))
    assert [bits for bits, *_ in trace] == [[8, 8], [8, 8], [8, 8], [16, 8], [16, 8], [24, 8]]
    assert [counted for _, counted, *_ in trace] == [[0, 0], [1, 0], [1, 0], [0, 0], [1, 0], [0, 0]]
    _, _, norms, rates, steps = trace[-1]
    np.testing.assert_allclose(norms, [first[-1], second[-1]], rtol=1e-6)
    np.testing.assert_allclose(rates, [0.005 + 0.5 - 0.2, 0.5], atol=1e-5)
    assert steps == [5, 5]


AT_THRESHOLD = Transfer(precision="adaptive", threshold=0.5, interval=1)
FAST = Transfer(precision="adaptive", threshold=1.0, interval=1, start_bits=14, step_bits=12)


@pytest.mark.parametrize(
    ("config", "norms", "updated", "column", "expected"),
    [
        (
            AT_THRESHOLD,
            [[2.0], [3.0], [4.0]],
            None,
            0,
            [[8], [8], [16]],
        ),  # a rate at the threshold does not count
        (CONFIG, [[1.0, 0.0]] * 4, [True, False, False, True], 1, [[0, 0], [0, 0], [0, 0], [1, 0]]),
        (
            FAST,
            [[1.0]] * 5,
            None,
            0,
            [[14], [26], [32], [32], [32]],
        ),  # bits end at those of float32
    ],
)
def test_thresholds_skipped_steps_and_layers_of_zeros_do_not_count(
    config, norms, updated, column, expected
):
    assert [states[column] for states in after(norms, config, updated)] == expected


def test_a_fixed_precision_stays_and_rates_are_summed():
    trace = after([[1.0], [2.0], [2.0]], Transfer(precision=24))
    assert trace[-1] == [[24], [0], [2.0], [1.0], [2]]


RESNET = [
    "conv1_conv/kernel",
    "conv2_block1_0_conv/kernel",
    "conv2_block1_1_conv/kernel",
    "conv2_block1_2_conv/kernel",
    "conv2_block2_1_conv/kernel",
    "conv2_block2_2_conv/kernel",
    "predictions/kernel",
]


def test_the_layers_of_a_residual_block_share_bits():
    """They count together by the norm of all their weights, the others by their own."""
    config = CONFIG.model_copy(update={"units": "block"})
    units = units_of(RESNET, config)
    assert units == [0, 1, 1, 1, 2, 2, 3]
    assert units_of(RESNET, CONFIG) == list(range(7))
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=size) for size in (4, 5, 6, 7, 8, 9, 3)]
    norms = norms_of_units(tf.constant([np.linalg.norm(w) for w in weights]), units)
    blocks = [weights[0], np.concatenate(weights[1:4]), np.concatenate(weights[4:6]), weights[6]]
    np.testing.assert_allclose(norms, [np.linalg.norm(w) for w in blocks])
    # A layer that grows by 20 % alone counts; that of a block that stays the same does not hold it.
    alone = np.ones((3, 2))
    alone[:, 0] = [1, 1.2, 1.44]
    small = np.sqrt(np.array([1, 1.44, 1.2**4]) + 1e4)  # beside one of norm 100
    bits = after(np.stack([alone[:, 0], small], 1), config)[-1][0]
    assert bits == [8, 16]


def test_blocks_of_a_network_without_any_are_refused_with_the_remedy():
    config = CONFIG.model_copy(update={"units": "block"})
    with pytest.raises(InputError, match="no residual blocks: set it to layer"):
        units_of(["down1_conv1/kernel", "last/kernel"], config)


def test_the_gain_at_a_link_is_that_of_the_bytes_less_packing(monkeypatch):
    monkeypatch.setattr(gain, "measure_packing_s", lambda values, width: 1e-6 * values * width)
    rows = [
        {"epoch": 0, "bits": {"a": 8, "b": 16}},
        {"epoch": 1, "bits": {"a": 32, "b": 32}},
    ]
    packed, unpacked = gain.gains(rows, {"a": 1000, "b": 3000}, 500, 0.010, 1e6)
    assert packed.weight_bytes == 1000 + 2 * 3000 + 4 * 500
    assert packed.whole_bytes == unpacked.weight_bytes == 4 * 4500
    assert packed.packing_s == pytest.approx(1e-3 + 6e-3)
    assert packed.gain == pytest.approx(1 - (0.010 + 0.007 + 0.009) / (0.010 + 0.018))
    assert unpacked.gain == unpacked.packing_s == 0  # nothing is packed


def test_packing_is_measured():
    assert gain.measure_packing_s(1000, 2) > 0


TRANSFERS = [
    {"epoch": 0, "steps": 9, "norm_rate": 0.3},
    {"epoch": 1, "steps": 10, "norm_rate": 0.2},
    {"epoch": 2, "steps": 10, "norm_rate": -0.1},
    {"epoch": 3, "steps": 10, "norm_rate": 7.0},
]


def test_the_threshold_is_the_mean_rate_until_the_error_first_drops():
    validations = []
    for epoch, loss in ((1, 0.5), (2, 0.6), (3, 0.4), (4, 0.3)):
        validations.append({"epoch": epoch, "loss": loss})
    assert threshold(TRANSFERS, validations, "loss") == pytest.approx(
        (9 * 0.3 + 10 * 0.2 - 10 * 0.1) / 29
    )


def test_a_threshold_needs_a_drop_and_the_epochs_before_it():
    rising = [{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.5}]
    with pytest.raises(
        ValueError, match=r"error \(loss\) drops in none of 2 validations: train on"
    ):
        threshold(TRANSFERS, rising, "loss")
    falling = [{"epoch": 5, "loss": 0.5}, {"epoch": 6, "loss": 0.4}]
    with pytest.raises(ValueError, match="has 4 of the 6 epochs"):
        threshold(TRANSFERS, falling, "loss")


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_no_rank_owns_more_than_its_share_and_one_variable(ranks):
    sizes = [5, 900, 30, 30, 4000, 2, 1, 700, 650, 1000, 12]
    owners = balanced_owners(sizes, ranks)
    loads = []
    for rank in range(ranks):
        loads.append(sum(size for size, owner in zip(sizes, owners, strict=True) if owner == rank))
    assert sum(loads) == sum(sizes)
    assert 0 < min(loads) <= max(loads) <= sum(sizes) / ranks + max(sizes)


def test_equal_variables_are_dealt_out_in_order():
    assert balanced_owners([7] * 6, 3) == (0, 1, 2, 0, 1, 2)


def test_each_value_travels_to_its_owner_and_back_from_it():
    assert wire_bytes([100, 10], [2, 4], ranks=4) == 3 * (100 * (4 + 2) + 10 * (4 + 4))
    assert wire_bytes([100, 10], [1, 4], ranks=2, gradient_bytes=2) == 100 * (2 + 1) + 10 * (2 + 4)
    assert wire_bytes([100], [4], ranks=1) == 0


@pytest.mark.parametrize(
    ("groups", "joined"),
    [
        ([[3, 2], [1, 0]], [[3, 2], [1, 0]]),
        (
            [[3], [1], [2], [0]],
            [[3, 1, 2, 0]],
        ),  # what is left after the last whole group goes with it
        ([[0], [1], [2], [3]], [[0, 1], [2, 3]]),
        ([[0, 1, 2, 3]], [[0, 1, 2, 3]]),
    ],
)
def test_groups_are_joined_until_every_rank_owns_a_part(groups, joined):
    assert joined_groups(groups, (0, 1, 0, 1), 2) == joined
