"""Patterns that are averaged over all positions of the probe (PACBED), of a specimen up to each of
its depths.

Over all positions of a periodic cell, interference between the plane waves of the probe averages to
zero. The pattern is the sum of theirs, weighted by the aperture: ⟨|ψ(k)|²⟩ = Σ_b |A_b|² |S_b(k)|².
It so depends neither on aberrations nor on the size of the source, and takes one propagation of
plane waves for all thicknesses.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from namsa.base.errors import InputError, issue_warnings
from namsa.config.bounds import DEFAULT_ACCURACY
from namsa.config.instrument import Detector
from namsa.config.specimen import FrozenPhonons
from namsa.engines import dispatch, prism
from namsa.engines.interface import ProgressCallback, waves_per_batch
from namsa.physics import optics
from namsa.physics.backend import run_in_batches, to_host
from namsa.physics.detector import bin_patterns
from namsa.physics.potential import Slices
from namsa.sampling.slicing import plan_slices
from namsa.sampling.snapshots import Snapshots
from namsa.setup import checks
from namsa.setup.settings import settings_of


@threadpool_limits.wrap(limits=1, user_api="blas")  # as in `namsa.simulate`
def position_averaged(
    atoms: Snapshots,  # the specimen; as the other arguments, that of `namsa.scatter`
    *,
    energy_ev: float,
    semiangle_mrad: float,
    detector: Detector,
    thicknesses_angstrom: Sequence[float] | None = None,
    slice_thickness_angstrom: float | None = None,
    accuracy: float | None = DEFAULT_ACCURACY,
    frozen_phonons: FrozenPhonons | None = None,
    specimen_tilt_mrad: tuple[float, float] = (0.0, 0.0),
    aperture_edge: optics.ApertureEdge = "intensity",
    seed: int = 0,
    # (n, first): of the plane waves, each n-th from the first on stands for all.
    every: tuple[int, int] = (1, 0),
    overlaps: bool = False,  # whether atoms may overlap, as those of a model do
) -> npt.NDArray[np.float64]:
    """Simulates the pattern that is averaged over all probe positions of the cell, up to each
    thickness.

    Returns:
        Patterns (thicknesses, dy, dx), fractions of the beam.

    Raises:
        InputError: As `namsa.scatter`, or if no plane wave is left.
    """
    settings = settings_of(
        {
            "energy_ev": energy_ev,
            "semiangle_mrad": semiangle_mrad,
            "detector": detector,
            "slice_thickness_angstrom": slice_thickness_angstrom,
            "accuracy": accuracy,
            "frozen_phonons": frozen_phonons,
            "specimen_tilt_mrad": specimen_tilt_mrad,
            "method": "prism",
            "seed": seed,
        }
    )
    slicing = plan_slices(atoms, settings, overlaps=overlaps)
    issue_warnings(slicing.warnings, stacklevel=3)  # this function is wrapped
    checks.check_ranges(semiangle_mrad=semiangle_mrad)
    grid = slicing.grid
    depths = slicing.depths(thicknesses_angstrom)
    beam = optics.BeamSettings(
        energy_ev, semiangle_mrad, {}, (0.0, 0.0), specimen_tilt_mrad, aperture_edge
    )
    setup = dispatch.optical_setup(
        grid, beam, [], slicing.slice_thicknesses_angstrom, detector, xp=slicing.xp
    )
    total = np.zeros(())

    def propagate(configuration: int, slices: Slices, on_part: ProgressCallback) -> None:
        nonlocal total
        total = total + _average_of_slices(
            slices, setup, depths[slicing.snapshot_of(configuration)], every
        )

    slicing.average(propagate, lambda stage, done, all_: None)
    return np.asarray(total / slicing.configurations)


def _average_of_slices(
    slices: Slices,  # the specimen's transmission functions
    setup: dispatch.OpticalSetup,  # beam, propagators and detector
    depths: Sequence[int],  # numbers of slices up to each thickness
    every: tuple[int, int],  # as for `position_averaged`
) -> npt.NDArray[np.float64]:
    """Returns the position-averaged patterns of slices, (depths, dy, dx); see
    `position_averaged`.
    """
    grid = setup.grid
    binning = setup.binning
    assert binning
    weights = optics.aperture(grid, setup.beam).ravel() ** 2
    chosen = np.flatnonzero(weights)[every[1] :: every[0]]
    if not len(chosen):
        raise InputError(
            f"every is {every}, and the aperture has {np.count_nonzero(weights)} plane waves: take "
            "fewer"
        )
    weights = weights[chosen] / weights[chosen].sum()
    pixels = np.flatnonzero(np.fft.fftshift(prism.detected_pixels(setup.fresnel, binning)))
    places = np.fft.fftshift(np.arange(grid.shape[0] * grid.shape[1]).reshape(grid.shape)).ravel()[
        pixels
    ]
    plane_waves = setup.implementation.plane_waves(grid, slices, setup.propagators)
    size = waves_per_batch(setup.fresnel)
    # their sum depends on no order of threads
    parts = np.zeros((-(-len(chosen) // size), len(depths), len(pixels)))

    def work(batch: slice) -> None:
        waves = to_host(plane_waves.exit_waves(chosen[batch], depths, places))
        parts[batch.start // size] = np.einsum(
            "b,mbp->mp", weights[batch], waves.real**2 + waves.imag**2
        )

    run_in_batches(work, len(chosen), size, setup.xp is np, lambda done, total: None)
    patterns = np.zeros((len(depths), grid.shape[0] * grid.shape[1]))
    patterns[:, pixels] = parts.sum(axis=0)
    rows, columns = (to_host(matrix) for matrix in binning)
    return np.asarray(bin_patterns(patterns.reshape(-1, *grid.shape), (rows, columns)))
