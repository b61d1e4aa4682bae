"""The simplest zone axes of a crystal that no symmetry of it relates.

Equivalent axes give the same specimen, turned or mirrored: [100] and [001] of a cubic crystal, [011] and [111] of many
hexagonal ones. An axis and its opposite count as equivalent too, because both give the same projected density.
"""

import itertools
import math

import ase
import numpy as np

from namsa.crystals.symmetry import rotations

LARGEST_INDEX = 4

ZoneAxis = tuple[int, int, int]


def simplest_zone_axes(atoms: ase.Atoms, count: int) -> tuple[ZoneAxis, ...]:
    """Returns `count` zone axes of a crystal, those with the smallest indices first.

    Args:
        atoms: The crystal, to whose cell the indices refer.
        count: Number of axes, at most 20: a cubic crystal has 21 different ones with indices up to 4.
            Of a crystal whose symmetry is not searched for, no axes are related but opposite ones.
    """
    own = rotations(atoms)
    axes: list[ZoneAxis] = []
    equivalent: set[ZoneAxis] = set()
    for axis in _candidates():
        if axis not in equivalent:
            axes.append(axis)
            images = own @ np.array(axis)
            equivalent.update(map(tuple, np.concatenate([images, -images]).tolist()))
        if len(axes) == count:
            break
    return tuple(axes)


def _candidates() -> list[ZoneAxis]:
    """Axes without common factors, the simplest first: small indices, then few negative ones, then [001] and [011]."""
    indices = range(-LARGEST_INDEX, LARGEST_INDEX + 1)
    axes = [(u, v, w) for u, v, w in itertools.product(indices, indices, indices) if math.gcd(u, v, w) == 1]
    return sorted(axes, key=lambda axis: (sum(i * i for i in axis), sum(i < 0 for i in axis), axis))
