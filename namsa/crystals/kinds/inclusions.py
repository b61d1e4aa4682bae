"""Inclusions: a cylinder along the beam, in the middle of a crystal, of the same or of another
crystal.

A grain is the same crystal with another of its directions along the beam; a precipitate is another
crystal with the same indices along the beam. Both are turned about the beam by an angle that is
drawn, so that they fit neither along the beam nor across it. Atoms of the matrix that overlap with
those of the inclusion are left out, and nothing is strained or relaxed.
"""

from itertools import product

import ase
import numpy as np

from namsa.base.arrays import Floats
from namsa.base.errors import InputError
from namsa.crystals.kinds.draws import Draws
from namsa.crystals.kinds.overlaps import join, pair_distances, wrapped

# of which one along the beam is drawn that the matrix does not have
GRAIN_AXES = ((0, 0, 1), (1, 1, 0), (1, 1, 1))
PART = "part"  # array of the atoms: 0 in the matrix, 1 in the inclusion or the second half


def grain(
    crystal: ase.Atoms, atoms: ase.Atoms, zone_axis: tuple[int, int, int], draws: Draws
) -> ase.Atoms:
    """Replaces a cylinder of the crystal by a grain of another orientation.

    Parameters: `zone_axis` of the grain (of `GRAIN_AXES`, as a list), and those of `precipitate`.
    """
    others = [list(axis) for axis in GRAIN_AXES if np.cross(axis, zone_axis).any()]
    u, v, w = draws.choice("zone_axis", others)
    return _replaced(crystal, atoms, crystal, (u, v, w), draws)


def precipitate(
    crystal: ase.Atoms,
    atoms: ase.Atoms,
    partner: ase.Atoms,
    zone_axis: tuple[int, int, int],
    draws: Draws,
) -> ase.Atoms:
    """Replaces a cylinder of the crystal by a partner.

    Parameters: `diameter` (part of the cell's shorter side, drawn from 0.3 to 0.6), `place_y` and
    `place_x` of its middle (as parts of the cell), `angle_deg` about the beam.
    """
    return _replaced(crystal, atoms, partner, zone_axis, draws)


def _replaced(
    crystal: ase.Atoms,
    atoms: ase.Atoms,
    other: ase.Atoms,
    zone_axis: tuple[int, int, int],
    draws: Draws,
) -> ase.Atoms:
    """Returns the atoms with a cylinder of another crystal in place of their own."""
    sides = np.asarray(atoms.cell.lengths())
    radius = 0.5 * draws.uniform("diameter", (0.3, 0.6), (0.0, 0.8)) * float(sides[:2].min())
    y, x = (draws.uniform(f"place_{name}", (0.0, 1.0), (0.0, 1.0)) for name in "yx")
    angle = np.deg2rad(draws.uniform("angle_deg", (0.0, 360.0), (-360.0, 360.0)))
    middle = np.array([x, y]) * sides[:2]
    offset = wrapped(atoms.positions, sides)[:, :2] - middle
    offset -= sides[:2] * np.round(offset / sides[:2])
    matrix = atoms[np.hypot(*offset.T) > radius]
    added = _cylinder(other, zone_axis, radius, float(sides[2]), float(angle), draws.rng)
    added.positions[:, :2] += middle
    added.positions = wrapped(added.positions, sides)
    added.set_cell(sides)
    added.pbc = True
    added.set_array(PART, np.ones(len(added), np.int64))
    distances = pair_distances([crystal, other])
    # the cell is periodic, and the inclusion does not fit along the beam
    lower = added.positions[:, 2] < sides[2] / 2
    inclusion = join(added[lower], added[~lower], distances)
    if not (len(matrix) and len(inclusion)):
        raise InputError(
            f"an inclusion with a radius of {radius:.2g} Å has no atom: make lateral_angstrom "
            "larger"
        )
    return join(inclusion, matrix, distances)


def _cylinder(
    crystal: ase.Atoms,  # the crystal
    zone_axis: tuple[int, int, int],  # its direction along z
    radius: float,  # of the cylinder, Å
    thickness: float,  # its length, Å
    angle: float,  # by which the crystal is turned about z, rad
    rng: np.random.Generator,
) -> ase.Atoms:
    """Returns a crystal's atoms in a cylinder about the z axis, from z = 0, at an origin that is
    drawn.
    """
    cell = np.asarray(crystal.cell, dtype=np.float64) @ _frame(
        np.asarray(crystal.cell), zone_axis, angle
    )
    ends = np.array(
        list(product((-radius, radius), (-radius, radius), (0.0, thickness)))
    ) @ np.linalg.inv(cell)
    ranges = [
        np.arange(low, high + 1)
        for low, high in zip(
            np.floor(ends.min(axis=0)) - 2, np.ceil(ends.max(axis=0)) + 1, strict=True
        )
    ]
    shifts = np.stack(np.meshgrid(*ranges, indexing="ij"), axis=-1).reshape(-1, 1, 3) + rng.random(
        3
    )
    positions = np.round((crystal.get_scaled_positions() + shifts) @ cell, 9).reshape(-1, 3)
    inside = (
        (np.hypot(*positions[:, :2].T) <= radius)
        & (positions[:, 2] >= 0)
        & (positions[:, 2] < thickness)
    )
    chosen = np.flatnonzero(inside)
    site = crystal[chosen % len(crystal)]
    site.positions = positions[chosen]
    return site


def _frame(cell: Floats, zone_axis: tuple[int, int, int], angle: float) -> Floats:
    """Returns what turns row vectors so that a direction of the crystal is along z, then about z by
    an angle.
    """
    beam = np.asarray(zone_axis) @ cell
    beam = beam / np.linalg.norm(beam)
    across = cell - (cell @ beam)[:, None] * beam
    in_plane = across[int(np.argmax(np.round(np.linalg.norm(across, axis=1), 6)))]
    in_plane = in_plane / np.linalg.norm(in_plane)
    axes = np.stack([in_plane, np.cross(beam, in_plane), beam], axis=1)
    turned = [[np.cos(angle), np.sin(angle), 0], [-np.sin(angle), np.cos(angle), 0], [0, 0, 1]]
    return np.asarray(axes @ np.array(turned))
