"""Trust in true and in false densities, by their simulation; and the refinement of a whole scan in
blocks.
"""

import json
from pathlib import Path

import numpy as np
import plane_of_atoms
import pytest
from small_network import BEAM, experiment, patterns, write_run

import namsa
from namsa import InputError
from namsa.inverse import mott_bethe
from namsa.inverse.refinement import Refined
from train.apply.models import Model, ModelCalibration, load_model
from train.experiment.conditions import conditions, thickness_angstrom
from train.tasks.density.scan import refine
from train.tasks.density.scan.application import ReconstructionOptions, reconstruct
from train.tasks.density.scan.live import reconstruct_live
from train.tasks.density.trust.consistency import (
    UNRESOLVED,
    Comparison,
    KnownSpecimen,
    error_over_contrast,
    window_simulation,
)

THICKNESS = plane_of_atoms.THICKNESS


@pytest.fixture(scope="module")
def silicon():
    """Of the window that is all of the scan: density and patterns."""
    simulated, density = plane_of_atoms.sample(plane_of_atoms.crystal())
    return density, simulated.cbed.reshape(*density.shape, 16, 16)


def model(folder):
    # The step and the origin of the trained scan are not those of the data.
    scan = {"shape": (24, 24), "step_angstrom": (1.0, 1.0), "origin_angstrom": "random"}
    experiment = plane_of_atoms.EXPERIMENT
    trained = experiment.model_copy(update={"scan": experiment.scan.model_copy(update=scan)})
    return Model(
        "silicon", folder, folder / "weights.npz", trained, conditions(trained), ModelCalibration()
    )


def test_a_true_density_is_trusted_and_false_ones_are_not(tmp_path, silicon):
    density, patterns = silicon
    specimen = KnownSpecimen(THICKNESS, "Si")
    trust = window_simulation(specimen, model(tmp_path), density.shape, plane_of_atoms.STEP).trust
    true = trust(density, patterns)
    assert 0.5 < true < 1
    assert trust(np.roll(density, 4, axis=0), patterns) < 0.4 * true
    assert trust(np.full_like(density, density.mean()), patterns) < 0.05
    assert trust(2 * density, patterns) < 0.9 * true


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("SrTi03", "begins with 0: is it the letter O"),
        ("Xx2", "--formula Xx2: Xx is no chemical element"),
        ("sili", "is no chemical formula: give one as SrTiO3"),
        ("Si0", "begins with 0"),
    ],
)
def test_a_formula_with_a_slip_is_refused(formula, message):
    with pytest.raises(InputError, match=message):
        KnownSpecimen(formula=formula).elements()
    assert KnownSpecimen(formula="C10H20").elements() == {"C": 10, "H": 20}


def test_a_transfer_beside_the_weights_stands_for_a_formula(tmp_path, silicon):
    density, patterns = silicon
    window = density.shape
    step = plane_of_atoms.STEP
    with pytest.raises(InputError, match="no transfer.json: give --formula"):
        window_simulation(KnownSpecimen(THICKNESS), model(tmp_path), window, step)
    with pytest.raises(InputError, match="--formula Sili is no chemical formula"):
        window_simulation(KnownSpecimen(THICKNESS, "Sili"), model(tmp_path), window, step)
    mott_bethe.write(
        mott_bethe.from_elements({"Si": 1}, plane_of_atoms.MAX_Q), tmp_path / "transfer.json"
    )
    from_formula, from_file = (
        window_simulation(KnownSpecimen(THICKNESS, formula), model(tmp_path), window, step).trust(
            density, patterns
        )
        for formula in ("Si", None)
    )
    assert from_file == pytest.approx(from_formula)


def test_the_thickness_is_the_given_one_else_that_of_the_file_else_the_estimated_one(tmp_path):
    simulated, _ = plane_of_atoms.sample(plane_of_atoms.crystal())
    simulated.save(tmp_path / "scan.h5")
    with namsa.read(tmp_path / "scan.h5") as recording:
        of_file = recording.thickness_angstrom
    assert of_file == pytest.approx(THICKNESS)
    estimate = {"thickness_angstrom": {"value": 80.0, "error": 8.0}}
    compared = Comparison([], [], frozenset(), {"quantities": estimate})
    given = KnownSpecimen(30.0, "Si")
    assert given.with_thickness(of_file, compared) == given
    assert KnownSpecimen().with_thickness(of_file, compared).thickness_angstrom == of_file
    assert "in the file" in KnownSpecimen().with_thickness(of_file, compared).source
    estimated = KnownSpecimen().with_thickness(1e9, compared)  # which no specimen has
    assert (estimated.thickness_angstrom, estimated.thickness_error, estimated.source) == (
        80.0,
        0.1,
        "as estimated",
    )
    assert KnownSpecimen().with_thickness(None, None) == KnownSpecimen()
    assert not estimated.can_be_simulated(model(tmp_path))  # without a formula or a transfer.json


