"""The compiled engine against its plain twin: every radix, every width of vectors, both
precisions.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.fft

import namsa
from namsa.base.errors import InputError
from namsa.engines import fused, fused_layout, fused_library, multislice
from namsa.physics.grid import Grid
from namsa.physics.potential import Slices

pytestmark = pytest.mark.skipif(
    not fused_library.available(), reason="installed without a C compiler"
)

WIDTHS = [width for width in (16, 32, 64) if width <= fused_library.vector_bytes()]
# One level and many, every radix first and last, sides that fill no whole vector, one much longer
# than the other.
SHAPES = [(8, 6), (64, 30), (49, 75), (60, 126), (96, 35), (36, 250), (128, 162), (24, 512)]
POSITIONS = np.array([[0.3, 1.1], [2.0, -7.0], [55.5, 0.0]])
TOLERANCE = {np.complex64: 1e-5, np.complex128: 1e-13}


def specimen(shape, dtype, n_slices=7):
    """(grid, slices, two propagators), lens, with nothing symmetric about them but the band
    limit.
    """
    rng = np.random.default_rng(shape)
    grid = Grid(shape, (0.11 * shape[0], 0.09 * shape[1]))
    inside = grid.antialias()

    def noise():
        return rng.normal(size=shape) + 1j * rng.normal(size=shape)

    lens = inside * noise()
    fresnel = inside * np.exp(1j * rng.uniform(0, 2 * np.pi, (2, *shape)))
    transmissions = []
    for _ in range(3):
        transmissions.append(
            scipy.fft.ifft2(inside * scipy.fft.fft2(np.exp(1j * rng.normal(size=shape))))
        )
    order = rng.integers(0, 3, n_slices)
    propagators = rng.integers(0, 2, n_slices)
    slices = Slices(
        [t.astype(dtype) for t in transmissions], order, np.array([1.5, 2.0]), propagators
    )
    return (grid, slices, fresnel.astype(dtype)), (lens / np.linalg.norm(lens)).astype(dtype)


def close(patterns, expected, tolerance):
    errors = np.linalg.norm(patterns - expected, axis=(1, 2)) / np.linalg.norm(
        expected, axis=(1, 2)
    )
    return errors.max() < tolerance


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_the_plain_engine(shape, width, dtype):
    arguments, lens = specimen(shape, dtype)
    patterns = fused.FusedEngine(*arguments, vectors=width).prepare(lens).patterns(POSITIONS)
    expected = multislice.PlainEngine(*arguments).prepare(lens).patterns(POSITIONS)
    assert patterns.dtype == expected.dtype
    assert close(patterns, expected, TOLERANCE[dtype])


def test_is_as_exact_as_the_plain_engine():
    """Against double precision, single precision errs no more than SciPy's transforms do, up to
    chance.
    """
    shape = (192, 210)
    arguments, lens = specimen(shape, np.complex128, 40)
    exact = multislice.PlainEngine(*arguments).prepare(lens).patterns(POSITIONS)
    arguments, lens = specimen(shape, np.complex64, 40)
    engines = multislice.PlainEngine, fused.FusedEngine
    plain, quick = (
        np.linalg.norm(engine(*arguments).prepare(lens).patterns(POSITIONS) - exact)
        for engine in engines
    )
    assert quick < 1.5 * plain


@pytest.mark.parametrize(
    ("shape", "n_slices", "probes", "wide"),
    [((40, 56), 1, 1, False), ((48, 64), 7, 3, True)],
    ids=["one slice and one probe", "a lens wider than the propagator"],
)
def test_equals_the_plain_engine_at_limits(shape, n_slices, probes, wide):
    arguments, lens = specimen(shape, np.complex128, n_slices)
    lens = np.random.default_rng(1).normal(size=lens.shape) + 0j if wide else lens
    engines = fused.FusedEngine, multislice.PlainEngine
    patterns, expected = (
        engine(*arguments).prepare(lens).patterns(POSITIONS[:probes]) for engine in engines
    )
    assert close(patterns, expected, 1e-13)


def test_nothing_is_left_of_what_lies_beyond_the_band_limit():
    arguments, lens = specimen((96, 120), np.complex64)
    patterns = fused.FusedEngine(*arguments).prepare(lens).patterns(POSITIONS)
    beyond = np.fft.fftshift(arguments[0].antialias() == 0)
    assert not patterns[:, beyond].any()
    assert patterns[:, ~beyond].all()


def test_threads_share_an_engine_and_batches_do_not_matter():
    arguments, lens = specimen((64, 80), np.complex64)
    patterns = fused.FusedEngine(*arguments).prepare(lens).patterns
    positions = np.random.default_rng(2).uniform(0, 10, (24, 2))
    together = patterns(positions)
    with ThreadPoolExecutor(4) as pool:
        apart = np.concatenate(
            list(pool.map(lambda i: patterns(positions[i : i + 1]), range(len(positions))))
        )
    np.testing.assert_array_equal(apart, together)


@pytest.mark.parametrize(
    ("n", "levels"), [(512, [8, 8, 8]), (128, [8, 4, 4]), (1000, [5, 5, 5, 8]), (26, [2])]
)
def test_levels_of_a_transform(n, levels):
    assert fused_layout.radices(n) == levels


@pytest.mark.parametrize("shape", [(64, 131), (143, 64)])
def test_other_primes_are_left_to_the_plain_engine(shape):
    assert not fused.supports(shape)
    with pytest.raises(InputError, match="prime factors beyond 7"):
        fused.FusedEngine(*specimen(shape, np.complex64)[0])


@pytest.mark.parametrize(
    ("lit", "dark"), [("11100111", 2), ("11100011", 2), ("11000011", 4), ("11111111", 0)]
)
def test_what_the_band_limit_leaves_out_of_a_level(lit, dark):
    assert fused_layout.central_zeros(np.array([place == "1" for place in lit])) == dark


@pytest.mark.parametrize(("shape", "engine"), [((96, 120), "fused"), ((97, 120), "plain")])
def test_a_simulation_takes_the_fastest_engine_and_says_which(shape, engine):
    import ase.build

    beam = {
        "energy_ev": 200e3,
        "semiangle_mrad": 15.0,
        "positions_angstrom": [[1.0, 2.0], [3.3, 0.4]],
    }
    arguments = beam | {"grid_shape": shape, "backend": "cpu"}
    atoms = ase.build.bulk("Si", cubic=True) * (3, 3, 2)
    fastest = namsa.simulate(atoms, **arguments)
    plain = namsa.simulate(atoms, **arguments, engine="plain")
    assert fastest.provenance["engine"] == engine
    assert plain.provenance["engine"] == "plain"
    assert close(fastest.cbed, plain.cbed, 1e-5)
