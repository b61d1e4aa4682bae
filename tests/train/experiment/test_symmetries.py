"""Mirrors and turns of a synthetic experiment whose answer is known: its patterns lean away from
nearby atoms.
"""

import ase
import numpy as np
import pytest

import namsa
from namsa.base.errors import InputError
from namsa.physics.density_target import band_limited, on_grid
from namsa.physics.grid import Grid
from train.experiment.symmetries import apply, sample_symmetries


def provenance(
    extent=(6.0, 8.0), scan=(3, 4), detector=(4, 6), density=(6, 12), origin=(0.0, 0.0), **more
):
    step = [length / n for length, n in zip(extent, scan, strict=True)]
    y, x = (o + s * np.arange(n) for o, s, n in zip(origin, step, scan, strict=True))
    return {
        "aberrations": {"C10": -50.0, "C12": 0.0},
        "extent_angstrom": list(extent),
        "scan_shape": list(scan),
        "positions_angstrom": np.stack(np.meshgrid(y, x, indexing="ij"), -1)
        .reshape(-1, 2)
        .tolist(),
        "detector_sampling_mrad": [2.0, 2.0],
        "detector_origin_mrad": [-(detector[0] - 1.0), -(detector[1] - 1.0)],
        "density_sampling_angstrom": [
            length / n for length, n in zip(extent, density, strict=True)
        ],
        "density_origin_angstrom": [0.0, 0.0],
    } | more


def experiment(p, atoms, detector, density):
    """Patterns (sy, sx, dy, dx) and density of `atoms` (n, 2): both are made of scalar products,
    and so turn along.
    """
    extent = np.array(p["extent_angstrom"])

    def nearest(r):  # from each atom to r, through the periodic cell
        d = r[..., None, :] - atoms
        return d - extent * np.round(d / extent)

    def raster(shape, name, unit):
        origin = p[f"{name}_origin_{unit}"]
        sampling = p[f"{name}_sampling_{unit}"]
        axes = (o + s * np.arange(n) for n, o, s in zip(shape, origin, sampling, strict=True))
        return np.stack(np.meshgrid(*axes, indexing="ij"), -1)

    k = raster(detector, "detector", "mrad")
    s = raster(density, "density", "angstrom")
    r = np.array(p["positions_angstrom"]).reshape(*p["scan_shape"], 2)
    away = nearest(r)
    lean = np.einsum("yxni,uvi->yxuvn", away, k)
    weights = np.arange(1, len(atoms) + 1)
    patterns = np.sum(
        weights * np.exp(-(away**2).sum(-1))[:, :, None, None] * (1.5 + np.tanh(lean / 5)), -1
    )
    return patterns, np.sum(weights * np.exp(-2 * (nearest(s) ** 2).sum(-1)), -1)


ATOMS = np.array([[0.7, 1.1], [2.9, 5.2], [4.4, 3.0]])


def moved(atoms, symmetry, of, p):
    """The atoms of the mirrored and exchanged specimen, by where the mirrors send the first
    probe.
    """
    r = np.array(p["positions_angstrom"]).reshape(*p["scan_shape"], 2)
    atoms = atoms.copy()
    if symmetry & 1:
        atoms[:, 0] = r[0, 0, 0] + r[of.y.scan[0], 0, 0] - atoms[:, 0]
    if symmetry & 2:
        atoms[:, 1] = r[0, 0, 1] + r[0, of.x.scan[0], 1] - atoms[:, 1]
    return atoms[:, ::-1] if symmetry & 4 else atoms


