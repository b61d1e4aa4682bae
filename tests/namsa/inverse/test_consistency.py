"""The conversion of density to potential, its simulation, and the scores of true and of false
densities.
"""

from dataclasses import replace
from pathlib import Path

import ase
import documented
import numpy as np
import pytest
from plane_of_atoms import EXPERIMENT, MAX_Q, SCAN, STEP, THICKNESS, crystal, sample

from namsa.base.errors import InputError, WorkError
from namsa.dataset import records
from namsa.inverse import consistency, mott_bethe
from namsa.physics import density_target, optics
from namsa.physics.grid import Grid
from namsa.samples.sample import Sample


def record(atoms: ase.Atoms) -> records.Record:
    simulated, density = sample(atoms)
    provenance = simulated.provenance | {
        "density_sampling_angstrom": list(STEP),
        "density_origin_angstrom": [0.9, 0.9],
        "density_max_q_per_angstrom": MAX_Q,
    }
    changed = Sample(
        simulated.cbed, density.astype(np.float32), simulated.projected_potential, provenance
    )
    return records.decode(records.encode(changed, "float32"))


def check(density, patterns, experiment, thickness, transfer) -> consistency.Consistency:
    simulation = consistency.scan_simulation(experiment, thickness, density.shape)
    return consistency.check(density, patterns, simulation, transfer)


@pytest.fixture(scope="module")
def silicon() -> tuple[Sample, np.ndarray]:
    return sample(crystal())


def test_transfer_of_one_element_is_exact() -> None:
    simulated, _ = sample(crystal("Cu"))
    grid = Grid((40, 48), (7.6, 8.8))
    transfer = mott_bethe.from_elements({"Cu": 1}, MAX_Q)
    density = density_target.on_grid(
        density_target.band_limited(simulated.density.astype(float), grid, MAX_Q)
    )
    again = transfer.density(simulated.projected_potential, grid)
    np.testing.assert_allclose(
        again - again.mean(), density - density.mean(), atol=2e-3 * np.ptp(density)
    )

    potential = transfer.potential(density, grid)
    expected_potential = density_target.on_grid(
        density_target.band_limited(simulated.projected_potential.astype(float), grid, MAX_Q)
    )
    again = density_target.on_grid(density_target.band_limited(potential, grid, MAX_Q))
    # Near the band limit, where the window is almost zero, the potential is not restored.
    np.testing.assert_allclose(
        again - again.mean(),
        expected_potential - expected_potential.mean(),
        atol=0.02 * np.ptp(expected_potential),
    )


def test_fitted_transfer_is_that_of_the_form_factors() -> None:
    fitted = mott_bethe.fit([record(crystal("Cu"))])
    q = np.linspace(0.3, 1.15, 12)  # below, the cell has next to no reflections
    np.testing.assert_allclose(
        fitted.curve(q), mott_bethe.from_elements({"Cu": 1}, MAX_Q).curve(q), rtol=0.06
    )
    with pytest.raises(InputError, match="no samples"):
        mott_bethe.fit([])


def test_mean_density_tells_part_of_the_scale() -> None:
    symbols = ("Al", "Cu", "Mo", "W")
    fitted = mott_bethe.fit([record(crystal(symbol)) for symbol in symbols])
    q = np.array([0.4, 0.7, 1.0])
    logs = [
        np.log(mott_bethe.from_elements({symbol: 1}, MAX_Q).curve(q)).mean() for symbol in symbols
    ]
    expected = [
        np.log(fitted.expected_scale(sample(crystal(symbol))[1], THICKNESS)) for symbol in symbols
    ]
    assert fitted.exponent < 0
    assert 0 < fitted.scale_spread < np.std(logs)
    np.testing.assert_allclose(
        np.subtract(logs, expected), np.log(fitted.curve(q)).mean(), atol=3 * fitted.scale_spread
    )


