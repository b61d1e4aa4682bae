"""How much of a density there is, and how thick the specimen is, by the mean pattern of its scan.

A network sees where atoms are; how many electrons they have it knows less well. The pattern that is averaged over all
positions (PACBED) says how strongly the specimen scatters. Columns of atoms are made of the density
(`namsa.inverse.columns`) and simulated over two numbers: the mean electron density and the factor of the projected
density, the amount. The thickness follows from both. What is compared are sums over rings outside of the bright disk.
The disk itself says little about the amount, and depends on what the model leaves out.

The atoms of a column are evenly spaced along the beam, and displaced thermally across it. A column whose charge is
spread along the beam would not do: heavy atoms would scatter up to 1.4 times too much. Thermal displacements and the
tilt of the specimen change the rings as the amount does. Both are unknown within limits: simulated once each, and
taken as linear. The result is the mean over what agrees with the rings, with the network's own amount and with what
is known.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import ase
import numpy as np
from scipy.interpolate import RegularGridInterpolator

from namsa.arrays import Array, Floats
from namsa.config.instrument import Detector
from namsa.errors import InputError
from namsa.inverse.columns import Columns, average_over_lattice, find_columns, share_out
from namsa.pacbed import position_averaged
from namsa.physics.optics import BeamSettings, wavelength_angstrom
from namsa.physics.potential import AtomList
from namsa.pixels import PixelGrid

RINGS = 4
INNER_PIXELS, OUTER_SEMIANGLES = 1.33, 2.6  # edges of the rings: detector pixels beyond the disk, and at most
MODEL_ERROR = 0.1  # of a ring's sum, relative: so that stated errors of the scale hold for the columns of networks
NO_FORMULA_ERROR = 0.2  # the same, if the elements are not known
NETWORK_ERROR = 0.2  # rms of the logarithm of the amount that is expected of a network
ATOMS_PER_ANGSTROM3, ATOMS_ERROR = 0.065, 0.4  # number density of solids, rms of its logarithm
MORE_VIBRATION = 1.3  # times the displacement: the change of the rings is taken as proportional to its square
TILT_MRAD, TILT_AZIMUTH = 4.0, 0.6  # mrad, rad; of the specimen, to whose square the change is taken as proportional
TOLD = 0.15  # error of the amount's logarithm below which the rings are said to tell it

PART_ANGSTROM = 20.0  # side of a part of the scan in which columns are looked for, at most
CELL_ANGSTROM = (10.0, 15.0)  # sides of the cell in it that repeats best
PARTS, PLANE_WAVES = 4, 64  # at most, and of all parts
SLICE_ANGSTROM = 1.0
ACCURACY = 0.05  # that pixels are chosen for
AMOUNTS = np.geomspace(0.5, 2.0, 12)
DENSITIES = np.geomspace(0.45, 2.2, 5)  # in units of the expected one
_EDGES = 101  # places of a cell's edge that are tried
_FINE = (61, 61, 9, 7)  # points of the posterior: densities, amounts, displacements, tilts


@dataclass(frozen=True)
class Known:
    """What is known about a specimen before the fit."""

    composition: Mapping[int, float] | None = None  # number of atoms of each atomic number; `None` if not known
    thickness_angstrom: float | None = None  # `None` if not known
    thickness_error: float = 0.05  # relative
    vibration_angstrom: float = 0.075  # rms thermal displacement along one axis
    vibration_error_angstrom: float = 0.02

    def elements(self, electrons_per_angstrom3: float) -> Mapping[int, float]:
        """Returns the composition, or the element whose solid is expected to have a mean density."""
        return self.composition or {int(np.clip(round(electrons_per_angstrom3 / ATOMS_PER_ANGSTROM3), 3, 92)): 1.0}

    @property
    def electrons_per_angstrom3(self) -> float:
        """The mean electron density that is expected; without a composition, a middle one."""
        elements = self.composition or {18: 1.0}
        return ATOMS_PER_ANGSTROM3 * sum(z * n for z, n in elements.items()) / sum(elements.values())


class Amount(NamedTuple):
    """The amount of a density. Errors are standard deviations."""

    scale: float  # true density over the given one
    scale_error: float  # relative
    thickness_angstrom: float
    thickness_error: float  # relative
    vibration_angstrom: float
    misfit: float  # rms of the logarithm of simulated over measured rings where they agree best
    left: float  # of `Columns`
    told: bool  # whether the rings narrow the amount to `TOLD`

    def facts(self) -> dict[str, Any]:
        """Returns the numbers as a result's file holds them."""
        return self._asdict()

    def line(self) -> str:
        """Returns the line about the amount."""
        text = (
            f"pacbed: the density is {self.scale:.2f} times the network's, ± {100 * self.scale_error:.0f} %, and the "
            f"specimen {self.thickness_angstrom:.0f} Å thick, ± {100 * self.thickness_error:.0f} %; rings agree to "
            f"{100 * self.misfit:.0f} %"
        )
        return text if self.told else f"{text}. The rings do not determine the amount: the density is not scaled"


