"""The true density of a simulated scan stands beside the reconstruction, in the network's band."""

import json
from dataclasses import replace

import h5py
import numpy as np
import pytest
from fake_samples import raster_provenance
from small_network import BEAM, DETECTOR, experiment, patterns, stored, write_run

import namsa
from namsa.physics import density_target
from namsa.physics.grid import Grid
from train.apply.models import load_model
from train.tasks.density.scan.application import reconstruct
from train.tasks.density.scan.picture import EDGE_ANGSTROM, edges

SCAN = (24, 28)
STEP = 0.4
GRID = (48, 56)
EXTENT = (SCAN[0] * STEP, SCAN[1] * STEP)
WAVES = 5  # of the density along y


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    write_run(folder, experiment())
    (folder / "calibration.json").write_text(json.dumps({"uncertainty_factor": 1e-6}))
    return load_model(folder)


@pytest.fixture(scope="module")
def scan(tmp_path_factory):
    """A file of patterns and a density that is a wave along y."""
    path = tmp_path_factory.mktemp("truth") / "scan.h5"
    provenance = raster_provenance(SCAN, DETECTOR, EXTENT, GRID, 8.0) | {"semiangle_mrad": 20.0}
    wave = np.cos(2 * np.pi * WAVES * np.arange(GRID[0]) / GRID[0])
    density = (5 + wave)[:, None] * np.ones(GRID)
    sample = namsa.Sample(
        patterns(SCAN).reshape(-1, *DETECTOR),
        density.astype(np.float32),
        np.zeros(GRID, np.float32),
        provenance,
    )
    sample.save(path)
    return path


def test_the_truth_has_the_band_and_the_positions_of_the_density(model, scan):
    result = reconstruct(scan, model, beam_intensity=1.0)
    q = WAVES / EXTENT[0]
    height = density_target.window(np.array(q), model.max_q)
    assert 0.1 < height < 0.9
    y = STEP * np.arange(SCAN[0])
    expected = 5 + height * np.cos(2 * np.pi * q * y)
    np.testing.assert_allclose(result.truth, expected[:, None] * np.ones(SCAN), rtol=1e-4)


@pytest.mark.parametrize(("wider", "is_known"), [(1.3, True), (1.0, True), (0.9, False)])
def test_a_density_of_a_wider_band_gets_that_of_the_network(tmp_path, model, scan, wider, is_known):
    """As samples have it whose configuration sets target.max_q_per_angstrom, and networks'."""
    sample = namsa.read_sample(scan)
    band = wider * model.max_q
    grid = Grid(GRID, EXTENT)
    limited = density_target.on_grid(density_target.band_limited(sample.density, grid, band))
    provenance = sample.provenance | {"density_max_q_per_angstrom": band}
    path = tmp_path / "limited.h5"
    replace(sample, density=limited.astype(np.float32), provenance=provenance).save(path)
    truth = reconstruct(path, model, beam_intensity=1.0).truth
    assert (truth is not None) == is_known
    if is_known:
        expected = reconstruct(scan, model, beam_intensity=1.0).truth
        np.testing.assert_allclose(truth, expected, rtol=1e-4)


def test_the_picture_shows_both_in_the_same_colours(tmp_path, model, scan):
    result = reconstruct(scan, model, beam_intensity=1.0)
    figure = result.show()
    panels = {}
    for ax in figure.axes:
        if ax.images:
            panels[ax.get_title(loc="left")] = ax
    limits = [panels[name].images[0].get_clim() for name in ("Density", "Truth")]
    assert limits[0] == limits[1]
    assert "same band" in figure.get_supxlabel()
    result.save(tmp_path / "out.h5")
    with h5py.File(tmp_path / "out.h5") as file:
        provenance = json.loads(file["reconstruction"].attrs["provenance"])
    assert provenance["outside"] == ""
    assert result.lines == []


def test_no_truth_is_shown_where_none_is_known(tmp_path, model, scan):
    stored_alone = stored(tmp_path / "patterns.h5", patterns(SCAN))
    for data, calibration in (
        (stored_alone, BEAM),
        (patterns(SCAN), BEAM),
        (scan, replace(BEAM, scan_step_angstrom=(0.5, 0.4))),
        (scan, replace(BEAM, flip_scan="y")),
    ):
        result = reconstruct(data, model, calibration, beam_intensity=1.0)
        assert result.truth is None


def test_edges_are_so_wide_along_each_axis():
    is_edge = edges((20, 30), (0.2, 0.4))
    margin_y = round(EDGE_ANGSTROM / 0.2)
    margin_x = round(EDGE_ANGSTROM / 0.4)
    assert not is_edge[margin_y:-margin_y, margin_x:-margin_x].any()
    assert (~is_edge).sum() == (20 - 2 * margin_y) * (30 - 2 * margin_x)