@pytest.mark.parametrize(
    ("contrast", "error", "ratio"), [(3.0, 4.0, 0.8), (3.0**0.5, 1.0, UNRESOLVED)]
)
def test_the_ratio_is_the_rms_error_in_standard_deviations_of_the_density(contrast, error, ratio):
    """The variances of specimen and error add up; at the limit a quarter is error."""
    specimen, noise = np.random.default_rng(0).normal(size=(2, 400, 500))
    density = 20 + contrast * specimen + error * noise
    assert error_over_contrast(density, np.full(density.shape, error)) == pytest.approx(
        ratio, rel=0.01
    )


def test_places_that_are_not_known_yet_do_not_count():
    density = np.arange(12.0).reshape(3, 4)
    error = np.full((3, 4), 2.0)
    known = error_over_contrast(density, error)
    beyond = np.full((2, 4), np.nan)
    assert error_over_contrast(np.vstack([density, beyond]), np.vstack([error, beyond])) == known
    assert error_over_contrast(beyond, beyond) is None
    assert error_over_contrast(np.ones((3, 4)), error) is None


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return Path(write_run(tmp_path_factory.mktemp("small"), experiment()))


@pytest.fixture
def model_with(folder):
    def with_factor(factor):
        (folder / "calibration.json").write_text(json.dumps({"uncertainty_factor": factor}))
        return load_model(folder)

    return with_factor


def test_a_scan_whose_error_is_as_large_as_its_contrast_is_flagged(model_with):
    values = patterns((36, 52), seed=3)
    plain = reconstruct(values, model_with(1.0), BEAM, beam_intensity=1.0).provenance[
        "error_over_contrast"
    ]
    below = reconstruct(values, model_with(0.5 * UNRESOLVED / plain), BEAM, beam_intensity=1.0)
    above = reconstruct(values, model_with(2 * UNRESOLVED / plain), BEAM, beam_intensity=1.0)
    assert below.provenance["error_over_contrast"] == pytest.approx(0.5 * UNRESOLVED)
    assert not below.outside
    for line in below.notes:
        assert "stated error" not in line
    assert below.lines == []
    assert above.lines == [
        "do not rely on this density: the stated error is large beside the contrast"
    ]
    assert above.outside
    assert not above.warnings  # nothing was estimated
    assert above.notes[-1].startswith(
        "the stated error is 1.00 of the density's contrast (rms; 0.50 is the limit)"
    )
    assert "the stated error is large beside the contrast" in [
        text.get_text() for text in above.show().texts
    ]
    expected = error_over_contrast(above.density, above.uncertainty)
    assert above.provenance["error_over_contrast"] == pytest.approx(expected, rel=1e-5)


def test_a_live_reconstruction_says_it_once_at_the_end(model_with):
    values = patterns((52, 36), seed=4)
    model = model_with(1e3)
    expected = reconstruct(values, model, BEAM, beam_intensity=1.0)
    *earlier, last = reconstruct_live(
        iter(values), model, BEAM, scan_shape=(52, 36), beam_intensity=1.0
    )
    assert sum("of the density's contrast" in line for line in last.result.notes) == 1
    assert last.result.notes[-1] == expected.notes[-1]
    for update in earlier:
        assert update.result.outside


SPECIMEN = KnownSpecimen(20.0, "Si")
STEPS = ReconstructionOptions(refine_steps=2, refine_columns=True)


