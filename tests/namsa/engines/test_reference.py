"""Accuracy against an independent program: exact positions, float64 direct summation, two
form-factor tables.
"""

import numpy as np
import pytest
import reference_cases
from scipy.spatial import KDTree

import namsa

TOLERANCE = {"float64": 1e-6, "float32": 1e-4}  # relative L2 of every pattern


@pytest.mark.parametrize("name", reference_cases.CASES)
def test_the_atoms_form_a_crystal_across_the_periodic_faces(name):
    atoms, _, _ = reference_cases.load(name)
    cell = atoms.cell.lengths()
    tree = KDTree(atoms.positions % cell, boxsize=cell)
    distances, _ = tree.query(tree.data, k=2)
    assert distances[:, 1].min() > 1.9  # Å


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("table", ["lobato", "kirkland"])
@pytest.mark.parametrize("name", reference_cases.CASES)
def test_agrees_with_the_reference(name, table, precision):
    atoms, arguments, arrays = reference_cases.load(name)
    sample = namsa.simulate(
        atoms, **arguments, form_factors=table, precision=precision, backend="cpu"
    )

    expected = reference_cases.full_patterns(arrays, table, arguments["grid_shape"])
    errors = np.linalg.norm(sample.cbed - expected, axis=(1, 2)) / np.linalg.norm(
        expected, axis=(1, 2)
    )
    assert errors.max() < TOLERANCE[precision]

    stored = reference_cases.CASES[name]["results"][table]["total_intensity"]
    np.testing.assert_allclose(sample.cbed.sum(axis=(1, 2)), stored, rtol=TOLERANCE[precision])
    for field in ("density", "projected_potential"):
        expected = arrays[f"{field}_{table}"]
        assert np.linalg.norm(getattr(sample, field)[::2] - expected) < TOLERANCE[
            precision
        ] * np.linalg.norm(expected)

    pixel_area = np.prod(sample.provenance["density_sampling_angstrom"])
    electrons = sample.density.sum(dtype=np.float64) * pixel_area
    assert electrons == pytest.approx(reference_cases.CASES[name]["Z_total"], rel=1e-6)


@pytest.mark.parametrize("name", reference_cases.CASES)
def test_agrees_with_the_reference_whose_edge_falls_in_intensity(name):
    atoms, arguments, arrays = reference_cases.load(name, "intensity")
    arguments["positions_angstrom"] = arrays["probe_positions_yx"][1:2]
    sample = namsa.simulate(atoms, **arguments, precision="float64", backend="cpu")
    shape = tuple(arguments["grid_shape"])
    expected = reference_cases.pattern_of_intensity_edge(arrays, name, shape)
    assert np.linalg.norm(sample.cbed[0] - expected) < 1e-6 * np.linalg.norm(expected)
    assert sample.provenance["aperture_edge"] == "intensity"