def ring_edges(semiangle_mrad: float, pixel_mrad: float, reach_mrad: float) -> Floats:
    """Returns the edges of the rings, mrad.

    Raises:
        InputError: If the detector ends too near to the bright disk.
    """
    inner, outer = semiangle_mrad + INNER_PIXELS * pixel_mrad, min(reach_mrad, OUTER_SEMIANGLES * semiangle_mrad)
    if outer < 1.3 * inner:
        raise InputError(
            f"the detector reaches {reach_mrad:.1f} mrad, and the rings outside of the bright disk begin at "
            f"{inner:.1f} mrad: pacbed needs a detector of {1.3 * inner:.1f} mrad or more"
        )
    return np.geomspace(inner, outer, RINGS + 1)


def ring_masks(pixels: PixelGrid, shape: tuple[int, int], edges: Floats) -> Floats:
    """Returns which pixels are in each ring, `(dy·dx, rings)`."""
    angle = pixels.distance(shape).ravel()
    return np.stack([(angle >= a) & (angle < b) for a, b in pairwise(edges)], axis=-1).astype(float)


@dataclass(frozen=True)
class Measurement:
    """How patterns were recorded, and what of them is compared."""

    beam: BeamSettings  # energy and semiangle
    detector: Detector  # with pixel_mrad and shape
    masks: Floats  # of the rings, from `ring_masks`
    max_q: float  # where the window of the density ends, 1/Å


class Part(NamedTuple):
    """The columns of a cell of the scan that repeats."""

    yx: Floats  # from the cell's corner on, `(n, 2)`, Å
    electrons: Floats  # `(n,)`
    extent: tuple[float, float]  # sides (y, x), Å
    density: float  # mean density, e/Å²
    rings: Floats  # measured ring sums, averaged over the cell, `(rings,)`
    left: float  # of `Columns`


