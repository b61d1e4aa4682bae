"""Finite projection: a slice holds what lies between its faces, of atoms inside it and of their neighbours.

The infinite projection puts a whole atom into the slice of its nucleus. Here each face between two slices moves what
lies beyond it, f_j(k; |z_j − z|) of an atom at z_j in closed form (`form_factors.electron_beyond`), from the slice of
the nucleus to the slice on its other side. Nothing is moved out of the cell, so that what reaches over the entrance or
the exit stays in the first or last slice, and no further than where less than `REMAINDER` of an atom is left: the
slices sum to the infinite projection.

Displaced atoms all have their own heights, but as a function of k and height f_j is smooth: within a shell of heights
it is Σ_r f_j(k; z_r) w_r(z), r few, to `TOLERANCE` of f_j(k). So one structure sum with weights w_r serves each z_r,
and only up to the k that still reaches the shell, since f_j falls about as exp(−2πk|z_j − z|).
"""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.interpolate
import scipy.linalg

from namsa.physics import potential
from namsa.physics.form_factors import Table, electron, electron_beyond
from namsa.physics.grid import Array, Grid
from namsa.physics.potential import AtomList

REMAINDER = 1e-3
TOLERANCE = 1e-5
SHELLS_ANGSTROM = (0.0, 0.25, 1.0)  # lower ends: near a face atoms are few, far from it frequencies are
_FREQUENCIES, _HEIGHTS = 128, 257  # that a shell's expansion is made from


@dataclass(frozen=True)
class Shell:
    """An element's expansion at distances `nearest` <= |z| < `farthest` from a face.

    parts: (r, n_ky, n_kx), f(k; z_r) on the quadrant's lowest frequencies, Å; weights: |z| (n,) -> (n, r)
    """

    number: int
    nearest: float
    farthest: float
    parts: Array
    weights: scipy.interpolate.CubicSpline


def reach_angstrom(number: int, table: Table) -> float:
    """How far from its nucleus along the beam more than `REMAINDER` of an element's potential lies."""
    z = np.arange(0.1, 20, 0.1)
    remainders = 2 * electron_beyond(number, 0.0, z, table)
    return float(z[np.argmax(remainders < REMAINDER * electron(number, 0.0, table))])


def faces(
    atoms: AtomList, depth_angstrom: float, n_slices: int, table: Table
) -> tuple[list[AtomList], npt.NDArray[np.int64]]:
    """The faces that differ in the atoms that reach over them, z from the face, and which of them the n + 1 are.

    The cell's own two faces have none.
    """
    reach = {int(number): reach_angstrom(int(number), table) for number in np.unique(atoms.numbers)}
    of_atom = np.array([reach[int(number)] for number in atoms.numbers])
    edge, thickness = potential.EDGE_ANGSTROM, depth_angstrom / n_slices
    z = (atoms.z + edge) % depth_angstrom - edge
    found = [atoms[:0]]
    for i in range(1, n_slices):
        from_face = z - i * thickness
        near = np.abs(from_face) < of_atom
        found.append(AtomList(atoms.numbers[near], atoms.yx[near], from_face[near], atoms.occupancies[near]))
    return potential.find_distinct([*found, atoms[:0]])


def shells(number: int, grid: Grid, table: Table, dtype: npt.DTypeLike, xp: Any) -> list[Shell]:
    """An element's expansions, from the face to its reach."""
    reach = reach_angstrom(number, table)
    ends = [*(end for end in SHELLS_ANGSTROM if end < reach), reach]
    return [_shell(number, *pair, grid, table, dtype, xp) for pair in itertools.pairwise(ends)]


def _shell(
    number: int, nearest: float, farthest: float, grid: Grid, table: Table, dtype: npt.DTypeLike, xp: Any
) -> Shell:
    """Heights are chosen one after another, each where the ones before it are worst (QR with pivoting), weights by
    least squares in k, until what is left is below `TOLERANCE`."""
    ky, kx = potential.quadrant_frequencies(grid)
    k = np.hypot(ky.max(), kx.max()) * np.linspace(0, 1, 4 * _FREQUENCIES) ** 2
    left = electron_beyond(number, k**2, nearest, table) > TOLERANCE * electron(number, k**2, table)
    k = k[np.flatnonzero(left).max()] * np.linspace(0, 1, _FREQUENCIES)[:, None] ** 2
    counts = tuple(int(np.searchsorted(axis.ravel(), k.max(), side="right")) for axis in (ky, kx))
    z = np.linspace(nearest, farthest, _HEIGHTS)
    share = electron_beyond(number, k**2, z, table) / electron(number, k**2, table)
    _, r, pivots = scipy.linalg.qr(share, mode="economic", pivoting=True)
    rank = 1 + int(np.argmax(np.abs(np.diag(r)) < TOLERANCE * np.sqrt(_FREQUENCIES)))
    heights = pivots[:rank]
    weights = np.linalg.lstsq(share[:, heights], share, rcond=None)[0]
    squared_k = xp.asarray((ky**2 + kx**2)[: counts[0], : counts[1]])
    parts = xp.stack([electron_beyond(number, squared_k, float(z[height]), table) for height in heights])
    return Shell(number, nearest, farthest, parts.astype(dtype), scipy.interpolate.CubicSpline(z, weights.T))


def moved_across_face(atoms: AtomList, expansions: list[Shell], grid: Grid, dtype: npt.DTypeLike, xp: Any) -> Array:
    """Σ_j o_j f_j of what the atoms of a face have beyond it, as `potential.weighted_sum`: to be taken from the slice that
    the face begins and given to the one that it ends."""
    hy, hx = (n // 2 + 1 for n in grid.shape)
    total = xp.zeros((2, hy, 2, hx), dtype)
    ends_behind = np.where(atoms.z < -potential.EDGE_ANGSTROM, -1.0, 1.0) * atoms.occupancies
    distance = np.abs(atoms.z)
    for shell in expansions:
        mine = (atoms.numbers == shell.number) & (shell.nearest <= distance) & (distance < shell.farthest)
        if not mine.any():
            continue
        ny, nx = shell.parts.shape[1:]
        along_y, along_x = potential.phase_factors(atoms.yx[mine], grid, xp, dtype, (ny, nx))
        weights = xp.asarray((shell.weights(distance[mine]) * ends_behind[mine, None]).astype(dtype))
        for weight, part in zip(weights.T, shell.parts, strict=True):
            total[:, :ny, :, :nx] += part[:, None] * potential.sum_products(along_y * weight[:, None, None], along_x)
    return potential.merge_nyquist(total, grid)
