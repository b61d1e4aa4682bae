"""Finite projection: a slice holds what lies between its faces, of the atoms in it and of their
neighbours.

The infinite projection puts a whole atom into the slice of its nucleus. In the finite projection,
each face between two slices moves the part of an atom that lies beyond it, f_j(k; |z_j − z|) of an
atom at z_j in closed form (`form_factors.electron_beyond`), from the slice of the nucleus to the
slice on the other side. Nothing is moved out of the cell: parts that reach beyond the entrance or
the exit stay in the first or last slice. Nothing is moved farther than where less than `REMAINDER`
of an atom is left. The slices sum to the infinite projection.

Displaced atoms all have different heights, but f_j is a smooth function of k and height. Within a
shell of heights it is Σ_r f_j(k; z_r) w_r(z) with few r, to `TOLERANCE` of f_j(k). One structure
sum with weights w_r serves each z_r, and only up to the k that still reaches the shell, because f_j
falls approximately as exp(−2πk|z_j − z|).
"""

import itertools
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import numpy.typing as npt
import scipy.interpolate
import scipy.linalg

from namsa.base.arrays import Floats, Integers
from namsa.physics import potential
from namsa.physics.form_factors import Table, electron, electron_beyond
from namsa.physics.grid import Array, Grid
from namsa.physics.potential import AtomList
from namsa.physics.slice_plan import EDGE_ANGSTROM

REMAINDER = 1e-3
TOLERANCE = 1e-5
# lower ends: few atoms are near a face, and few frequencies reach far from it
SHELLS_ANGSTROM = (0.0, 0.25, 1.0)
# samples of the function that a shell expands
_FREQUENCIES = 128
_HEIGHTS = 257


@dataclass(frozen=True)
class Shell:
    """The expansion of an element at distances `nearest` <= |z| < `farthest` from a face."""

    number: int  # atomic number
    nearest: float  # smallest distance, Å
    farthest: float  # largest distance, Å
    parts: Array  # f(k; z_r) at the lowest frequencies of the quadrant, (r, n_ky, n_kx), Å
    weights: scipy.interpolate.CubicSpline  # function from distances (n,) to weights (n, r)


def reach_angstrom(atomic_number: int, table: Table) -> float:
    """Returns the distance from the nucleus along the beam beyond which less than `REMAINDER` of an
    atom lies, Å.
    """
    z = np.arange(0.1, 20, 0.1)
    remainders = 2 * electron_beyond(atomic_number, 0.0, z, table)
    return float(z[np.argmax(remainders < REMAINDER * electron(atomic_number, 0.0, table))])


def faces(atoms: AtomList, faces_angstrom: Floats, table: Table) -> tuple[list[AtomList], Integers]:
    """Returns the atoms that reach across each face between slices.

    No atom is moved across the two faces of the cell.

    Args:
        faces_angstrom: Heights of all faces (n_slices + 1,), ascending, Å.

    Returns:
        The faces that differ in these atoms, with heights relative to the face, and the index of
        each of the n_slices + 1 faces among them.
    """
    elements, element_of_atom = np.unique(atoms.numbers, return_inverse=True)
    reach = np.array([reach_angstrom(int(element), table) for element in elements])
    reach_of_atom = reach[element_of_atom]
    lists = [atoms[:0]]
    for face in faces_angstrom[1:-1].tolist():
        from_face = atoms.z - face
        near = np.abs(from_face) < reach_of_atom
        lists.append(
            AtomList(atoms.numbers[near], atoms.yx[near], from_face[near], atoms.occupancies[near])
        )
    return potential.find_distinct([*lists, atoms[:0]])


def shells(
    atomic_number: int, grid: Grid, table: Table, dtype: npt.DTypeLike, xp: ModuleType
) -> list[Shell]:
    """Returns the expansions of an element from the face to its reach; arguments as
    `specimen.build`.
    """
    reach = reach_angstrom(atomic_number, table)
    ends = [end for end in SHELLS_ANGSTROM if end < reach]
    ends.append(reach)
    expansions = []
    for nearest, farthest in itertools.pairwise(ends):
        expansions.append(_shell(atomic_number, nearest, farthest, grid, table, dtype, xp))
    return expansions


def _shell(
    atomic_number: int,
    nearest: float,
    farthest: float,
    grid: Grid,
    table: Table,
    dtype: npt.DTypeLike,
    xp: ModuleType,
) -> Shell:
    """Returns one expansion with an error below `TOLERANCE`.

    Each height is chosen where the expansion by the previous heights is worst (QR with pivoting).
    Weights follow by least squares in k.
    """
    ky, kx = potential.quadrant_frequencies(grid)
    k = np.hypot(ky.max(), kx.max()) * np.linspace(0, 1, 4 * _FREQUENCIES) ** 2
    significant = electron_beyond(atomic_number, k**2, nearest, table) > TOLERANCE * electron(
        atomic_number, k**2, table
    )
    k = k[np.flatnonzero(significant).max()] * np.linspace(0, 1, _FREQUENCIES)[:, None] ** 2
    ny = int(np.searchsorted(ky.ravel(), k.max(), side="right"))
    nx = int(np.searchsorted(kx.ravel(), k.max(), side="right"))
    z = np.linspace(nearest, farthest, _HEIGHTS)
    share = electron_beyond(atomic_number, k**2, z, table) / electron(atomic_number, k**2, table)
    _, r, pivots = scipy.linalg.qr(share, mode="economic", pivoting=True)
    rank = 1 + int(np.argmax(np.abs(np.diag(r)) < TOLERANCE * np.sqrt(_FREQUENCIES)))
    heights = pivots[:rank]
    weights = np.linalg.lstsq(share[:, heights], share, rcond=None)[0]
    squared_k = xp.asarray((ky**2 + kx**2)[:ny, :nx])
    beyond = [
        electron_beyond(atomic_number, squared_k, height, table) for height in z[heights].tolist()
    ]
    parts = xp.stack(beyond).astype(dtype)
    weights_of_height = scipy.interpolate.CubicSpline(z, weights.T)
    return Shell(atomic_number, nearest, farthest, parts, weights_of_height)


def moved_across_face(
    atoms: AtomList, expansions: list[Shell], grid: Grid, dtype: npt.DTypeLike, xp: ModuleType
) -> Array:
    """Returns Σ_j o_j f_j of the parts of atoms beyond a face: the sum in the layout of
    `potential.weighted_sum`.

    The result is subtracted from the slice that begins at the face and added to the slice that ends
    there.

    Args:
        atoms: The atoms that reach across the face, with heights relative to it.
    """
    hy, hx = (n // 2 + 1 for n in grid.shape)
    total = xp.zeros((2, hy, 2, hx), dtype)
    signed_occupancies = np.where(atoms.z < -EDGE_ANGSTROM, -1.0, 1.0) * atoms.occupancies
    distance = np.abs(atoms.z)
    for shell in expansions:
        in_shell = (
            (atoms.numbers == shell.number)
            & (shell.nearest <= distance)
            & (distance < shell.farthest)
        )
        if not in_shell.any():
            continue
        ny, nx = shell.parts.shape[1:]
        along_y, along_x = potential.phase_factors(atoms.yx[in_shell], grid, xp, dtype, (ny, nx))
        weights = xp.asarray(
            (shell.weights(distance[in_shell]) * signed_occupancies[in_shell, None]).astype(dtype)
        )
        for weight, component in zip(weights.T, shell.parts, strict=True):
            total[:, :ny, :, :nx] += component[:, None] * potential.sum_products(
                along_y * weight[:, None, None], along_x
            )
    return potential.merge_nyquist(total, grid)