CASES = {
    "periodic scan from the origin": provenance(),
    "scan that starts on a density pixel": provenance(origin=(1.0, 2 / 3)),
    "reciprocal grid": provenance(
        detector_origin_mrad=[-4.0, -6.0], detector_sampling_mrad=[2.0, 2.0]
    ),
    "target at the probes, anywhere": provenance(
        origin=(0.3, 0.9),
        density=(3, 4),
        density_origin_angstrom=[0.3, 0.9],
        density_sampling_angstrom=[2.0, 2.0],
    ),
    "square": provenance((7.0, 7.0), (3, 3), (4, 4), (6, 6)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_symmetry_of_the_data_is_the_data_of_the_moved_specimen(name):
    p = CASES[name]
    detector = (4, 4) if name == "square" else (4, 6)
    density = {"square": (6, 6), "target at the probes, anywhere": (3, 4)}.get(name, (6, 12))
    of = sample_symmetries(p, detector, density)
    assert of.order == (8 if name == "square" else 4)
    patterns, image = experiment(p, ATOMS, detector, density)
    # its first row has no partner but itself
    inner = slice(1, None) if name == "reciprocal grid" else slice(None)
    for symmetry in range(of.order):
        turned_patterns, turned_image = apply(symmetry, of, patterns, image)
        expected_patterns, expected_image = experiment(
            p, moved(ATOMS, symmetry, of, p), detector, density
        )
        np.testing.assert_allclose(turned_image, expected_image, atol=1e-9)
        np.testing.assert_allclose(
            turned_patterns[..., inner, inner], expected_patterns[..., inner, inner], atol=1e-9
        )
        if symmetry:
            assert np.abs(turned_image - image).max() > 0.1
            assert np.abs(turned_patterns - patterns).max() > 0.1


@pytest.mark.filterwarnings("ignore:.* lie outside the cell:namsa.SimulationWarning")
def test_a_symmetry_of_a_simulation_is_the_simulation_of_the_moved_specimen():
    shape = (32, 40)
    scan = (2, 3)
    extent = (6.4, 8.0)
    atoms = ase.Atoms(
        "OSiGe",
        [(1.1, 0.7, 0.5), (5.2, 2.9, 2.0), (3.0, 4.4, 3.1)],
        cell=(*extent[::-1], 4.0),
        pbc=True,
    )

    def simulation(of):
        y, x = (np.arange(n) * length / n for n, length in zip(scan, extent, strict=True))
        settings = {
            "energy_ev": 80e3,
            "semiangle_mrad": 25.0,
            "aberrations": {"C10": -40.0, "C30": 1e5},
        }
        sample = namsa.simulate(
            of,
            grid_shape=shape,
            positions_angstrom=np.stack(np.meshgrid(y, x, indexing="ij"), -1).reshape(-1, 2),
            precision="float64",
            backend="cpu",
            **settings,
        )
        sample.provenance["scan_shape"] = list(scan)
        density = on_grid(band_limited(sample.density, Grid(shape, extent), max_q=2.0))
        return sample.provenance, sample.cbed.reshape(*scan, *shape), density

    p, patterns, density = simulation(atoms)
    of = sample_symmetries(p, shape, shape)
    for symmetry in range(1, of.order):
        turned_patterns, turned_density = apply(symmetry, of, patterns, density)
        moved_atoms = atoms.copy()
        moved_atoms.positions[:, [1, 0]] = moved(atoms.positions[:, [1, 0]], symmetry, of, p)
        _, expected_patterns, expected_density = simulation(moved_atoms)
        np.testing.assert_allclose(turned_density, expected_density, atol=1e-9 * density.max())
        # A grid has one of its two highest frequencies (k, ±k), so that mirrored potentials differ
        # by a little.
        np.testing.assert_allclose(turned_patterns, expected_patterns, atol=1e-6 * patterns.max())
        assert np.abs(turned_patterns - patterns).max() > 0.01 * patterns.max()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"aberrations": {"C10": 10.0, "C12": 5.0, "phi12": 0.3}}, "C12.*not round"),
        ({"beam_tilt_mrad": [0.0, 2.0]}, r"tilts .*beam_tilt_mrad.*augment=false"),
        ({"origin": (0.123, 0.0)}, "no common mirror along y"),
        ({"detector_origin_mrad": [-2.3, -5.0]}, "optic axis along y"),
    ],
)
def test_what_shares_no_mirror_is_refused(changed, message):
    with pytest.raises(InputError, match=message):
        sample_symmetries(provenance(**changed), (4, 6), (6, 12))


def test_a_lens_and_a_tilt_of_any_direction_alike_allow_symmetries():
    drawn = ("C12_angstrom", "beam_tilt_mrad")
    values = {"aberrations": {"C10": 10.0, "C12": 5.0, "phi12": 0.3}, "beam_tilt_mrad": [0.0, 2.0]}
    assert sample_symmetries(provenance(**values), (4, 6), (6, 12), drawn).order == 4
    with pytest.raises(InputError, match="aberrations C21 are not round"):
        sample_symmetries(provenance(aberrations={"C12": 5.0, "C21": 9.0}), (4, 6), (6, 12), drawn)
    with pytest.raises(InputError, match="specimen_tilt_mrad"):
        sample_symmetries(provenance(specimen_tilt_mrad=[0.0, 2.0]), (4, 6), (6, 12), drawn)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("scan_shape", None), ("scan_shape", [4, 4]), ("scan_shape", "3x4"), ("positions_angstrom",
        [[0.0, 0.0]] * 12),
        ("positions_angstrom", [[0.0]]), ("extent_angstrom", [0.0, 8.0]), ("extent_angstrom",
        KeyError),
        ("detector_sampling_mrad", [0.0, 2.0]), ("detector_origin_mrad", ["x", 0]), ("aberrations",
        {"C30": "large"}),
        ("density_sampling_angstrom", [1e-300, 1e300]), ("beam_tilt_mrad", {"y": 1}),
        ("specimen_tilt_mrad", "none"),
    ],
)  # fmt: skip
def test_a_provenance_that_namsa_does_not_write_is_named(key, value):
    changed = provenance() | {"id": "Si-001", key: value}
    if value is KeyError:
        del changed[key]
    with pytest.raises(InputError, match=f"the provenance of sample Si-001 has .*{key[:4]}"):
        sample_symmetries(changed, (4, 6), (6, 12))
