"""A few atoms without symmetry in a cell that is not square, on which waves are tested."""

import ase

CELL = (9.0, 7.5, 12.0)  # x, y, z


def molecule() -> ase.Atoms:
    """Returns the atoms in the periodic cell."""
    return ase.Atoms(
        "CNOSi",
        positions=[(2.0, 3.0, 0.5), (5.5, 1.2, 4.5), (7.0, 6.1, 6.5), (3.1, 5.2, 10.5)],
        cell=CELL,
        pbc=True,
    )
