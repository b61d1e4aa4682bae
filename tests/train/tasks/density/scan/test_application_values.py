"""Values of a scan that are lost or not finite, its amount, and its halves."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from small_network import BEAM, OPTIONS, density, experiment, patterns, stored, write_run

from namsa import InputError
from namsa.inverse.amount import Amount
from train.__main__ import main
from train.tasks.density.scan import application as reconstruct
from train.tasks.density.scan import pacbed, refine
from train.tasks.density.trust.consistency import KnownSpecimen

SCAN = (28, 36)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("small"), experiment())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.full((16, 16, 4, 4), np.nan), "not finite"),
        (
            np.where(np.arange(4) == 0, -0.1, np.ones((16, 16, 4, 4))),
            "more than 1 % of the intensity is negative",
        ),
    ],
)
def test_patterns_that_cannot_be_intensities_are_refused(tmp_path, run, values, message):
    with pytest.raises(InputError, match=message):
        density(tmp_path, values, run)
    assert not (tmp_path / "out.h5").exists()


def test_a_lost_pattern_is_masked_in_the_density_and_harms_no_other_place(run):
    values = patterns(SCAN)
    values[15, 20] = 0
    result = reconstruct.reconstruct(values, run, BEAM)
    undamaged = reconstruct.reconstruct(patterns(SCAN), run, BEAM)
    for name in ("density", "uncertainty", "bright_field"):
        assert np.argwhere(np.isnan(getattr(result, name))).tolist() == [[15, 20]]
    assert result.provenance["lost_patterns"] == [[15, 20]]
    assert (
        "1 pattern not recorded (empty), at scan row and column (15, 20): masked in the result"
        in result.notes
    )
    known = np.isfinite(result.density)
    spread = np.abs(result.density - undamaged.density)[known]
    assert spread.max() < undamaged.density.std()
    assert (
        np.median(spread) < 1e-3 * undamaged.density.std()
    )  # the scale of the intensities is the same


def test_values_that_are_not_finite_are_replaced_and_counted(run):
    values = patterns(SCAN)
    values[15, 20, 1, 1], values[2, 3, 0, 2] = np.nan, np.inf
    result = reconstruct.reconstruct(values, run, BEAM, beam_intensity=1.0)
    assert np.isfinite(result.density).all()
    assert (
        "2 values not finite, in 2 patterns: replaced by the mean of their neighbours"
        in result.notes
    )


def test_a_lost_pattern_is_masked_where_the_scan_is_resampled(run):
    coarse = replace(BEAM, scan_step_angstrom=(0.3, 0.3))
    values = patterns((40, 48))
    values[21, 17] = 0
    result = reconstruct.reconstruct(values, run, coarse, beam_intensity=1.0)
    hidden = np.argwhere(np.isnan(result.density)) * 0.4
    assert 0 < len(hidden) <= 4
    assert np.abs(hidden - np.array([21, 17]) * 0.3).max() < 0.4


@pytest.mark.parametrize(("is_clear", "factor"), [(True, 1.5), (False, 1.0)])
def test_the_density_is_scaled_by_an_amount_that_the_rings_tell(
    tmp_path, run, monkeypatch, is_clear, factor
):
    """The fit is tested with `namsa.inverse.amount`."""
    seen = []
    thicknesses = []

    def simulation(specimen, *_):
        thicknesses.append(specimen.thickness_angstrom)
        return SimpleNamespace(trust=lambda density, patterns: 0.25)

    def fit(density, rings, pixels, measurement, known):
        seen.append((rings, known.composition))
        return Amount(1.5, 0.05, 40.0, 0.1, 0.07, 0.02, 0.1, is_clear)

    def refined(density, uncertainty, measured, known, *, steps, fit_columns, on_step):
        seen.append((known.thickness_angstrom, known.thickness_error, steps))

    monkeypatch.setattr(refine, "refine", refined)
    monkeypatch.setattr(refine, "is_unresolved", lambda ratio: False)
    monkeypatch.setattr(pacbed, "ring_masks", lambda model: np.eye(16)[:, 2:4])
    monkeypatch.setattr(pacbed, "fit_amount", fit)
    monkeypatch.setattr(pacbed, "window_simulation", simulation)
    values = patterns(SCAN)
    how = reconstruct.ReconstructionOptions(pacbed=True, refine_steps=3)
    specimen = KnownSpecimen(formula="Au")
    data = stored(tmp_path / "scan.h5", values)
    plain = reconstruct.reconstruct(data, run, BEAM, beam_intensity=1)
    result = reconstruct.reconstruct(
        data, run, BEAM, beam_intensity=1, specimen=specimen, options=how
    )
    np.testing.assert_allclose(result.density, factor * plain.density, rtol=1e-5)
    np.testing.assert_allclose(result.uncertainty, factor * plain.uncertainty, rtol=1e-5)
    assert result.provenance["pacbed"]["thickness_angstrom"] == 40.0
    assert any("1.50 times the network's" in line for line in result.notes)
    np.testing.assert_array_equal(result.trust, 0.25)  # for the thickness that was fitted
    assert thicknesses == [40.0]
    assert any("for 40 Å of Au, the thickness as pacbed fits it" in line for line in result.notes)
    (rings, composition), of_refinement = seen
    np.testing.assert_allclose(rings, values.reshape(*SCAN, 16)[..., 2:4], rtol=1e-5)
    assert composition == {79: 1}
    assert of_refinement == (40.0, 0.1, 3)
    assert any(
        "refined: begins with 40 Å, the thickness as pacbed fits it" in line
        for line in result.notes
    )


def test_options_of_the_amount_that_do_not_fit_are_one_line(tmp_path, run, capsys):
    data = stored(tmp_path / "scan.h5", patterns(SCAN))
    base = [
        "reconstruct",
        str(data),
        "--checkpoint",
        run,
        "--out",
        str(tmp_path / "out.h5"),
        *OPTIONS.split(),
    ]
    for more, message in (
        (["--pacbed", "--formula", "Au"], "the rings outside of the bright disk begin at"),
        (["--vibration-angstrom", "0.1"], "--vibration-angstrom is for --pacbed"),
        (
            ["--pacbed", "--vibration-angstrom", "0"],
            "vibration_angstrom is 0.0: give a number from 0.001 to 1",
        ),
    ):
        assert main([*base, *more]) == 2
        assert message in " ".join(capsys.readouterr().err.split())


def test_each_half_of_a_scan_has_a_density_of_its_own(tmp_path, run):
    data = stored(tmp_path / "scan.h5", patterns(SCAN))
    how = reconstruct.ReconstructionOptions(halves=True)
    plain = reconstruct.reconstruct(data, run, BEAM, beam_intensity=1)
    result = reconstruct.reconstruct(data, run, BEAM, beam_intensity=1, options=how)
    np.testing.assert_array_equal(result.density, plain.density)
    facts = result.provenance["halves"]
    assert (
        len(facts["q_per_angstrom"])
        == len(facts["ring_correlation"])
        == len(facts["signal_to_noise"])
        > 3
    )
    assert max(facts["ring_correlation"]) < 1  # they are not the same density
    assert any("halves: their densities agree to" in line for line in result.notes)
    coarse = replace(BEAM, scan_step_angstrom=(0.3, 0.3))
    with pytest.raises(InputError, match="halves need a network of layout scan and the scan step"):
        reconstruct.reconstruct(data, run, coarse, beam_intensity=1, options=how)
