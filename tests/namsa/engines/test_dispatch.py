"""The choice of an engine, the shape that all engines share, and the sum over coherent probes."""

import sys
import types
from types import SimpleNamespace

import numpy as np
import pytest

from namsa.base.errors import InputError
from namsa.config.instrument import Detector
from namsa.engines import dispatch, fused_library, prism
from namsa.physics import detector, optics
from namsa.physics.backend import free_device_memory, resolve_backend
from namsa.physics.coherence import Mode
from namsa.physics.grid import Grid
from namsa.physics.potential import Slices

GRID = Grid((40, 48), (8.0, 9.6))
BEAM = optics.BeamSettings(200e3, 20.0, {"C10": -50.0}, specimen_tilt_mrad=(10.0, -5.0))
MODES = [Mode(0.75, 0.0, (0.0, 0.0)), Mode(0.25, 30.0, (0.2, -0.1))]
POSITIONS = np.array([[1.0, 2.0], [1.0, 3.5], [7.9, 0.3]])
ON_DEVICE = types.ModuleType("cupy")  # any module but NumPy
needs_fused = pytest.mark.skipif(
    not fused_library.available(), reason="installed without a C compiler"
)


def optical_setup(engine="plain", camera=None, modes=MODES):
    return dispatch.optical_setup(
        GRID, BEAM, modes, [2.0], camera, precision="float64", engine=engine
    )


def slices():
    rng = np.random.default_rng(4)
    return Slices.equally_thick(
        [np.exp(1j * rng.normal(size=GRID.shape)) for _ in range(2)], np.array([0, 1, 1]), 2.0
    )


def reuse(setup):
    beams = optics.aperture(GRID, BEAM) != 0
    return prism.PlaneWaveReuse(beams, prism.detected_pixels(setup.fresnel), batch=2)


@pytest.mark.parametrize(
    ("engine", "xp", "shape", "fits", "implementation"),
    [
        ("plain", np, (40, 48), True, dispatch.PLAIN),
        pytest.param("auto", np, (40, 48), True, dispatch.FUSED, marks=needs_fused),
        pytest.param("fused", np, (40, 48), True, dispatch.FUSED, marks=needs_fused),
        ("auto", np, (41, 48), True, dispatch.PLAIN),
        ("auto", ON_DEVICE, (40, 48), True, dispatch.FUSED_GPU),
        ("auto", ON_DEVICE, (41, 48), True, dispatch.PLAIN),
        ("plain", ON_DEVICE, (40, 48), True, dispatch.PLAIN),
        ("fused", ON_DEVICE, (40, 48), True, dispatch.FUSED_GPU),
        (
            "auto",
            ON_DEVICE,
            (40, 48),
            False,
            dispatch.PLAIN,
        ),  # shared memory too small for the fused kernels
    ],
)
def test_the_engine_follows_from_the_request_the_array_module_the_grid_and_the_gpu(
    engine, xp, shape, fits, implementation
):
    assert (
        dispatch.choose_implementation(engine, xp, shape, np.complex64, fits=fits) is implementation
    )


@pytest.mark.parametrize(
    ("xp", "shape", "dtype"),
    [
        (np, (41, 48), np.complex64),
        (ON_DEVICE, (40, 2048), np.complex64),
        (ON_DEVICE, (40, 48), np.complex128),
    ],
)
def test_a_fused_engine_is_refused_where_it_has_no_transform(xp, shape, dtype):
    with pytest.raises(InputError, match="engine 'fused' does not support .* or use engine 'auto'"):
        dispatch.choose_implementation("fused", xp, shape, dtype)


@pytest.mark.parametrize("engine", ["plain", pytest.param("fused", marks=needs_fused)])
@pytest.mark.parametrize("by_prism", [False, True])
def test_modes_add_up_with_their_share_defocus_and_shift_in_all_engines(engine, by_prism):
    camera = Detector(binning=2)
    setup = optical_setup(engine, camera)
    shape = tuple(
        row.count
        for row in detector.pixels(GRID, optics.wavelength_angstrom(BEAM.energy_ev), camera)
    )
    # to which patterns are added
    cbed = np.ones((3, *shape))
    expected = np.ones((3, *shape))
    stages = []

    def on_progress(*stage):
        stages.append(stage)

    made = dispatch.make_engine(setup, slices(), reuse(setup) if by_prism else None, on_progress)
    dispatch.add_patterns(cbed, POSITIONS, setup, made, on_progress)
    for mode in MODES:
        beam = optics.BeamSettings(BEAM.energy_ev, BEAM.semiangle_mrad, {"C10": -50.0 + mode.c10})
        defocused = optics.lens(GRID, beam)
        probes = setup.implementation.engine(GRID, slices(), setup.fresnel).prepare(defocused)
        expected += mode.share * detector.bin_patterns(
            probes.patterns(POSITIONS + mode.shift), setup.binning
        )
    np.testing.assert_allclose(cbed, expected, rtol=0, atol=1e-14)
    assert stages[-1] == ("probes", 6, 6)
    assert {stage for stage, _, _ in stages} == (
        {"plane waves", "probes"} if by_prism else {"probes"}
    )


def test_progress_of_a_part_is_reported_as_that_of_the_whole():
    reports = []
    dispatch.part_of(lambda *report: reports.append(report), index=1, count=4)("probes", 3, 10)
    assert reports == [("probes", 13, 40)]


# ---- Backends


def test_cupy_without_a_device_is_left_alone(monkeypatch):
    def no_device():
        raise RuntimeError("CUDA driver version is insufficient")

    cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=SimpleNamespace(getDeviceCount=no_device)))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    free_device_memory()
    assert resolve_backend("auto") is np
    with pytest.raises(
        InputError,
        match=r"CuPy cannot use CUDA \(CUDA driver version is insufficient\): use backend",
    ):
        resolve_backend("cupy")
