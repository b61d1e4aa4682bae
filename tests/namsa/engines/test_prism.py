"""Plane-wave reuse against multislice of every probe, and the counts that choose between them."""

import ase.build
import numpy as np
import pytest

import namsa
from namsa.config.instrument import Detector
from namsa.config.specimen import FrozenPhonons
from namsa.engines import fused, fused_library, interface, multislice, prism
from namsa.physics import detector, optics, specimen
from namsa.physics.grid import Grid

ENERGY = 200e3
SEMIANGLE = 18.0
ABERRATIONS = {"C10": -60.0, "C12": 25.0, "phi12": 0.4, "C30": 2e5}
TOLERANCE = {np.complex64: 2e-6, np.complex128: 1e-13}
RASTER = np.stack(
    np.meshgrid(0.3 + 1.1 * np.arange(3), -2 + 0.7 * np.arange(5), indexing="ij"), -1
).reshape(-1, 2)
LIST = np.array(
    [[0.2, 1.0], [0.2, 7.5], [3.3, 0.0], [-4.0, 2.0], [-4.0, 2.5], [-4.0, 30.0], [9.9, 0.1]]
)


@pytest.fixture(scope="module", params=TOLERANCE)
def strong(request):
    """(grid, slices, propagator) of 61 Å of gold, where a wave has no likeness to what came in."""
    dtype = request.param
    atoms = ase.build.bulk("Au", cubic=True) * (4, 3, 15)
    grid = Grid((72, 100), tuple(atoms.cell.lengths()[[1, 0]]))
    slices = specimen.build(
        atoms, grid, 2.04, optics.interaction_constant(ENERGY), "lobato", dtype, np
    ).slices
    fresnel = multislice.propagator(
        grid, optics.wavelength_angstrom(ENERGY), slices.thicknesses_angstrom[0]
    )
    return grid, slices, fresnel.astype(dtype)


def lens(grid, dtype, tilt=(0.0, 0.0), **changes):
    return optics.lens(
        grid, optics.BeamSettings(ENERGY, SEMIANGLE, ABERRATIONS | changes, tilt)
    ).astype(dtype)


def by_multislice(strong, wave, positions):
    return multislice.PlainEngine(*strong).prepare(wave).patterns(positions)


def by_reuse(strong, wave, pixels=None):
    """The engine's `patterns`."""
    grid, _, fresnel = strong
    pixels = prism.detected_pixels(fresnel) if pixels is None else pixels
    (matrix,) = matrices(strong, wave != 0, pixels)
    return prism.PrismEngine(grid, matrix, batch=16).prepare(wave).patterns


def matrices(
    strong, beams, pixels=None, depths=None, plane_waves=multislice.PlainEngine, **options
):
    _, slices, fresnel = strong
    reuse = prism.PlaneWaveReuse(
        beams, prism.detected_pixels(fresnel) if pixels is None else pixels, batch=16
    )
    return prism.scattering_matrices(
        plane_waves(*strong), fresnel, reuse, depths or [len(slices.order)], **options
    )


def close(patterns, expected, dtype):
    assert patterns.dtype == expected.dtype == dtype(0).real.dtype
    errors = np.linalg.norm(patterns - expected, axis=(1, 2)) / np.linalg.norm(
        expected, axis=(1, 2)
    )
    return errors.max() < TOLERANCE[dtype]


@pytest.mark.parametrize(
    ("positions", "tilt"),
    [(RASTER, (0.0, 0.0)), (LIST, (0.0, 0.0)), (LIST[:1], (0.0, 0.0)), (LIST, (4.0, -7.0))],
    ids=["raster", "list", "one", "tilted"],
)
def test_equals_multislice(strong, positions, tilt):
    dtype = strong[2].dtype.type
    wave = lens(strong[0], dtype, tilt)
    amplitude = np.abs(wave) / np.abs(wave).max()
    assert np.any((amplitude > 0) & (amplitude < 0.9))  # a soft edge
    expected = by_multislice(strong, wave, positions)
    assert expected.sum(axis=(1, 2)).max() < 0.95  # strong: some is scattered beyond the band limit
    assert close(by_reuse(strong, wave)(positions), expected, dtype)


def test_small_blocks_change_nothing_but_rounding(strong, monkeypatch):
    dtype = strong[2].dtype.type
    wave = lens(strong[0], dtype)
    expected = by_multislice(strong, wave, RASTER)
    monkeypatch.setattr(prism, "_ROWS", 2)
    monkeypatch.setattr(prism, "_PRODUCT_BYTES_ON_HOST", 1)
    monkeypatch.setattr(prism, "_PRODUCT_BYTES_ON_DEVICE", 1)
    monkeypatch.setattr(interface, "HOST_BATCH_BYTES", 1)
    patterns = by_reuse(strong, wave)
    assert close(patterns(RASTER), expected, dtype)
    pieces = np.concatenate(
        [patterns(RASTER[i : i + 4]) for i in range(0, len(RASTER), 4)]
    )  # rows of 5, cut
    assert close(pieces, expected, dtype)


