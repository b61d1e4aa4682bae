"""One description of a simulation: sections of arguments, and the order of the provenance."""

from dataclasses import fields
from inspect import signature

import pytest
from ase.build import bulk

import namsa
from namsa.config.instrument import Detector, Microscope
from namsa.config.numerics import Simulation
from namsa.config.simulation import SimulationConfig
from namsa.config.specimen import FrozenPhonons
from namsa.crystals.builtin import builtin_materials
from namsa.dataset import simulate_entry
from namsa.dataset.entries import build_entries
from namsa.physics import specimen
from namsa.sampling.slicing import plan_slices
from namsa.setup.settings import SimulationSettings, settings_of
from namsa.simulation_plan import plan_simulation

SILICON = bulk("Si", "diamond", a=5.431, cubic=True)
ARGUMENTS = {"energy_ev": 200e3, "semiangle_mrad": 20.0, "grid_shape": (48, 48), "backend": "cpu"}
NOT_SETTINGS = {
    "zone_axis",
    "thickness_angstrom",
    "lateral_angstrom",
    "atoms",
    "sink",
    "on_progress",
}
CASES = [
    ("energy_ev", 80e3),
    ("aberrations", {"C10": 5.0}),
    ("source_size_angstrom", 0.7),
    ("precision", "float64"),
    ("method", "prism"),
    ("band_fraction", 0.9),
    ("seed", 3),
    ("detector", Detector(max_angle_mrad=30.0)),
    ("frozen_phonons", FrozenPhonons(rms_angstrom=0.1)),
    ("scan_shape", (2, 3)),
    ("depth_bins", 2),
]


def value_in(settings, name):
    for section in (settings, settings.microscope, settings.simulation):
        if name in vars(section):
            return vars(section)[name]
    raise KeyError(name)


@pytest.mark.parametrize(("name", "value"), CASES)
def test_an_argument_is_in_its_section_as_it_was_given(name, value):
    assert value_in(settings_of(ARGUMENTS | {name: value}), name) is value or (
        name == "aberrations" and value_in(settings_of({name: value}), name) == value
    )


def test_every_argument_of_simulate_has_a_place_and_its_default():
    for function in (namsa.simulate, namsa.Scattering.simulate):
        for name, parameter in signature(function).parameters.items():
            if name in NOT_SETTINGS | {"self", "depth"}:
                continue
            if parameter.default is parameter.empty:
                settings_of({name: 1.0})
                continue
            given = settings_of({name: parameter.default})
            assert given == settings_of({}), f"{name} has another default in its section"


def test_an_unknown_argument_is_refused_as_by_a_function():
    with pytest.raises(TypeError, match="unexpected keyword argument 'semi_angle'"):
        namsa.check_convergence(SILICON, energy_ev=2e5, semiangle_mrad=20.0, semi_angle=3)


def test_what_is_not_given_is_automatic():
    chosen = settings_of({"energy_ev": 200e3, "semiangle_mrad": 20.0})
    assert chosen.simulation.sampling_angstrom == "auto"
    assert chosen.simulation.slice_thickness_angstrom == "auto"
    assert chosen.judged
    given = settings_of({"sampling": 0.1, "slice_thickness_angstrom": 2.0, "accuracy": None})
    assert given.simulation.sampling_angstrom == 0.1
    assert given.simulation.slice_thickness_angstrom == 2.0
    assert not given.judged


def test_no_name_is_in_two_sections():
    settings = {field.name for field in fields(SimulationSettings)}
    assert not settings & Microscope.model_fields.keys()
    assert not settings & Simulation.model_fields.keys()
    assert not (Microscope.model_fields.keys() & Simulation.model_fields.keys()) - {"preset"}


def test_a_plan_does_no_work_and_its_run_is_the_sample_of_simulate(monkeypatch):
    settings = settings_of(ARGUMENTS | {"scan": (2, 2), "seed": 4})
    with monkeypatch.context() as patched:
        patched.setattr(specimen, "build", None)
        plan = plan_simulation(SILICON, settings)
    made = plan.run()
    called = namsa.simulate(SILICON, **ARGUMENTS, scan=(2, 2), seed=4)
    assert (made.cbed == called.cbed).all()
    assert made.provenance == called.provenance


def test_an_entry_is_checked_without_its_work(monkeypatch):
    config = SimulationConfig.model_validate({"simulation": {"grid_shape": (8, 8)}})
    copper = next(m for m in builtin_materials() if m.name == "Cu-225-cF4")
    (entry,) = build_entries(config, (copper,))
    monkeypatch.setattr(specimen, "build", None)
    with pytest.raises(namsa.InputError, match="does not fit the grid"):
        simulate_entry.check_entry(config, copper, entry)
    fine = SimulationConfig.model_validate({"simulation": {"grid_shape": (240, 240)}})
    simulate_entry.check_entry(fine, copper, entry)


def test_dataset_and_simulate_choose_the_same_pixels_and_slices():
    """The setup of a sample and `plan_slices`, which plans what `simulate` and `scatter` do."""
    config = SimulationConfig.model_validate(
        {"simulation": {}, "specimen": {"lateral_angstrom": (8.0, 8.0)}}
    )
    copper = next(m for m in builtin_materials() if m.name == "Cu-225-cF4")
    (entry,) = build_entries(config, (copper,))
    plan = simulate_entry.plan_entry(config, copper, entry)
    slicing = plan_slices(
        plan.supercell.atoms, settings_of({"energy_ev": 200e3, "semiangle_mrad": 20.0})
    )
    assert plan.setup.grid == slicing.grid == plan.simulation.slicing.grid
    assert plan.setup.slices == slicing.slices == plan.simulation.slicing.slices


def test_samples_have_their_provenance_in_the_order_of_older_ones():
    sample = namsa.simulate(SILICON, **ARGUMENTS, scan=(1, 2), depth_bins=2, band_fraction=0.9)
    assert list(sample.provenance) == [
        "energy_ev",
        "semiangle_mrad",
        "grid_shape",
        "slice_thickness_angstrom",
        "band_fraction",
        "aberrations",
        "aperture_edge",
        "form_factors",
        "frozen_phonons",
        "precision",
        "engine",
        "method",
        "seed",
        "detector",
        "beam_tilt_mrad",
        "specimen_tilt_mrad",
        "source_size_angstrom",
        "source_points",
        "focal_spread_angstrom",
        "focal_points",
        "projection",
        "depth_bins",
        "scan_shape",
        "extent_angstrom",
        "thickness_angstrom",
        "slices",
        "slices_follow_layers",
        "atoms",
        "coherent_probes",
        "positions_angstrom",
        "detector_sampling_mrad",
        "detector_origin_mrad",
        "density_sampling_angstrom",
        "density_origin_angstrom",
        "backend",
        "warnings",
        "software",
    ]
    scattering = namsa.scatter(SILICON, energy_ev=200e3, max_angle_mrad=20.0, backend="cpu")
    of_scattering = scattering.simulate(semiangle_mrad=20.0, scan=(1, 2))
    assert list(of_scattering.provenance)[:24] == [
        "energy_ev",
        "grid_shape",
        "slice_thickness_angstrom",
        "accuracy",
        "band_fraction",
        "form_factors",
        "frozen_phonons",
        "precision",
        "engine",
        "specimen_tilt_mrad",
        "projection",
        "semiangle_mrad",
        "aberrations",
        "aperture_edge",
        "beam_tilt_mrad",
        "source_size_angstrom",
        "source_points",
        "focal_spread_angstrom",
        "focal_points",
        "detector",
        "scan_shape",
        "seed",
        "method",
        "extent_angstrom",
    ]
