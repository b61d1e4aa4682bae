"""One specimen to one sample: the simulator's story, from atoms to a stack of patterns and its electron density."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Literal

import ase
import numpy as np
import numpy.typing as npt

from namsa import detector as detectors
from namsa import multislice, optics, specimen
from namsa.backend import Backend, available_cores, resolve, to_host
from namsa.config import Detector, FrozenPhonons
from namsa.crystal import check_atoms, displaced
from namsa.errors import InputError
from namsa.form_factors import Table
from namsa.grid import Array, Grid

Progress = Callable[[str, int, int], None]
_CACHE_BYTES = 2**20  # a batch of this size stays in a core's second-level cache
_DEVICE_BYTES = 2**28  # and one of this size keeps a GPU busy


@dataclass(frozen=True)
class Sample:
    """A (patterns, density) pair with its provenance; all arrays on the host.

    cbed: (n, dy, dx), the fraction of the incident beam in each pixel, zero frequency in the centre
    density: (ty, tx), projected electron density, e/Å²
    projected_potential: (ny, nx), V·Å
    provenance: everything needed to make the sample again, JSON types only
    """

    cbed: npt.NDArray[Any]
    density: npt.NDArray[Any]
    projected_potential: npt.NDArray[Any]
    provenance: dict[str, Any]


def simulate(
    atoms: ase.Atoms,
    *,
    energy_ev: float,
    semiangle_mrad: float,
    grid_shape: tuple[int, int],
    positions_angstrom: npt.ArrayLike,
    slice_thickness_angstrom: float = 2.0,
    aberrations: Mapping[str, float] | None = None,
    form_factors: Table = "lobato",
    frozen_phonons: FrozenPhonons | None = None,
    precision: Literal["float32", "float64"] = "float32",
    backend: Backend = "auto",
    seed: int = 0,
    detector: Detector | None = None,
    on_progress: Progress = lambda stage, done, total: None,
) -> Sample:
    """4D-STEM patterns of `atoms` by multislice, with the specimen's projected density and potential.

    atoms: orthogonal periodic cell, beam along +z; `atoms.arrays["occupancy"]` is honoured
    grid_shape: (ny, nx) pixels over the cell
    positions_angstrom: (n, 2) probe positions (y, x) from the cell's origin; they wrap
    aberrations: Krivanek's, Å and rad; C10 = −defocus
    frozen_phonons: patterns are averaged over its configurations, drawn from `seed`
    detector: none gives patterns on the reciprocal grid, (n, ny, nx)

    Raises InputError, before any work, for what cannot be simulated.
    """
    check_atoms(atoms)
    positions = _checked_positions(positions_angstrom)
    if min(grid_shape) < 2:
        raise InputError(f"grid_shape is {tuple(grid_shape)}; give two pixels (y, x) or more along each axis")
    if not slice_thickness_angstrom > 0:
        raise InputError(f"slice_thickness_angstrom is {slice_thickness_angstrom}; it must be positive")
    if precision not in ("float32", "float64"):
        raise InputError(f"precision is {precision!r}; it must be 'float32' or 'float64'")
    xp, real = resolve(backend), np.dtype(precision)
    dtype = np.result_type(real, np.complex64)
    lx, ly, lz = (float(length) for length in atoms.cell.lengths())
    grid = Grid((int(grid_shape[0]), int(grid_shape[1])), (ly, lx))
    wavelength, sigma = optics.wavelength_angstrom(energy_ev), optics.interaction_constant(energy_ev)
    wave = optics.lens(grid, energy_ev, semiangle_mrad, aberrations or {})
    binning = detector and detectors.bin_matrices(grid, wavelength, detector)

    configurations = frozen_phonons.configurations if frozen_phonons else 1
    rng = np.random.default_rng(seed)
    shape = detector.shape if detector else grid.shape
    cbed, density, projected = np.zeros((len(positions), *shape), real), np.zeros(grid.shape), np.zeros(grid.shape)
    for configuration in range(configurations):
        thermal = displaced(atoms, frozen_phonons.rms_angstrom, rng) if frozen_phonons else atoms
        seen = specimen.build(
            thermal, grid, slice_thickness_angstrom, sigma, form_factors, dtype, xp, _stage("slices", on_progress)
        )
        fresnel = multislice.propagator(grid, wavelength, seen.slices.thickness_angstrom)
        _diffract(
            cbed,
            positions,
            grid,
            xp.asarray(wave.astype(dtype)),
            seen.slices,
            xp.asarray(fresnel.astype(dtype)),
            binning and tuple(xp.asarray(m.astype(real)) for m in binning),
            lambda done, total, first=configuration: on_progress(  # type: ignore[misc]
                "probes", first * total + done, configurations * total
            ),
        )
        density += to_host(seen.density)
        projected += to_host(seen.projected_potential)
    cbed /= configurations

    pitch, origin = detectors.axes(grid, wavelength, detector)
    provenance = {
        "energy_ev": energy_ev,
        "semiangle_mrad": semiangle_mrad,
        "aberrations": dict(aberrations or {}),
        "grid_shape": list(grid.shape),
        "extent_angstrom": list(grid.extent_angstrom),
        "thickness_angstrom": lz,
        "slice_thickness_angstrom": seen.slices.thickness_angstrom,
        "slices": len(seen.slices.order),
        "atoms": len(atoms),
        "positions_angstrom": positions.tolist(),
        "scan_shape": None,
        "detector_sampling_mrad": list(pitch),
        "detector_origin_mrad": list(origin),
        "density_sampling_angstrom": list(grid.sampling_angstrom),
        "density_origin_angstrom": [0.0, 0.0],
        "form_factors": form_factors,
        "frozen_phonons": frozen_phonons and frozen_phonons.model_dump(mode="json"),
        "seed": seed,
        "precision": precision,
        "backend": xp.__name__,
        "software": {name: version(name) for name in ("namsa", "numpy", "scipy")},
    }
    return Sample(cbed, (density / configurations).astype(real), (projected / configurations).astype(real), provenance)


def _checked_positions(positions_angstrom: npt.ArrayLike) -> npt.NDArray[np.float64]:
    positions = np.asarray(positions_angstrom, dtype=np.float64)
    if positions.ndim != 2 or positions.shape[1] != 2 or not len(positions):
        raise InputError(f"positions_angstrom has shape {positions.shape}; it must be (n, 2), as (y, x), with n >= 1")
    if not np.all(np.isfinite(positions)):
        row = int(np.argmin(np.all(np.isfinite(positions), axis=1)))
        raise InputError(f"positions_angstrom[{row}] is {positions[row].tolist()}; positions must be finite")
    return positions


def _stage(name: str, on_progress: Progress) -> Callable[[int, int], None]:
    return lambda done, total: on_progress(name, done, total)


def _diffract(
    cbed: npt.NDArray[Any],
    positions: npt.NDArray[np.float64],
    grid: Grid,
    wave: Array,
    slices: multislice.Slices,
    fresnel: Array,
    binning: Any,
    on_probes: Callable[[int, int], None],
) -> None:
    """Adds every probe's pattern to `cbed`, in batches that fit a core's cache (or keep a GPU busy).

    Batches write to their own rows, so that the result does not depend on the number of threads.
    """
    on_host = isinstance(wave, np.ndarray)
    batch = max(1, (_CACHE_BYTES if on_host else _DEVICE_BYTES) // wave.nbytes)

    def work(start: int) -> int:
        chunk = positions[start : start + batch]
        waves = multislice.exit_waves(optics.probes(wave, grid, chunk), slices, fresnel)
        cbed[start : start + batch] += to_host(detectors.collect(multislice.intensity(waves), binning))
        return len(chunk)

    # NumPy's and SciPy's loops release the interpreter's lock; a GPU is fed by one thread.
    with ThreadPoolExecutor(available_cores() if on_host else 1) as pool:
        pending = [pool.submit(work, start) for start in range(0, len(positions), batch)]
        done = 0
        try:
            for future in as_completed(pending):
                done += future.result()
                on_probes(done, len(positions))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