def test_transfer_is_read_as_it_was_written(tmp_path: Path) -> None:
    transfer = mott_bethe.from_elements({"Sr": 1, "Ti": 1, "O": 3}, MAX_Q)
    mott_bethe.write(transfer, tmp_path / "transfer.json")
    assert mott_bethe.read(tmp_path / "transfer.json") == transfer
    (tmp_path / "transfer.json").write_text('{"ratio": 1}', encoding="utf-8")
    with pytest.raises(WorkError, match=r"transfer\.json is damaged"):
        mott_bethe.read(tmp_path / "transfer.json")
    (tmp_path / "transfer.json").write_text("[" * 5000, encoding="utf-8")
    with pytest.raises(InputError, match=r"transfer\.json.*nested"):
        mott_bethe.read(tmp_path / "transfer.json")
    for change in (
        {"ratio": (0.0,) * len(transfer.ratio)},
        {"spread": (1.0,)},
        {"middle_density": 0.0},
    ):
        mott_bethe.write(replace(transfer, **change), tmp_path / "transfer.json")
        with pytest.raises(WorkError, match=r"transfer\.json is damaged"):
            mott_bethe.read(tmp_path / "transfer.json")
    with pytest.raises(InputError, match="Xx is no chemical element"):
        mott_bethe.from_elements({"Xx": 1}, MAX_Q)


def test_equal_slices_are_simulated_as_namsa_simulates_them(
    silicon: tuple[Sample, np.ndarray],
) -> None:
    simulated, _ = silicon
    positions = np.array(simulated.provenance["positions_angstrom"])
    grid = Grid((40, 48), (7.6, 8.8))
    inside = np.ones(len(positions), bool)
    simulation = consistency.ScanSimulation(EXPERIMENT, THICKNESS, grid, positions, inside)
    again = consistency.simulate(simulated.projected_potential.astype(float), simulation)
    np.testing.assert_allclose(again, simulated.cbed, atol=2e-6 * simulated.cbed.max())


def test_continued_density_is_the_density_where_it_is_known(
    silicon: tuple[Sample, np.ndarray],
) -> None:
    _, density = silicon
    simulation = consistency.scan_simulation(EXPERIMENT, THICKNESS, SCAN)
    assert simulation.raster
    again = density_target.at_positions(
        np.fft.fft2(simulation.on_grid(density)), simulation.grid, *simulation.raster
    )
    np.testing.assert_allclose(again, density, atol=0.02 * np.ptp(density))
    assert simulation.inside.sum() < len(simulation.positions)


def test_truth_scores_better_than_what_is_false(silicon: tuple[Sample, np.ndarray]) -> None:
    simulated, density = silicon
    transfer = mott_bethe.from_elements({"Si": 1}, MAX_Q)
    _, other = sample(crystal(scale=1.1))
    false = {
        "shifted": np.roll(density, (2, 1), (0, 1)),
        "mirrored": density[:, ::-1],
        "stronger": 1.5 * density,
        "weaker": density / 1.5,
        "of another crystal": other,
        "flat": np.full_like(density, density.mean()),
    }
    truth = check(density, simulated.cbed, EXPERIMENT, THICKNESS, transfer)
    assert truth.map.shape == SCAN
    assert truth.score < 0.1
    for name, image in false.items():
        score = check(image, simulated.cbed, EXPERIMENT, THICKNESS, transfer).score
        assert score > 1.2 * truth.score, name


