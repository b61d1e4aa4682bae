"""Windows of samples, and imperfections, in batches and in the configuration."""

import numpy as np
import pytest
import tensorflow as tf
from synthetic import Memory

from namsa import Sample
from namsa.base.pixels import density_grid, scan_grid
from namsa.dataset import records
from namsa.dataset.entry import Entry
from train.experiment.experiment import Experiment
from train.input import windows
from train.input.batches import batches
from train.input.imperfections import Geometry, apply, damage, draw
from train.input.views import mean_target

SCAN = (12, 13)
WINDOW = (4, 8)
DETECTOR = (5, 7)
STEP = (0.4, 0.5)


def job(window=WINDOW, **inputs):
    """Windows of 4 × 8 positions of scans of 12 × 13, a network without poolings' loss of
    pixels.
    """
    tree = {
        "scan": {"shape": SCAN, "step_angstrom": STEP},
        "data": {"dtype": "float32"},
        "simulation": {"sampling_angstrom": 0.2},
        "detector": {"shape": DETECTOR, "pixel_mrad": 8.0},
        "target": {"at": "scan"},
        "network": {"input_shape": (35, *window), "layers": (1, 1, 1), "growth": 4, "kernel": 3,
        "first_kernel": 3,
                    "first_filters": 4},
        "training": {"epochs": 1, "inputs": {"layout": "scan", "power": 1.0} | inputs},
    }  # fmt: skip
    return Experiment.model_validate(tree)


def numbered(seed=0):
    """A sample whose density counts the positions, and whose patterns hold the count, spread over
    the pixels.
    """
    count = 1 + np.arange(SCAN[0] * SCAN[1], dtype=np.float32)
    positions = np.argwhere(np.ones(SCAN)) * STEP + (1.0, 2.0)
    provenance = {
        "aberrations": {},
        "energy_ev": 2e5,
        "semiangle_mrad": 20.0,
        "scan_shape": list(SCAN),
        "positions_angstrom": positions.tolist(),
        "extent_angstrom": [10.0, 12.0],
        "grid_shape": [60, 60],
        "detector_sampling_mrad": [8.0, 8.0],
        "detector_origin_mrad": [-16.0, -24.0],
        "density_sampling_angstrom": list(STEP),
        "density_origin_angstrom": [1.0, 2.0],
    }
    weights = np.random.default_rng(seed).dirichlet(np.ones(35)).reshape(DETECTOR)
    patterns = (count[:, None, None] * weights / 200).astype(np.float32)
    return Sample(patterns, count.reshape(SCAN), np.zeros((60, 60), np.float32), provenance)


def stored(count=1):
    entries = []
    for i in range(count):
        entries.append(Entry(f"s{i}", f"s{i}", "X", "P1", (0, 0, 1), 20.0, i, "train"))
    return Memory(
        {e.id: bytes(records.encode(numbered(e.seed), "float32")) for e in entries}
    ), entries


@pytest.mark.slow
def test_windows_are_drawn_anew_each_epoch_with_their_density():
    data, entries = stored()
    corners = set()
    for epoch in range(60):
        ((x, y),) = batches(data, entries, job(), epoch)
        assert (tuple(x.shape), tuple(y.shape)) == ((1, *WINDOW, 35), (1, *WINDOW, 1))
        first_position = int(y[0, 0, 0, 0]) - 1
        corner = divmod(first_position, SCAN[1])
        expected = numbered().density[corner[0] : corner[0] + 4, corner[1] : corner[1] + 8]
        np.testing.assert_array_equal(y[0, ..., 0], expected)
        np.testing.assert_allclose(tf.reduce_sum(x[0], -1) / 35, expected / 200, rtol=1e-5)
        corners.add(corner)
        np.testing.assert_array_equal(next(batches(data, entries, job(), epoch))[1], y)
    assert len(corners) > 25
    assert {y for y, _ in corners} == set(range(9))
    assert {x for _, x in corners} == set(range(6))


def test_windows_are_mirrored_with_their_density():
    data, entries = stored()
    orders = set()
    for epoch in range(24):
        ((x, y),) = batches(data, entries, job(augment=True), epoch)
        np.testing.assert_allclose(tf.reduce_sum(x[0], -1) / 35, y[0, ..., 0] / 200, rtol=1e-5)
        orders.add(
            (
                int(np.sign(y[0, 1, 0, 0] - y[0, 0, 0, 0])),
                int(np.sign(y[0, 0, 1, 0] - y[0, 0, 0, 0])),
            )
        )
    assert orders == {(1, 1), (1, -1), (-1, 1), (-1, -1)}