def test_blocks_are_blended_and_lost_patterns_stay_lost(model_with, monkeypatch):
    model = model_with(1e-6)
    values = patterns((36, 80), seed=3)
    calls = []
    values[5, 7] = np.nan

    def twice(density, uncertainty, measured, known, *, steps, fit_columns, on_step):
        assert fit_columns
        calls.append(
            (density.shape, measured.shape[:2], bool(np.isfinite(density).all()), known, steps)
        )
        facts = {
            "steps": 2,
            "kept_out_divergence_before": 0.2,
            "kept_out_divergence": 0.1,
            "gain_of_columns": 0.5,
            "taken": 0.4,
            "C10": -3.0,
            "C12": 1.0,
        }
        sizes = {
            "C21": 5.0,
            "source_size_angstrom": 0.5,
            "thickness_angstrom": 20.0,
            "tilt_mrad": [3.0, 4.0],
        }
        more = {"amount": 2.0, "atomic_columns": 9, "pairs": 0}
        return Refined(2 * density, 3 * uncertainty, facts | sizes | more)

    plain = reconstruct(values, model, BEAM, beam_intensity=1.0)
    monkeypatch.setattr(refine, "refine", twice)
    result = reconstruct(values, model, BEAM, beam_intensity=1.0, specimen=SPECIMEN, options=STEPS)
    np.testing.assert_allclose(result.density, 2 * plain.density, rtol=1e-5)
    np.testing.assert_allclose(result.uncertainty, 3 * plain.uncertainty, rtol=1e-5)
    assert np.isnan(result.density[5, 7])
    assert result.provenance["lost_patterns"] == [[5, 7]]  # once, though the scan is read twice
    assert sum("not recorded" in line for line in result.notes) == 1
    assert [block["columns"] for block in result.provenance["refined"]["blocks"]] == [
        [0, 64],
        [16, 80],
    ]
    assert [call[:3] for call in calls] == [((36, 64), (36, 64), True)] * 2
    assert calls[0][3].composition == {14: 1}
    assert calls[0][4] == 2
    assert any(
        "is 0.2 by lens" in line and "0.1 with the columns" in line and "tilt 5.0 mrad" in line
        for line in result.notes
    )


def test_a_density_of_a_network_that_learnt_nothing_is_refined_or_stays(model_with):
    result = reconstruct(
        patterns((24, 28)),
        model_with(1e-6),
        BEAM,
        beam_intensity=1.0,
        specimen=SPECIMEN,
        options=STEPS,
    )
    assert np.isfinite(result.density).all()
    assert (
        sum(line.startswith("refined: rows 0 to 23, columns 0 to 27") for line in result.notes) == 1
    )


def test_without_columns_the_density_stays_and_the_shared_numbers_are_noted(
    model_with, monkeypatch
):
    facts = {
        "steps": 0,
        "kept_out_divergence_before": 0.2,
        "C10": -3.0,
        "C12": 1.0,
        "C21": 5.0,
        "source_size_angstrom": 0.5,
        "thickness_angstrom": 21.0,
        "tilt_mrad": [3.0, 4.0],
    }

    def shared(density, uncertainty, measured, known, *, steps, fit_columns, on_step):
        assert not fit_columns
        return Refined(density, uncertainty, facts)

    values = patterns((24, 28))
    model = model_with(1e-6)
    plain = reconstruct(values, model, BEAM, beam_intensity=1.0)
    monkeypatch.setattr(refine, "refine", shared)
    asked = ReconstructionOptions(refine_steps=2)
    result = reconstruct(values, model, BEAM, beam_intensity=1.0, specimen=SPECIMEN, options=asked)
    np.testing.assert_array_equal(result.density, plain.density)
    np.testing.assert_array_equal(result.uncertainty, plain.uncertainty)
    assert result.provenance["refined"]["blocks"][0]["thickness_angstrom"] == 21.0
    assert any("thickness 21 Å, tilt 5.0 mrad" in line for line in result.notes)
    for line in result.notes:
        assert "experimental" not in line


def test_a_density_whose_error_is_large_is_not_refined(model_with, monkeypatch):
    monkeypatch.setattr(refine, "refine", None)
    plain = reconstruct(patterns((24, 28)), model_with(1e6), BEAM, beam_intensity=1.0)
    result = reconstruct(
        patterns((24, 28)),
        model_with(1e6),
        BEAM,
        beam_intensity=1.0,
        specimen=SPECIMEN,
        options=STEPS,
    )
    np.testing.assert_array_equal(result.density, plain.density)
    assert any(line.startswith("refinement changed nothing") for line in result.notes)


def test_a_thickness_beyond_the_training_is_outside(model_with):
    model = model_with(1e-6)
    largest = max(thickness_angstrom(model.experiment))
    for factor, outside in ((1.05, False), (1.15, True), (1.6, True)):
        specimen = KnownSpecimen(factor * largest, "Si")
        result = reconstruct(
            patterns((24, 28)),
            model,
            BEAM,
            beam_intensity=1.0,
            specimen=specimen,
            options=ReconstructionOptions(trust=False),
        )
        assert bool(result.warnings) == outside
        assert any(line.startswith("thickness:") for line in result.notes) == outside
