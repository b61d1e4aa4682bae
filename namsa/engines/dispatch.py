"""Specimen's slices to patterns: by which optics, which engine takes them there, by which method, in what batches."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from namsa import checks
from namsa.config.instrument import Detector
from namsa.engines import fused, fused_gpu, multislice, prism
from namsa.physics import optics
from namsa.physics.backend import in_batches, to_host
from namsa.physics.coherence import Mode
from namsa.physics.detector import bin_matrices, collect
from namsa.physics.grid import Array, Grid
from namsa.physics.potential import Slices

Progress = Callable[[str, int, int], None]
Engine = Literal["auto", "plain", "fused"]
_CACHE_BYTES = 2**20  # a batch of this size stays in a core's second-level cache
_DEVICE_BYTES = 2**28  # and one of this size keeps a GPU busy


@dataclass(frozen=True)
class Optics:
    """What all configurations of a specimen share, on the host or the device.

    lens: of a mode, (ny, nx) complex, zero frequency first; fresnel: the propagator over a slice, likewise
    binning: the detector's matrices, as `detector.collect` has them
    fused, reuse: what was chosen of engines and methods
    """

    grid: Grid
    modes: list[Mode]
    lens: Callable[[Mode], Array]
    fresnel: Array
    binning: tuple[Array, Array] | None
    fused: bool
    reuse: prism.Reuse | None = None


def beam(
    grid: Grid,
    modes: list[Mode],
    energy_ev: float,
    semiangle_mrad: float,
    aberrations: Mapping[str, float],
    slice_thickness_angstrom: float,
    detector: Detector | None,
    *,
    beam_tilt_mrad: tuple[float, float],
    specimen_tilt_mrad: tuple[float, float],
    precision: Literal["float32", "float64"] = "float32",
    xp: Any = np,
    engine: Engine = "auto",
) -> Optics:
    """The probes of `modes`, the way through a slice and the detector. Raises InputError where no `engine` can."""
    real, dtype = np.dtype(precision), np.result_type(precision, np.complex64)
    wavelength = optics.wavelength_angstrom(energy_ev)

    def lens(mode: Mode) -> Array:
        defocused = {**aberrations, "C10": aberrations.get("C10", 0.0) + mode.c10}
        wave = optics.lens(grid, energy_ev, semiangle_mrad, defocused, beam_tilt_mrad)
        return xp.asarray((np.sqrt(mode.share) * wave).astype(dtype))

    tilt = optics.specimen_tilt(grid, specimen_tilt_mrad, slice_thickness_angstrom)
    propagator = multislice.propagator(grid, wavelength, slice_thickness_angstrom)
    fresnel = xp.asarray((propagator * tilt).astype(dtype))
    binning = bin_matrices(grid, wavelength, detector) if detector else None
    binning = binning and (xp.asarray(binning[0].astype(real)), xp.asarray(binning[1].astype(real)))
    return Optics(grid, modes, lens, fresnel, binning, fuses(engine, xp, grid.shape, dtype))


def fuses(engine: Engine, xp: Any, shape: tuple[int, int], dtype: npt.DTypeLike) -> bool:
    """Whether the fused engine is to be taken; "auto" takes it on a CPU that can. Raises InputError where none can."""
    supported = (fused if xp is np else fused_gpu).supports(shape, dtype)
    checks.engine(engine, shape, supported)
    return engine == "fused" or (engine == "auto" and xp is np and supported)


def add_patterns(
    cbed: npt.NDArray[Any],
    positions: npt.NDArray[np.float64],
    beam: Optics,
    slices: Slices,
    on_progress: Progress,
) -> None:
    """Adds to `cbed` (n, dy, dx), on the host, what each position's probes, a mode each, make of `slices`.

    Plane waves to be reused take the plain way on a GPU, where the fused engine has none.
    """
    on_host = isinstance(beam.fresnel, np.ndarray)
    module = fused if beam.fused and on_host else multislice
    of_lens: Callable[[Array], multislice.Scan] | None = None
    if beam.reuse:
        waves, on_beams = module.plane_waves(beam.grid, slices, beam.fresnel), partial(on_progress, "plane waves")
        of_lens = prism.engine(beam.grid, waves, beam.fresnel, beam.reuse.beams, beam.reuse.wanted, on_beams)
    elif on_host or not beam.fused:
        of_lens = module.engine(beam.grid, slices, beam.fresnel)
    for index, mode in enumerate(beam.modes):
        lens, at = beam.lens(mode), positions + mode.shift
        on_probes = partial(part(on_progress, index, len(beam.modes)), "probes")
        if of_lens:
            _in_batches(cbed, at, of_lens(lens), _batch(beam, lens), beam.binning, on_host, on_probes)
        else:
            fused_gpu.diffract(cbed, at, beam.grid, lens, slices, beam.fresnel, beam.binning, on_probes)


def part(on_progress: Progress, index: int, count: int) -> Progress:
    """Progress in part `index` of `count` equal ones, as progress of the whole."""
    return lambda stage, done, total: on_progress(stage, index * total + done, count * total)


def _batch(beam: Optics, lens: Array) -> int:
    if beam.reuse:
        return beam.reuse.batch
    return max(1, (_CACHE_BYTES if isinstance(lens, np.ndarray) else _DEVICE_BYTES) // lens.nbytes)


def _in_batches(
    cbed: npt.NDArray[Any],
    positions: npt.NDArray[np.float64],
    patterns: multislice.Scan,
    batch: int,
    binning: tuple[Array, Array] | None,
    on_host: bool,
    on_probes: Callable[[int, int], None],
) -> None:
    """Batches write to their own rows, so that the result does not depend on the number of threads."""

    def work(rows: slice) -> None:
        cbed[rows] += to_host(collect(patterns(positions[rows]), binning))

    in_batches(work, len(positions), batch, on_host, on_probes)
