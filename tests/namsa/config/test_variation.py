"""Settings that vary from sample to sample: ranges are covered evenly, on every machine alike, and
are simulated.
"""

import math

import numpy as np
import pytest
from ase.build import bulk
from fake_samples import MATERIALS, config
from pydantic import ValidationError

from namsa.config.simulation import SimulationConfig
from namsa.config.variation import GridVariation, RandomVariation, draw_values
from namsa.crystals.material import Material
from namsa.dataset.entries import build_entries
from namsa.dataset.manifest import ensure, read
from namsa.dataset.simulate_entry import simulate_entry
from namsa.dataset.workload import count_workload

RANDOM = {
    "rule": "random",
    "configurations": 4,
    "defocus_angstrom": [-100, 300],
    "specimen_tilt_mrad": [2, 6],
    "dose_electrons_per_angstrom2": [1e3, 1e6],
}
LENS = {"rule": "random", "configurations": 2, "C12_angstrom": [0, 20], "C21_angstrom": [0, 500]}
LENS |= {
    "C30_angstrom": [-1e4, 1e5],
    "source_size_angstrom": [0.2, 0.8],
    "focal_spread_angstrom": [10, 40],
}
DETECTOR = {"shape": [5, 7], "pixel_mrad": 6}


def test_random_values_cover_their_ranges_evenly() -> None:
    variation = RandomVariation.model_validate(RANDOM)
    drawn = []
    for seed in range(500):
        drawn.extend(draw_values(variation, seed))
    defocus = np.array([values["defocus_angstrom"] for values in drawn])
    tilts = np.array([values["specimen_tilt_mrad"] for values in drawn])
    dose = np.log10([values["dose_electrons_per_angstrom2"] for values in drawn])
    assert np.histogram(defocus, 4, (-100, 300))[0] == pytest.approx([500] * 4, abs=40)
    assert np.histogram(dose, 3, (3, 6))[0] == pytest.approx([667] * 3, abs=50)
    assert np.hypot(*tilts.T).min() >= 2 - 1e-3
    assert np.hypot(*tilts.T).max() <= 6 + 1e-3
    # Evenly over the ring: half of them in the outer half of its area, a quarter in each quadrant.
    assert np.mean(np.hypot(*tilts.T) ** 2 > (2**2 + 6**2) / 2) == pytest.approx(0.5, abs=0.03)
    assert np.histogram2d(*tilts.T, bins=2, range=[(-6, 6)] * 2)[0] == pytest.approx(
        np.full((2, 2), 500), abs=60
    )


def test_the_lens_source_and_amplitude_are_drawn_evenly_in_any_direction() -> None:
    ranges = {"C12_angstrom": [5, 25], "C21_angstrom": [0, 900], "C30_angstrom": [-1e4, 1e5]}
    ranges |= {
        "source_size_angstrom": [0.2, 1],
        "focal_spread_angstrom": [0, 40],
        "rms_displacement_angstrom": [0, 0.1],
    }
    variation = RandomVariation.model_validate({"rule": "random", "configurations": 4} | ranges)
    drawn = [values for seed in range(500) for values in draw_values(variation, seed)]
    for name, (least, most) in ranges.items():
        values = np.array([draw[name] for draw in drawn]).reshape(len(drawn), -1)
        assert np.histogram(values[:, 0], 4, (least, most))[0] == pytest.approx(
            [500] * 4, abs=45
        ), name
    for name, period in (("C12_angstrom", math.pi), ("C21_angstrom", 2 * math.pi)):
        azimuths = np.array([draw[name] for draw in drawn])[:, 1]
        assert np.histogram(azimuths, 4, (0, period))[0] == pytest.approx([500] * 4, abs=45), name