def test_lenses_share_a_matrix(strong):
    grid, _, fresnel = strong
    dtype = fresnel.dtype.type
    waves = [lens(grid, dtype), lens(grid, dtype, C10=150.0), lens(grid, dtype, C21=4e3)]
    calls = []
    (matrix,) = matrices(
        strong, waves[0] != 0, on_beams=lambda done, total: calls.append((done, total))
    )
    engine = prism.PrismEngine(grid, matrix, batch=16)
    beams = np.count_nonzero(waves[0])
    assert calls[-1] == (beams, beams)
    for wave in waves:
        assert close(engine.prepare(wave).patterns(LIST), by_multislice(strong, wave, LIST), dtype)
    assert calls[-1] == (beams, beams)
    assert sum(done == beams for done, _ in calls) == 1


@pytest.mark.parametrize(
    "camera", [Detector(shape=(11, 17), binning=2), Detector(shape=(12, 12), pixel_mrad=3.5)]
)
def test_computes_no_more_pixels_than_the_detector_records(strong, camera):
    grid, _, fresnel = strong
    dtype = fresnel.dtype.type
    wave = lens(grid, dtype)
    matrices = detector.bin_matrices(grid, optics.wavelength_angstrom(ENERGY), camera)
    matrices = tuple(matrix.astype(fresnel.real.dtype) for matrix in matrices)
    pixels = prism.detected_pixels(fresnel, matrices)
    assert np.count_nonzero(pixels) < 0.5 * np.count_nonzero(prism.detected_pixels(fresnel))
    patterns = by_reuse(strong, wave, pixels)(RASTER)
    assert not patterns[:, ~np.fft.fftshift(pixels)].any()
    expected = detector.bin_patterns(by_multislice(strong, wave, RASTER), matrices)
    assert close(detector.bin_patterns(patterns, matrices), expected, dtype)


def test_without_a_detector_all_pixels_within_the_band_limit_are_computed(strong):
    grid, _, fresnel = strong
    np.testing.assert_array_equal(prism.detected_pixels(fresnel), grid.antialias() > 0)


@pytest.mark.parametrize(("positions", "rows"), [(RASTER, 3), (LIST, 4), (RASTER[:, ::-1], 15)])
def test_counts(positions, rows):
    grid = Grid((72, 100), (12.24, 16.32))
    beams = lens(grid, complex) != 0
    pixels = grid.antialias() > 0
    counts = prism.count_work(30, positions, 4, beams, pixels)
    assert counts[:5] == ((72, 100), 30, len(positions), rows, 4)
    # A disc of 18 mrad and half a reciprocal pixel of its soft edge, and that disc's diameter along
    # x.
    radius = 18e-3 / 0.0250793 + 0.5 / 14
    assert counts.beams == pytest.approx(np.pi * radius**2 * 12.24 * 16.32, rel=0.05)
    assert counts.columns == pytest.approx(2 * radius * 16.32, abs=1.5)
    assert counts.pixels == np.count_nonzero(pixels)


def work(**changes):
    """The 32×32 patterns of a small cell: reuse pays."""
    usual = prism.Work(
        (128, 128), 40, probes=1024, rows=32, coherent=1, beams=200, columns=16, pixels=5700
    )
    return usual._replace(**changes)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"probes": 300, "rows": 10}, False),
        ({"probes": 300, "rows": 10, "coherent": 20}, True),  # partial coherence shares the matrix
        ({"rows": 1024, "slices": 2}, False),  # a list of positions through next to nothing
        ({"beams": 900, "columns": 34}, False),
        ({"beams": 50_000, "coherent": 1000}, False),  # 2.3 GB
    ],
)
def test_reuse_is_chosen_where_it_pays(changes, expected):
    assert prism.pays(work(**changes), 8) == expected


def test_a_batch_is_whole_rows_of_the_scan():
    assert prism.batch_size((128, 128), 4) == 512
    assert prism.batch_size((128, 128), 4, row=60) == 480
    assert prism.batch_size((512, 512), 4) == 32
    assert prism.batch_size((512, 512), 4, row=60) == 120
    assert prism.batch_size((8192, 8192), 8) == 1


@pytest.mark.skipif(not fused_library.available(), reason="installed without a C compiler")
def test_plane_waves_of_the_fused_engine(strong):
    grid, _, fresnel = strong
    dtype = fresnel.dtype.type
    beams = np.flatnonzero(lens(grid, dtype, (4.0, -7.0)))[::7]
    depths = [1, 4, len(strong[1].order)]
    pixels = np.flatnonzero(fresnel)[::3]
    fused_waves = fused.FusedPlaneWaves(*strong).exit_waves(beams, depths, pixels)
    expected = multislice.PlainEngine(*strong).exit_waves(beams, depths, pixels)
    assert fused_waves.dtype == expected.dtype
    for wave, other in zip(fused_waves, expected, strict=True):
        assert np.linalg.norm(wave - other) < TOLERANCE[dtype] * np.linalg.norm(other)


ENGINES = [
    multislice,
    pytest.param(
        fused, marks=pytest.mark.skipif(not fused_library.available(), reason="no C compiler")
    ),
]


