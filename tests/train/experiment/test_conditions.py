"""The conditions that a network was trained for, compared with the geometry that the simulation uses."""

import pytest
from paths import CONFIGS

from namsa.config.instrument import Detector
from namsa.physics.detector import pixels
from namsa.physics.grid import Grid
from namsa.physics.optics import wavelength_angstrom
from train.experiment.conditions import conditions, describe_unchecked
from train.experiment.experiment import load


@pytest.mark.parametrize(
    ("config", "overrides", "symmetric"),
    [
        ("quickstart.yaml", [], True),
        ("quickstart.yaml", ["detector={shape: [16, 16], binning: 3}"], False),
        ("quickstart.yaml", ["detector={shape: [16, 16], binning: 2}"], False),
        ("quickstart.yaml", ["detector={shape: [15, 15]}", "network.input_shape=[225, 24, 24]"], True),
        ("summit.yaml", [], True),
        ("paper.yaml", [], False),  # an even number of the grid's own pixels is not centred
    ],
)
def test_the_detector_is_where_the_simulation_puts_it(config, overrides, symmetric):
    experiment = load(CONFIGS / config, overrides)
    trained, cell = conditions(experiment), experiment.specimen.lateral_angstrom
    detector = experiment.detector or Detector(shape=experiment.simulation.grid_shape)
    grid = Grid((512, 512), cell)
    if experiment.detector is None:
        detector = None
    rows = pixels(grid, wavelength_angstrom(experiment.microscope.energy_ev), detector)
    assert trained.detector_shape == tuple(row.count for row in rows)
    assert trained.pixel_mrad == pytest.approx([row.size_mrad for row in rows])
    assert trained.first_edge == pytest.approx([row.edge for row in rows])
    assert trained.symmetric == symmetric


def test_a_scan_that_fills_the_cell_has_the_step_of_the_smallest():
    assert conditions(load(CONFIGS / "paper.yaml")).scan_step_angstrom == (3.125, 3.125)
    assert conditions(load(CONFIGS / "quickstart.yaml")).scan_step_angstrom == (0.4, 0.4)


def test_conditions_that_no_file_contains_are_described():
    overrides = ["variation={rule: random, configurations: 2, defocus_angstrom: [-50, 100]}"]
    overrides += ["training.inputs.dose_electrons_per_pattern=[100, 1000]", "microscope.aberrations={C30: 1.0e+4}"]
    experiment = load(CONFIGS / "quickstart.yaml", overrides)
    line = describe_unchecked(experiment, experiment.training.inputs)
    for part in ("thickness 20 to 40 Å", "defocus -50 to 100 Å", "{'C30': 10000.0}", "at 100 to 1000 electrons"):
        assert part in line


def test_varied_conditions_are_described_by_their_magnitudes():
    base = ["specimen.thickness_angstrom=[60]", "simulation.method=scatter"]
    ranges = "thickness_angstrom: [15, 60], C12_angstrom: [0, 30], specimen_tilt_mrad: [0, 10]"
    drawn = load(CONFIGS / "quickstart.yaml", [*base, f"variation={{rule: random, configurations: 2, {ranges}}}"])
    line = describe_unchecked(drawn, drawn.training.inputs)
    assert "thickness 15 to 60 Å, defocus 0 Å" in line
    assert line.endswith("without noise, specimen tilt mrad 0 to 10, C12 angstrom 0 to 30")
    lists = "thickness_angstrom: [20, 40], C12_angstrom: [[5, 1], [30, -2]], beam_tilt_mrad: [[0, 0], [3, -4]]"
    base.append("training.inputs.augment=false")
    listed = load(CONFIGS / "quickstart.yaml", [*base, f"variation={{rule: grid, {lists}}}"])
    line = describe_unchecked(listed, listed.training.inputs)
    assert "thickness 20 to 40 Å" in line
    assert line.endswith("without noise, beam tilt mrad 0 to 5, C12 angstrom 5 to 30")