def test_some_quantities_of_a_sample_are_left_out_as_often_as_is_asked_for() -> None:
    ranges = {
        "defocus_angstrom": [-100, 80],
        "C12_angstrom": [5, 25],
        "specimen_tilt_mrad": [2, 6],
        "dose_electrons_per_angstrom2": [1e3, 1e6],
        "thickness_angstrom": [20, 90],
    }
    every = RandomVariation.model_validate({"rule": "random", "configurations": 4} | ranges)
    some = every.model_copy(update={"probability": 0.7})
    pairs = []
    for seed in range(500):
        for pair in zip(draw_values(some, seed), draw_values(every, seed), strict=True):
            pairs.append(pair)
    drawn = {}
    for name in ranges:
        drawn[name] = np.array([one[name] == other[name] for one, other in pairs])
    left_out = {
        "defocus_angstrom": lambda value: value == 0,
        "C12_angstrom": lambda value: value[0] == 5,
        "specimen_tilt_mrad": lambda value: math.hypot(*value) == pytest.approx(2, abs=1e-3),
    }
    for name, is_nearest_to_zero in left_out.items():
        assert drawn[name].mean() == pytest.approx(0.7, abs=0.04)
        for (one, _), same in zip(pairs, drawn[name], strict=True):
            if not same:
                assert is_nearest_to_zero(one[name])
    assert drawn["dose_electrons_per_angstrom2"].all()
    assert drawn["thickness_angstrom"].all()
    both = np.mean(drawn["defocus_angstrom"] & drawn["C12_angstrom"])
    assert both == pytest.approx(0.49, abs=0.04)


def test_few_configurations_of_a_specimen_are_spread_out() -> None:
    variation = RandomVariation(rule="random", configurations=8, defocus_angstrom=(0, 80))
    for seed in range(20):
        values = sorted(values["defocus_angstrom"] for values in draw_values(variation, seed))
        assert np.diff(values) == pytest.approx([10] * 7, abs=0.011)


def test_values_are_fixed_and_more_configurations_do_not_change_the_first() -> None:
    variation = RandomVariation.model_validate(RANDOM)
    more = variation.model_copy(update={"configurations": 37})
    assert draw_values(more, 7)[:4] == draw_values(variation, 7) != draw_values(variation, 8)[:4]
    assert draw_values(variation, 7)[0] == {
        "defocus_angstrom": 150.04,
        "specimen_tilt_mrad": [-5.645, 0.919],
        "dose_electrons_per_angstrom2": 4738.0,
    }


def test_a_grid_has_every_combination() -> None:
    grid = GridVariation(
        rule="grid", defocus_angstrom=(0, 50), beam_tilt_mrad=((0, 1), (2, 0), (0, 0))
    )
    drawn = draw_values(grid, 0)
    assert len(drawn) == 6
    assert drawn[1] == {"defocus_angstrom": 0, "beam_tilt_mrad": [2, 0]}


def test_every_specimen_has_its_own_configurations_on_which_the_hash_depends(tmp_path) -> None:
    varied = config(variation=RANDOM, detector=DETECTOR)
    other = config(detector=DETECTOR, variation=RANDOM | {"defocus_angstrom": [-100, 301]})
    assert (
        len({variant.samples_hash() for variant in (config(detector=DETECTOR), varied, other)}) == 3
    )
    entries = ensure(tmp_path, varied, MATERIALS)
    assert len(entries) == 4 * 12
    assert entries[1].id == "Cu-fcc-001-20A-v1"
    assert (
        len({entry.seed for entry in entries})
        == len({str(entry.varied) for entry in entries})
        == 48
    )
    assert read(tmp_path) == entries == build_entries(varied, MATERIALS)
    assert (
        build_entries(config(seed=1, variation=RANDOM, detector=DETECTOR), MATERIALS)[0].varied
        != entries[0].varied
    )


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"variation": {"rule": "grid"}}, "nothing varies"),
        ({"variation": RANDOM}, "must be a detector"),
        (
            {"variation": RANDOM, "detector": DETECTOR | {"electrons_per_pattern": 9}},
            "so does the detector",
        ),
        (
            {"variation": RANDOM, "detector": DETECTOR, "microscope": {"aberrations": {"C10": 5}}},
            "aberrations.C10",
        ),
        (
            {
                "variation": RANDOM,
                "detector": DETECTOR,
                "microscope": {"specimen_tilt_mrad": [0, 1]},
            },
            "specimen_tilt",
        ),
        ({"variation": RANDOM | {"electrons_per_pattern": [1, 2]}}, "not both"),
        ({"variation": LENS, "microscope": {"aberrations": {"C12": 5}}}, "aberrations.C12"),
        ({"variation": LENS, "microscope": {"source_size_angstrom": 0.5}}, "source_size_angstrom"),
        (
            {
                "variation": LENS,
                "microscope": {"chromatic_aberration_mm": 1, "energy_spread_ev": 0.3},
            },
            "chromatic_aberration_mm",
        ),
        (
            {"variation": LENS | {"rms_displacement_angstrom": [0, 0.1]}},
            "there must be specimen.frozen_phonons",
        ),
        ({"variation": RANDOM | {"defocus_angstrom": [2, 1]}}, "least, most"),
        (
            {"variation": RANDOM | {"dose_electrons_per_angstrom2": [0, 1]}},
            r"greater than or equal to 0\.000001",
        ),
    ],
)
def test_contradictory_settings_are_refused(sections, message) -> None:
    with pytest.raises(ValidationError, match=message):
        config(**sections)


