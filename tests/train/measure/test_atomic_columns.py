"""Atomic columns: which there are in a specimen, and what an image whose maxima are known is
worth.
"""

import json

import ase
import numpy as np
import pytest

from namsa.base.pixels import PixelGrid
from train.measure.atomic_columns import (
    NAMES,
    column_metrics,
    mean_column_metrics,
    specimen_columns,
)

# 9.2 × 10.5 Å from (−1, 2)
FRAME = PixelGrid((0.4, 0.3), (-1.0, 2.0))
SHAPE = (24, 36)
COLUMNS = np.array([[0.53, 4.1], [2.4, 9.97], [4.31, 5.2], [6.6, 8.03], [6.0, 3.5]])
ELECTRONS = np.array([6.0, 14.0, 30.0, 47.0, 64.0])


def image(positions, heights, width=0.45):
    y, x = FRAME.coordinates(SHAPE)
    squared = (y[:, None, None] - positions[:, 0]) ** 2 + (x[None, :, None] - positions[:, 1]) ** 2
    return 3 + np.exp(-squared / (2 * width**2)) @ heights


def specimen(positions=COLUMNS, numbers=ELECTRONS, cell=(40, 30, 20), layers=3):
    """Atoms above each other at (y, x); the electrons of `numbers` in each of `layers`."""
    atoms = ase.Atoms(cell=cell, pbc=True)
    for layer in range(layers):
        for (y, x), atomic_number in zip(positions, numbers, strict=True):
            atoms.append(ase.Atom(int(atomic_number), (x, y, 5.0 * layer)))
    return atoms


def judged(picture, atoms=None):
    return column_metrics(picture, FRAME, specimen_columns(atoms or specimen(), FRAME, SHAPE))


def test_columns_are_at_their_electrons_centroid_and_weigh_all_layers():
    result = specimen_columns(specimen(), FRAME, SHAPE)
    order = np.lexsort(result.positions.T[::-1])
    expected = np.lexsort(COLUMNS.T[::-1])
    assert np.allclose(result.positions[order], COLUMNS[expected], atol=1e-3)
    assert np.allclose(result.electrons[order], 3 * ELECTRONS[expected])
    assert result.isolated.all()

    zigzag = ase.Atoms("CO", positions=[(5.0, 4.0, 0), (5.07, 4.0, 3)], cell=(40, 30, 20), pbc=True)
    zigzag.set_array("occupancy", np.array([0.5, 1.0]))
    (only,) = specimen_columns(zigzag, FRAME, SHAPE).positions
    assert only == pytest.approx((4.0, 5.0 + 0.07 * 8 / (8 + 3)), abs=1e-3)


def test_columns_repeat_with_the_cell_and_join_across_its_faces():
    atoms = ase.Atoms("CO", positions=[(2.98, 0.01, 0), (0.01, 3.99, 3)], cell=(3, 4, 20), pbc=True)
    result = specimen_columns(atoms, FRAME, SHAPE)
    assert np.allclose(result.electrons, 14)
    # x = (2.98·6 + 3.01·8)/14 and y = (0.01·6 − 0.01·8)/14, and again every 3 and 4 Å up to 1 Å
    # outside of the image
    x = (2.98 * 6 + 3.01 * 8) / 14
    y = (0.01 * 6 - 0.01 * 8) / 14
    expected = set()
    for j in range(3):
        for i in range(4):
            expected.add((round(y + 4 * j, 3), round(x + 3 * i, 3)))
    assert {tuple(np.round(position, 3)) for position in result.positions} == expected


def test_close_columns_do_not_stand_apart():
    pair = np.array([[3.0, 5.0], [3.0, 5.7], [7.0, 5.0]])
    result = specimen_columns(specimen(pair, [6, 7, 8]), FRAME, SHAPE)
    pairs = zip(result.electrons, result.isolated, strict=True)
    isolated = {int(electrons): bool(alone) for electrons, alone in pairs}
    assert isolated == {18: False, 21: False, 24: True}


def test_a_perfect_image_finds_and_ranks_every_column():
    result = judged(image(COLUMNS, ELECTRONS))
    assert tuple(result) == NAMES
    assert result["columns_found"] == 1
    assert result["columns_spurious"] == 0
    assert result["column_rank"] == pytest.approx(1)
    assert result["column_error_angstrom"] < 0.02


def test_each_fault_shows_in_its_own_number():
    moved = judged(image(COLUMNS + np.array([0.12, -0.16]), ELECTRONS))
    assert moved["column_error_angstrom"] == pytest.approx(0.2, abs=0.02)
    assert (moved["columns_found"], moved["column_rank"]) == (1, pytest.approx(1))

    like = np.array([6, 6, 30, 30, 30])  # whose heights differ a little
    alike = judged(image(COLUMNS, like + np.array([0.1, 0, 0.2, 0, 0.1])), specimen(numbers=like))
    assert alike["column_rank"] == pytest.approx(1)

    reversed_order = judged(image(COLUMNS, ELECTRONS[::-1]))
    assert reversed_order["column_rank"] == pytest.approx(-1)
    assert reversed_order["column_error_angstrom"] < 0.03

    lost = judged(image(COLUMNS[1:], ELECTRONS[1:]))
    assert (lost["columns_found"], lost["columns_spurious"]) == (pytest.approx(4 / 5), 0)

    invented = judged(image(np.vstack([COLUMNS, [[2.0, 7.0]]]), np.append(ELECTRONS, 50)))
    assert (invented["columns_found"], invented["columns_spurious"]) == (1, pytest.approx(1 / 6))

    far = judged(image(COLUMNS + np.array([0.6, 0.3]), ELECTRONS))
    assert (far["columns_found"], far["columns_spurious"]) == (0, 1)
    assert far["column_error_angstrom"] is None
    assert far["column_rank"] is None


def test_what_cannot_be_measured_is_none_and_json():
    outside = specimen(np.array([[20.0, 20.0]]), [6])
    assert judged(image(COLUMNS, ELECTRONS), outside)["columns_found"] is None
    flat = judged(np.full(SHAPE, 2.0))
    assert flat == {
        "column_error_angstrom": None,
        "columns_found": 0,
        "columns_spurious": None,
        "column_rank": None,
    }
    alike = judged(image(COLUMNS, ELECTRONS), specimen(numbers=np.full(5, 6)))
    assert alike["column_rank"] is None
    json.dumps([flat, alike], allow_nan=False)


def test_means_are_over_what_is_defined():
    first = dict.fromkeys(NAMES, 1.0)
    second = dict.fromkeys(NAMES, 3.0) | {"column_rank": None}
    assert mean_column_metrics([first, second, {"ssim": 0.5}]) == dict.fromkeys(NAMES, 2.0) | {
        "column_rank": 1.0
    }
    assert mean_column_metrics([{"ssim": 0.5}]) == {}
