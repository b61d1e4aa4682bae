"""The coordinates of pixels."""

import numpy as np
import pytest

from namsa.pixels import PixelGrid, fills_cell, potential_grid, scan_grid

PROVENANCE = {
    "scan_shape": [3, 4],
    "positions_angstrom": [[1 + 2.0 * i, -1 + 2.5 * j] for i in range(3) for j in range(4)],
    "extent_angstrom": [6.0, 10.0],
    "grid_shape": [24, 50],
}


def test_extent_aspect_and_distance_follow_from_step_and_origin():
    grid = PixelGrid((2.0, 3.0), (10.0, -6.0))
    assert grid.extent((4, 5)) == (-7.5, 7.5, 17.0, 9.0)
    assert grid.aspect((4, 5)) == pytest.approx(8 / 15)
    distance = PixelGrid((2.0, 3.0), (-2.0, -6.0)).distance((3, 5))
    assert distance[1, 2] == 0
    assert distance[0, 4] == pytest.approx(np.hypot(2, 6))


def test_only_a_raster_has_a_scan_grid():
    assert scan_grid(PROVENANCE) == PixelGrid([2.0, 2.5], [1.0, -1.0])
    assert scan_grid(PROVENANCE | {"scan_shape": None}) is None
    assert scan_grid(PROVENANCE | {"scan_shape": [1, 12]}) is None


def test_whether_a_scan_fills_the_cell():
    assert fills_cell(scan_grid(PROVENANCE), PROVENANCE)
    assert not fills_cell(scan_grid(PROVENANCE), PROVENANCE | {"extent_angstrom": [6.0, 10.1]})


def test_the_potential_grid_covers_the_cell():
    assert potential_grid(PROVENANCE) == PixelGrid([0.25, 0.2], (0.0, 0.0))