MGO = Material("MgO", "MgO", "Fm-3m", bulk("MgO", "rocksalt", 4.21, cubic=True), "test")
TREE = {
    "specimen": {"lateral_angstrom": [6, 8], "thickness_angstrom": [8]},
    "scan": {"shape": [2, 3]},
    "simulation": {"grid_shape": [60, 64]},
    "detector": DETECTOR,
}


def assert_same(varied, entry, sample, by_hand) -> None:
    """The same values in the configuration itself give the same sample."""
    assert np.array_equal(simulate_entry(by_hand, MGO, entry).cbed, sample.cbed)
    assert count_workload(varied, MGO, entry) == count_workload(by_hand, MGO, entry)


def test_a_sample_is_simulated_with_its_own_values() -> None:
    variation = RANDOM | {"beam_tilt_mrad": [1, 3], "defocus_angstrom": [-20, 20]}
    varied = SimulationConfig.model_validate(TREE | {"variation": variation})
    entry = build_entries(varied, [MGO])[2]
    sample = simulate_entry(varied, MGO, entry)
    p = sample.provenance
    drawn = entry.varied
    assert p["varied"] == drawn
    assert p["aberrations"]["C10"] == -drawn["defocus_angstrom"]
    assert p["specimen_tilt_mrad"] == drawn["specimen_tilt_mrad"]
    assert p["config_hash"] == varied.samples_hash()
    assert 1 <= math.hypot(*drawn["beam_tilt_mrad"]) <= 3
    microscope = {name: drawn[name] for name in ("beam_tilt_mrad", "specimen_tilt_mrad")}
    microscope["aberrations"] = {"C10": -drawn["defocus_angstrom"]}
    detector = DETECTOR | {"dose_electrons_per_angstrom2": drawn["dose_electrons_per_angstrom2"]}
    by_hand = SimulationConfig.model_validate(
        TREE | {"microscope": microscope, "detector": detector}
    )
    assert_same(varied, entry, sample, by_hand)


def test_a_lens_and_an_amplitude_of_its_own_are_those_of_a_configuration_with_them() -> None:
    def shaken(rms: float):
        return TREE | {
            "specimen": TREE["specimen"]
            | {"frozen_phonons": {"rms_angstrom": rms, "configurations": 2}}
        }

    variation = {"variation": LENS | {"rms_displacement_angstrom": [0.06, 0.1]}}
    varied = SimulationConfig.model_validate(shaken(0.05) | variation)
    entry = build_entries(varied, [MGO])[1]
    drawn = entry.varied
    aberrations = dict(zip(("C12", "phi12"), drawn["C12_angstrom"], strict=True))
    aberrations |= dict(zip(("C21", "phi21"), drawn["C21_angstrom"], strict=True)) | {
        "C30": drawn["C30_angstrom"]
    }
    coherence = {name: drawn[name] for name in ("source_size_angstrom", "focal_spread_angstrom")}
    microscope = {"aberrations": aberrations} | coherence
    by_hand = SimulationConfig.model_validate(
        shaken(drawn["rms_displacement_angstrom"]) | {"microscope": microscope}
    )
    sample = simulate_entry(varied, MGO, entry)
    assert sample.provenance["aberrations"] == aberrations
    assert_same(varied, entry, sample, by_hand)