def test_patterns_that_are_kept_out_do_not_change_what_is_fitted(
    silicon: tuple[Sample, np.ndarray],
) -> None:
    """The scale of a phase is open: it is fitted to the patterns that were used, so that the others
    tell nothing.
    """
    simulated, _ = silicon
    grid, (y, x) = (
        Grid((40, 48), (7.6, 8.8)),
        (step * np.arange(n) + 0.9 for n, step in zip(SCAN, STEP, strict=True)),
    )
    phase_of_cell = optics.interaction_constant(200e3) * simulated.projected_potential.astype(float)
    seen = density_target.at_positions(
        density_target.band_limited(phase_of_cell, grid, MAX_Q), grid, y, x
    )
    simulation = consistency.scan_simulation(EXPERIMENT, THICKNESS, SCAN)
    of_phase = mott_bethe.of_phase(200e3)
    used = np.add.outer(*map(np.arange, SCAN)) % 2 == 0
    patterns = simulated.cbed.copy()
    patterns[40] = np.nan  # lost
    known = {"experiment": EXPERIMENT, "phase": seen, "patterns": patterns}
    exec(documented.code("reconstruct.md", "kept_out").replace("50.0", f"{THICKNESS}"), known)
    kept_out, other = consistency.kept_out(seen, patterns, simulation, of_phase, used)
    assert (known["own"], known["others"]) == (kept_out, other)
    assert kept_out == pytest.approx(other, rel=0.2)
    assert other < 0.15
    for phase in (0.8 * seen, 1.3 * seen + 2):  # as another method may have it
        assert consistency.kept_out(phase, patterns, simulation, of_phase, used)[
            0
        ] == pytest.approx(kept_out, rel=0.1)
    patterns[~used.ravel()] = patterns[~used.ravel()].mean(axis=0)
    again, worse = consistency.kept_out(seen, patterns, simulation, of_phase, used)
    assert again == kept_out
    assert worse > 1.5 * other


def test_map_shows_where_the_density_is_false(silicon: tuple[Sample, np.ndarray]) -> None:
    simulated, density = silicon
    transfer = mott_bethe.from_elements({"Si": 1}, MAX_Q)
    spoilt = density.copy()
    spoilt[5:9, 11:15] = density.mean()
    maps = []
    for image in (density, spoilt):
        maps.append(check(image, simulated.cbed, EXPERIMENT, THICKNESS, transfer).map)
    worse = maps[1] - maps[0]
    y, x = np.unravel_index(worse.argmax(), SCAN)
    assert 4 <= y <= 9
    assert 10 <= x <= 15
    assert abs(worse[:, :5]).max() < 0.1 * worse.max()


def test_data_that_do_not_fit_are_refused(silicon: tuple[Sample, np.ndarray]) -> None:
    simulated, density = silicon
    transfer = mott_bethe.from_elements({"Si": 1}, MAX_Q)
    with pytest.raises(InputError, match=r"density has shape \(18, 14\)"):
        check(density.T, simulated.cbed, EXPERIMENT, THICKNESS, transfer)
    with pytest.raises(InputError, match="251 patterns for 252 positions"):
        check(density, simulated.cbed[1:], EXPERIMENT, THICKNESS, transfer)
    with pytest.raises(InputError, match="thickness is -1"):
        check(density, simulated.cbed, EXPERIMENT, -1.0, transfer)
    far = EXPERIMENT.model_copy(update={"detector": None})
    with pytest.raises(InputError, match=r"detector\.pixel_mrad"):
        check(density, simulated.cbed, far, THICKNESS, transfer)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("thickness_angstrom", 0),
        ("thickness_angstrom", "80"),
        ("extent_angstrom", None),
        ("grid_shape", [8, 9]),
        ("grid_shape", KeyError),
        ("density_max_q_per_angstrom", -1.0),
        ("density_sampling_angstrom", {}),
    ],
)
def test_samples_whose_provenance_namsa_did_not_write_are_fitted_by_no_transfer(
    key: str, value: object
) -> None:
    sample_record = record(crystal("Cu"))
    changed = sample_record.header["provenance"] | {"id": "Cu-1", key: value}
    if value is KeyError:
        del changed[key]
    changed_record = replace(sample_record, header=sample_record.header | {"provenance": changed})
    with pytest.raises(InputError, match=f"the provenance of sample Cu-1 has .*{key[:4]}"):
        mott_bethe.fit([changed_record])