@pytest.mark.parametrize("module", ENGINES, ids=["plain", "fused"])
def test_waves_at_depths_are_those_behind_the_first_slices(strong, module):
    grid, slices, fresnel = strong
    dtype = fresnel.dtype.type
    plane_waves = fused.FusedPlaneWaves if module is fused else multislice.PlainEngine
    wave = lens(grid, dtype)
    depths = [2, 5, len(slices.order)]
    depth_matrices = matrices(strong, wave != 0, depths=depths, plane_waves=plane_waves)
    for matrix, depth in zip(depth_matrices, depths, strict=True):
        thin = grid, next(slices.parts([depth])), fresnel
        patterns = prism.PrismEngine(grid, matrix, batch=16).prepare(wave).patterns(RASTER)
        expected = by_multislice(thin, wave, RASTER)
        assert np.linalg.norm(patterns - expected) < 2 * TOLERANCE[dtype] * np.linalg.norm(expected)


@pytest.mark.slow
def test_a_part_of_the_plane_waves_has_the_bits_of_a_matrix_of_them_alone(strong):
    grid, _, fresnel = strong
    dtype = fresnel.dtype.type
    lens_wave = lens(grid, dtype)
    tilted_wave = lens(grid, dtype, (4.0, -7.0))
    (both,) = matrices(strong, (lens_wave != 0) | (tilted_wave != 0))
    for wave in (lens_wave, tilted_wave):
        lens_part = both.part(wave != 0, prism.detected_pixels(strong[2]))
        patterns = prism.PrismEngine(grid, lens_part, batch=16).prepare(wave).patterns(RASTER)
        np.testing.assert_array_equal(patterns, by_reuse(strong, wave)(RASTER))


@pytest.mark.parametrize("shape", [(72, 100), (74, 100)], ids=["fused", "plain"])
@pytest.mark.filterwarnings("ignore:.* positions are negative:namsa.SimulationWarning")
def test_a_simulation_takes_either_method_to_the_same_result(shape):
    arguments = {
        "energy_ev": ENERGY,
        "semiangle_mrad": SEMIANGLE,
        "grid_shape": shape,
        "positions_angstrom": RASTER,
        "scan_shape": (3, 5),
        "source_size_angstrom": 0.6,
        "source_points": 2,
        "focal_spread_angstrom": 40.0,
        "focal_points": 3,
        "detector": Detector(shape=(11, 17), binning=2),
        "frozen_phonons": FrozenPhonons(rms_angstrom=0.08, configurations=2),
        "backend": "cpu",
    }
    atoms = ase.build.bulk("Au", cubic=True) * (4, 3, 5)
    stages = []
    either = [
        namsa.simulate(
            atoms, **arguments, method=method, on_progress=lambda *stage: stages.append(stage)
        )
        for method in ("multislice", "prism")
    ]
    assert [sample.provenance["method"] for sample in either] == ["multislice", "prism"]
    assert close(either[1].cbed, either[0].cbed, np.complex64)
    for name in {stage for stage, _, _ in stages}:
        assert [stage[1] / stage[2] for stage in stages if stage[0] == name][-1] == 1


@pytest.mark.filterwarnings("ignore:.* positions are negative:namsa.SimulationWarning")
def test_plane_waves_take_each_slice_as_far_as_it_is_thick():
    """Layers at unequal distances: each distance has its propagator, in both methods."""
    heights = (0.0, 1.3, 4.0, 9.1)
    atoms = ase.Atoms(
        "AuCuAgPt", positions=[(2 + z / 3, 3, z) for z in heights], cell=[8.4, 7.2, 12.0], pbc=True
    )
    beam = {"energy_ev": ENERGY, "semiangle_mrad": SEMIANGLE, "positions_angstrom": RASTER}
    arguments = beam | {"grid_shape": (72, 84), "accuracy": None, "backend": "cpu"}
    plain = namsa.simulate(atoms, **arguments, method="multislice", engine="plain")
    assert (plain.provenance["slices"], plain.provenance["slices_follow_layers"]) == (4, True)
    equal = namsa.simulate(
        atoms, **arguments, method="multislice", engine="plain", slice_thickness_angstrom=3.0
    )
    assert not close(equal.cbed, plain.cbed, np.complex64)
    for engine in ("plain", "fused") if fused_library.available() else ("plain",):
        sample = namsa.simulate(atoms, **arguments, method="prism", engine=engine)
        assert sample.provenance["method"] == "prism"
        assert close(sample.cbed, plain.cbed, np.complex64)


def test_auto_asks_the_counts():
    grid = Grid((72, 100), (12.24, 16.32))
    fresnel = grid.antialias().astype(np.complex64)
    beams = lens(grid, np.complex64) != 0
    for count, expected in ((10, False), (100, True)):
        positions = (
            np.stack(np.meshgrid(*2 * [np.arange(count)], indexing="ij"), -1).reshape(-1, 2) * 0.1
        )
        reuse = prism.choose("auto", 50, positions, 1, beams, fresnel, None)
        assert (reuse is not None) == expected
        assert prism.choose("multislice", 50, positions, 1, beams, fresnel, None) is None
        assert prism.choose("prism", 50, positions, 1, beams, fresnel, None) is not None