def test_the_middle_window_keeps_its_place():
    record = records.decode(records.encode(numbered(), "float32"))
    window = windows.middle(record, WINDOW)
    np.testing.assert_array_equal(window.density, record.density[4:8, 2:10])
    np.testing.assert_array_equal(
        window.cbed.sum((1, 2)), record.cbed.sum((1, 2)).reshape(SCAN)[4:8, 2:10].ravel()
    )
    scan = scan_grid(window.provenance)
    density = density_grid(window.provenance)
    np.testing.assert_allclose(scan.origin, (1 + 4 * 0.4, 2 + 2 * 0.5))
    np.testing.assert_allclose(density.origin, scan.origin)
    assert windows.middle(record, SCAN) is record
    data, _ = stored()
    np.testing.assert_array_equal(mean_target(data, ["s0"], WINDOW), window.density)


def test_the_network_is_said_to_see_its_window():
    assert job().conditions().scan_shape == WINDOW
    assert job().sample_shapes() == ((*SCAN, *DETECTOR), SCAN)
    assert job().window_shapes() == ((*WINDOW, *DETECTOR), WINDOW)
    with pytest.raises(
        ValueError, match=r"input_shape is \[35, 16, 8\], but the data give \[35, 12, 13\]"
    ):
        job((16, 8))


def test_imperfections_come_before_the_noise_and_depend_on_sample_and_epoch():
    ranges = {
        "source_size_angstrom": [0.3, 0.6],
        "beam_gain": [0.1, 0.2],
        "dead_pixels": [0.05, 0.1],
    }
    data, entries = stored(2)
    plain, noisy = (
        job(imperfections=ranges, **dose) for dose in ({}, {"dose_electrons_per_pattern": 1000.0})
    )
    ((x, y),) = batches(data, entries[1:], plain, epoch=3)
    sample = numbered(1)
    drawn = draw(plain.training.inputs.imperfections, 1, 3)
    corner = divmod(int(y[0, 0, 0, 0]) - 1, SCAN[1])
    geometry = Geometry.of(sample.provenance)
    margin = plain.window_margin()
    assert margin == (2, 2)
    around = sample.cbed.reshape(*SCAN, *DETECTOR)[
        corner[0] - 2 : corner[0] + 6, corner[1] - 2 : corner[1] + 10
    ]  # all that is read: the margin suffices
    expected = damage(apply(around, drawn, geometry, margin, WINDOW), drawn)
    np.testing.assert_allclose(x[0], 35 * expected.reshape(*WINDOW, 35), rtol=1e-6)
    np.testing.assert_array_equal(next(batches(data, entries[::-1], plain, epoch=3))[0], x)
    assert not np.array_equal(next(batches(data, entries[1:], plain, epoch=4))[0], x)
    ((counts, _),) = batches(data, entries[1:], noisy, epoch=3)
    counts = counts[0].numpy() * 1000 / 35
    np.testing.assert_allclose(counts, np.round(counts), atol=1e-3)
    clean = expected.sum() * 1000
    assert abs(counts.sum() - clean) < 5 * np.sqrt(clean)


def test_refuses_imperfections_without_margins_or_on_noise():
    wide = {
        "source_size_angstrom": [0, 1.0],
        "drift_angstrom": [0, 2.0],
        "flyback_angstrom": [0, 1.0],
    }
    with pytest.raises(
        ValueError, match=r"reach 2.8 Å, \[8, 6\] positions.*set scan.shape to \[20, 20\] or more"
    ):
        job(imperfections=wide)
    assert job((4, 4), imperfections={"turn_degrees": [0, 2]}).window_margin() == (0, 0)
    tree = job().model_dump()
    tree["detector"]["electrons_per_pattern"] = 100.0
    tree["training"]["inputs"]["imperfections"] = {"turn_degrees": [0, 2]}
    with pytest.raises(
        ValueError, match="imperfections come before the noise, which electrons_per_pattern"
    ):
        Experiment.model_validate(tree)