def fit_amount(
    density: Array,  # `(sy, sx)`, e/Å², on the positions of the scan; NaN where it is not known
    rings: Array,  # sums of the patterns over the rings, `(sy, sx, rings)`, fractions of the beam
    pixels: PixelGrid,  # of both, Å
    measurement: Measurement,
    known: Known = Known(),
) -> Amount:
    """Fits amount and thickness.

    Raises:
        InputError: If the scan is too small or has no columns.
    """
    parts = find_parts(np.asarray(density, np.float64), np.asarray(rings, np.float64), pixels, measurement, known)
    measured = np.log(np.mean([part.rings for part in parts], axis=0))
    mean, middle = float(np.mean([part.density for part in parts])), known.electrons_per_angstrom3
    expected = middle * DENSITIES
    if known.thickness_angstrom:
        expected = mean / known.thickness_angstrom * np.geomspace(0.55, 1.8, len(DENSITIES))

    def simulated(c: float, vibration: float, tilt_mrad: float = 0.0) -> Floats:
        waves = -(-PLANE_WAVES // len(parts))
        each = [simulate(part, c, known, measurement, vibration, tilt_mrad, waves) for part in parts]
        return np.asarray(np.log(np.mean(each, axis=0)))

    u = known.vibration_angstrom
    table = np.stack([simulated(c, u) for c in expected])
    nearest = int(np.argmin(((table - measured) ** 2).sum(-1).min(-1)))
    by_vibration = simulated(expected[nearest], MORE_VIBRATION * u) - table[nearest]
    by_tilt = simulated(expected[nearest], u, TILT_MRAD) - table[nearest]
    posterior = _Posterior(np.log(expected), table, by_vibration, by_tilt)
    return posterior.amount(measured, mean, known, float(np.mean([part.left for part in parts])))


def find_parts(density: Floats, rings: Floats, pixels: PixelGrid, measurement: Measurement, known: Known) -> list[Part]:
    """Returns cells of the scan with their columns. Arguments and errors as `fit_amount`."""
    pixel, energy_ev = measurement.detector.pixel_mrad or 1.0, measurement.beam.energy_ev
    least = max(CELL_ANGSTROM[0], 1e3 * wavelength_angstrom(energy_ev) / pixel)  # reciprocal pixels are finer
    window = [min(n, round(PART_ANGSTROM / step)) for n, step in zip(density.shape, pixels.step, strict=True)]
    counts = [max(1, min(2, n // size)) for n, size in zip(density.shape, window, strict=True)]
    grid, elements = PixelGrid(pixels.step, (0.0, 0.0)), known.elements(known.electrons_per_angstrom3)
    parts = []
    for index in np.ndindex(*counts):
        room = [
            (i + 0.5) / count * (n - size)
            for i, count, n, size in zip(index, counts, density.shape, window, strict=True)
        ]
        view = tuple(slice(int(at), int(at) + size) for at, size in zip(room, window, strict=True))
        if np.isfinite(density[view]).all() and density[view].std():
            image = average_over_lattice(density[view], grid)
            columns = find_columns(image, grid, elements, measurement.max_q, known.vibration_angstrom)
            parts.append(_cell(image, rings[view], grid, columns, least))
    parts = [part for part in parts if len(part.electrons) and (part.rings > 0).all()]
    if not parts:
        raise InputError("pacbed: no part of the density has columns of atoms, which the amount is measured from")
    return parts


def _cell(image: Floats, rings: Floats, grid: PixelGrid, columns: Columns, least: float) -> Part:
    """Returns the part of an image that repeats best along both axes.

    Its edges are where columns are farthest from both, so that a column at an edge is not counted twice or left out.
    """
    first, extent, view = np.empty(2), np.empty(2), []
    for axis, (n, step) in enumerate(zip(image.shape, grid.step, strict=True)):
        extent[axis] = step * _period(np.moveaxis(image, axis, 0), least / step, step)
        edges = step * (np.linspace(0, n - extent[axis] / step, _EDGES) - 0.5)
        both = np.stack([edges, edges + extent[axis]])[..., None]
        first[axis] = edges[np.abs(both - columns.yx[:, axis]).min(axis=(0, 2), initial=np.inf).argmax()]
        corner = int(np.ceil(first[axis] / step))
        view.append(slice(max(corner, 0), corner + round(extent[axis] / step)))
    inside = np.all((columns.yx >= first) & (columns.yx < first + extent), axis=1)
    own = columns.electrons[inside]
    density = float(own.sum() / extent.prod())  # of the columns: a network's background is no atoms
    mean = np.nanmean(rings[tuple(view)], axis=(0, 1))
    return Part(columns.yx[inside] - first, own, (float(extent[0]), float(extent[1])), density, mean, columns.left)


def _period(lines: Floats, least: float, step: float) -> float:
    """Returns the distance along the first axis at which an image repeats best, in pixels; `least` is the smallest.

    Raises:
        InputError: If the image is too small.
    """
    n, low = len(lines), int(np.ceil(least))
    if n < low:
        raise InputError(f"the scan is {n * step:.1f} Å wide, and pacbed needs {least * step:.1f} Å or more")
    high = min(n - 4, round(max(CELL_ANGSTROM[1] / step, 1.3 * least)))
    misfit = {k: float(np.mean((lines[k:] - lines[:-k]) ** 2)) for k in range(low - 1, high + 2)}
    best = min(range(low, high + 1), key=lambda k: misfit[k], default=low)
    around = [misfit.get(k, np.inf) for k in (best - 1, best, best + 1)]
    curvature = around[0] - 2 * around[1] + around[2]
    if not np.isfinite(curvature) or around[1] > min(around):
        return float(best)
    return best + 0.5 * (around[0] - around[2]) / curvature if curvature else float(best)


def simulate(
    part: Part,
    electrons_per_angstrom3: float,  # mean electron density of the specimen
    known: Known,
    measurement: Measurement,
    vibration: float,  # rms displacement, Å
    tilt_mrad: float = 0.0,  # of the specimen
    waves: int = PLANE_WAVES,  # plane waves of the aperture that stand for all
) -> Floats:
    """Returns the ring sums of a part at each of `AMOUNTS`, `(amounts, rings)`."""
    beam, detector = measurement.beam, measurement.detector
    thickness = AMOUNTS * part.density / electrons_per_angstrom3
    count = int(np.ceil(thickness[-1] / SLICE_ANGSTROM))
    scale, depth = electrons_per_angstrom3 / part.density, count * SLICE_ANGSTROM
    atoms = column_atoms(part, known.elements(electrons_per_angstrom3), scale, depth, vibration)
    positions = np.column_stack([atoms.yx[:, ::-1], atoms.z])
    cell = ase.Atoms(atoms.numbers, positions, cell=[*part.extent[::-1], depth], pbc=True)
    depths = np.unique(np.maximum(1, np.round(thickness / SLICE_ANGSTROM))).astype(int)
    aperture = np.pi * (1e-3 * beam.semiangle_mrad / beam.wavelength) ** 2 * np.prod(part.extent)
    every = max(1, int(aperture / waves))
    patterns = position_averaged(
        cell,
        energy_ev=beam.energy_ev,
        semiangle_mrad=beam.semiangle_mrad,
        detector=detector,
        thicknesses_angstrom=(depths * SLICE_ANGSTROM).tolist(),
        slice_thickness_angstrom=SLICE_ANGSTROM,
        accuracy=ACCURACY,
        specimen_tilt_mrad=(tilt_mrad * np.sin(TILT_AZIMUTH), tilt_mrad * np.cos(TILT_AZIMUTH)),
        every=(every, every // 2),
        overlaps=True,  # heights are random
    )
    sums, at = np.log(patterns.reshape(len(depths), -1) @ measurement.masks), np.log(depths * SLICE_ANGSTROM)
    return np.exp(np.stack([np.interp(np.log(thickness), at, each) for each in sums.T], axis=-1))


def column_atoms(
    part: Part,
    composition: Mapping[int, float],
    scale: float,  # electrons per Å of a column over its electrons
    depth: float,  # Å
    vibration: float,  # rms displacement, Å
) -> AtomList:
    """Returns atoms, evenly spaced in their column from a random height on.

    Elements of a column take turns in proportion to their numbers.
    """
    rng = np.random.default_rng(0)
    shares = share_out(part.electrons, composition)
    rates = np.stack([electrons * scale / number for number, electrons in shares.items()], axis=1)
    kinds = np.array(list(shares))
    numbers, places, heights = [], [], []
    for yx, own in zip(part.yx, rates, strict=True):
        whole = own.sum()
        z = np.arange(rng.random() / whole, depth, 1 / whole)
        turns = np.floor(np.multiply.outer(np.arange(len(z) + 1), np.cumsum(own) / whole) + rng.random())
        numbers.append(kinds[np.argmax(np.diff(turns, axis=0) > 0, axis=1)])
        places.append(yx + vibration * rng.standard_normal((len(z), 2)))
        heights.append(z)
    number, place, height = (np.concatenate(each) for each in (numbers, places, heights))
    return AtomList(number.astype(np.int64), place, height, np.ones(len(height)))


class _Posterior(NamedTuple):
    """What is simulated, from which the amounts that agree with measured rings follow."""

    log_densities: Floats  # logarithm of the mean electron densities, `(c,)`
    table: Floats  # logarithm of the rings, `(c, amounts, rings)`
    by_vibration: Floats  # what `MORE_VIBRATION` adds to it, `(amounts, rings)`
    by_tilt: Floats  # what `TILT_MRAD` adds to it, `(amounts, rings)`

    def amount(self, measured: Floats, mean: float, known: Known, left: float) -> Amount:
        """Returns means and deviations over the posterior.

        Args:
            measured: Logarithm of the rings, `(rings,)`.
            mean: Mean density, e/Å².
            known: What is known before.
            left: For the result.
        """
        log_a, log_c = np.log(AMOUNTS), self.log_densities
        c, a = (np.linspace(each[0], each[-1], n) for each, n in zip((log_c, log_a), _FINE, strict=False))
        rings = RegularGridInterpolator((log_c, log_a), self.table)(np.stack(np.meshgrid(c, a, indexing="ij"), axis=-1))
        by_u, by_tilt = (
            np.stack([np.interp(a, log_a, each) for each in change.T], axis=-1)[:, None, None]
            for change in (self.by_vibration, self.by_tilt)
        )
        deviate, tilt = np.linspace(-2, 2, _FINE[2]), np.linspace(0, 2, _FINE[3])  # the latter of its square
        u = np.maximum(known.vibration_angstrom + known.vibration_error_angstrom * deviate, 0)
        of_u = (u**2 / known.vibration_angstrom**2 - 1) / (MORE_VIBRATION**2 - 1)
        model = rings[:, :, None, None] + of_u[:, None, None] * by_u + tilt[:, None] * by_tilt
        square = ((model - measured) ** 2).sum(axis=-1)
        penalty = square / (MODEL_ERROR if known.composition else NO_FORMULA_ERROR) ** 2
        penalty += (a[:, None, None] / NETWORK_ERROR) ** 2 + deviate[:, None] ** 2 + tilt
        thickness = np.log(mean) + a - c[:, None]
        if known.thickness_angstrom:
            before = (thickness - np.log(known.thickness_angstrom)) / known.thickness_error
        else:
            before = (c[:, None] - np.log(known.electrons_per_angstrom3)) / ATOMS_ERROR
        penalty += (before**2)[..., None, None]
        weight = np.exp((penalty.min() - penalty) / 2)
        weight /= weight.sum()
        amounts, both = weight.sum(axis=(0, 2, 3)), weight.sum(axis=(2, 3))
        log_scale, log_t = float(amounts @ a), float((both * thickness).sum())
        error = float(np.sqrt(amounts @ (a - log_scale) ** 2))
        return Amount(
            float(np.exp(log_scale)),
            error,
            float(np.exp(log_t)),
            float(np.sqrt((both * (thickness - log_t) ** 2).sum())),
            float(weight.sum(axis=(0, 1, 3)) @ u),
            float(np.sqrt(square.ravel()[penalty.argmin()] / len(measured))),
            left,
            error < TOLD,
        )
