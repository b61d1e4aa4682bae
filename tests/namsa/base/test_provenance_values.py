"""Values of a provenance are of the kind that namsa writes, or an error names the sample and the
key; its pixels.
"""

import json

import fake_samples
import numpy as np
import pytest

from namsa import InputError
from namsa.base.pixels import PixelGrid, array_axes, fills_cell, potential_grid, scan_grid
from namsa.base.provenance_values import check, value

GOOD = fake_samples.sample(id="Cu-1").provenance
SHAPES = {"cbed": (6, 5, 7), "density": (2, 3), "projected_potential": (8, 10)}
DEEP = json.loads("[" * 81 + "]" * 81)
REQUIRED = (
    "energy_ev", "semiangle_mrad", "thickness_angstrom", "extent_angstrom", "grid_shape",
    "detector_sampling_mrad",
    "detector_origin_mrad", "density_sampling_angstrom", "density_origin_angstrom",
)  # fmt: skip


def test_a_good_provenance_passes_and_its_values_are_unchanged():
    check(GOOD)
    for key in GOOD:
        assert value(GOOD, key) is GOOD[key]


@pytest.mark.parametrize("key", REQUIRED)
def test_a_missing_value_is_named_with_its_sample_and_the_remedy(key):
    without = {}
    for name, item in GOOD.items():
        if name != key:
            without[name] = item
    for read in (check, lambda provenance: value(provenance, key)):
        with pytest.raises(
            InputError, match=rf"^the provenance of sample Cu-1 has no {key}: .*namsa repair"
        ):
            read(without)
    assert value(without, key, 7) == 7


@pytest.mark.parametrize("key", REQUIRED)
@pytest.mark.parametrize(
    "wrong", [None, "x", "", [], {}, [[1], [2]], float("nan"), 1e300, [1e300, 1], 10**400, True]
)
def test_a_wrong_value_is_named(key, wrong):
    with pytest.raises(InputError, match=f"Cu-1 has {key} .*, and needs ") as error:
        check(GOOD | {key: wrong})
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    "changes",
    [
        {"semiangle_mrad": -1}, {"grid_shape": [0, 8]}, {"extent_angstrom": [-1.0, 1.0]},
        {"scan_shape": [2.0, 3]},
        {"scan_shape": []}, {"zone_axis": [0, 1]}, {"aberrations": {"C10": None}},
        {"software": ["namsa"]},
        {"warnings": "thick"}, {"other": 10**30}, {"other": {"x": [float("inf")]}}, {"other": DEEP},
        {"source": "x" * 20_000},
    ],
)  # fmt: skip
def test_absurd_values_are_refused(changes):
    with pytest.raises(InputError, match="^the provenance of sample Cu-1 ") as error:
        check(GOOD | changes)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("provenance", [None, [], "x", 3])
def test_a_provenance_is_a_mapping(provenance):
    with pytest.raises(InputError, match="must be a mapping"):
        check(provenance)


@pytest.mark.parametrize(
    "positions", [None, [], [[1, 2, 3]], [[1], [2, 3]], "xy", [["a", "b"]], [[0, 1e300]] * 6, [{}]]
)
def test_positions_are_pairs_of_numbers(positions):
    with pytest.raises(InputError, match="positions_angstrom"):
        array_axes(GOOD | {"positions_angstrom": positions}, SHAPES)


def test_positions_are_as_many_as_patterns_and_as_the_raster_has():
    with pytest.raises(InputError, match="6 positions_angstrom for 7 patterns"):
        array_axes(GOOD, SHAPES | {"cbed": (7, 5, 7)})
    for read in (lambda provenance: array_axes(provenance, SHAPES), scan_grid):
        with pytest.raises(InputError, match="6 positions_angstrom for a scan of 2 × 4"):
            read(GOOD | {"scan_shape": [2, 4]})


def test_a_samples_own_images_say_what_is_missing():
    sample = fake_samples.sample(semiangle_mrad=None)
    with pytest.raises(InputError, match="has semiangle_mrad None"):
        sample.bright_field()
    with pytest.raises(InputError, match=r"scan_shape \[5, 5\] for 6 patterns"):
        fake_samples.sample(scan_shape=[5, 5]).bright_field()


# ---- Coordinates of pixels

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


def test_grids_follow_from_the_provenance_and_only_a_raster_has_one():
    assert scan_grid(PROVENANCE) == PixelGrid([2.0, 2.5], [1.0, -1.0])
    assert scan_grid(PROVENANCE | {"scan_shape": None}) is None
    assert scan_grid(PROVENANCE | {"scan_shape": [1, 12]}) is None
    assert fills_cell(scan_grid(PROVENANCE), PROVENANCE)
    assert not fills_cell(scan_grid(PROVENANCE), PROVENANCE | {"extent_angstrom": [6.0, 10.1]})
    assert potential_grid(PROVENANCE) == PixelGrid([0.25, 0.2], (0.0, 0.0))
