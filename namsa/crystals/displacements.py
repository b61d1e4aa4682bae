"""Thermal displacements of atoms, in Einstein's model. `namsa.crystals.sites` describes the arrays
that hold them.
"""

from typing import Literal

import ase
import numpy as np

from namsa.base.arrays import Floats
from namsa.base.errors import InputError
from namsa.crystals.sites import SAME_SITE, TENSOR, box_lengths, clusters, occupancies, pairs_within


def displace_atoms(
    atoms: ase.Atoms,
    rms_angstrom: float | dict[str, float] | Literal["cif"],
    rng: np.random.Generator,
) -> ase.Atoms:
    """Displaces atoms thermally in Einstein's model, by independent normal deviates.

    The atoms of a mixed site move together, by the occupancy-weighted mean square of its elements.
    With "cif" an atom that has a tensor moves by this: its deviates are those of the ellipsoid.

    Args:
        rms_angstrom: Root mean square displacement along one axis, Å, for all elements or for each
            by symbol; "cif" for each atom's own, as its CIF gave it.

    Returns:
        A copy with displaced positions, which wrap across the beam. Along the beam atoms may leave
        the cell.

    Raises:
        InputError: If an element has no value, or a value is not a length.
    """
    rms = amplitudes(atoms, rms_angstrom)
    if not len(atoms):
        return atoms
    site = clusters(len(atoms), pairs_within(atoms, SAME_SITE)[0])
    weight = occupancies(atoms)
    mean_square = np.bincount(site, weight * rms**2) / np.bincount(site, weight)
    deviates = rng.standard_normal((len(mean_square), 3))
    displacements = deviates * np.sqrt(mean_square)[:, None]
    if rms_angstrom == "cif" and TENSOR in atoms.arrays:
        own_amplitudes = np.where(
            np.isfinite(atoms.arrays[TENSOR]),
            atoms.arrays[TENSOR],
            rms[:, None, None] ** 2 * np.eye(3),
        )
        tensors = np.zeros((len(mean_square), 3, 3))
        np.add.at(
            tensors,
            site,
            (weight / np.bincount(site, weight)[site])[:, None, None] * own_amplitudes,
        )
        values, axes = np.linalg.eigh(tensors)
        along = np.einsum("sji,sj->si", axes, deviates) * np.sqrt(np.maximum(values, 0))
        displacements = np.einsum("sij,sj->si", axes, along)
    displaced = atoms.copy()
    displaced.positions += displacements[site]
    displaced.positions[:, :2] = _wrap(displaced.positions[:, :2], box_lengths(atoms)[:2])
    return displaced


def isotropic(atoms: ase.Atoms) -> ase.Atoms:
    """Returns atoms whose displacements have no tensors, and their equivalent amplitudes in place
    of them.
    """
    if TENSOR not in atoms.arrays:
        return atoms
    rms = amplitudes(atoms, "cif", complete=False)
    equivalent = atoms.copy()
    del equivalent.arrays[TENSOR]
    equivalent.arrays["rms_displacement_angstrom"] = rms
    return equivalent


def amplitudes(
    atoms: ase.Atoms, rms_angstrom: float | dict[str, float] | Literal["cif"], complete: bool = True
) -> Floats:
    """Returns the root mean square displacement of each atom along one axis, `(n,)`, Å.

    Args:
        complete: Whether each atom must have one. If not, it is NaN for those without.

    Raises:
        InputError: If an element has no value, or a value is not a length.
    """
    if rms_angstrom == "cif":
        rms = _file_amplitudes(atoms)
        if not complete:
            return rms
        _check_complete(atoms, rms)
    elif isinstance(rms_angstrom, dict):
        symbols = atoms.get_chemical_symbols()
        missing = sorted(set(symbols) - set(rms_angstrom))
        if missing:
            raise InputError(
                f"no displacement is given for {', '.join(missing)}, only for "
                f"{', '.join(rms_angstrom)}"
            )
        rms = np.array([rms_angstrom[symbol] for symbol in symbols])
    else:
        rms = np.full(len(atoms), rms_angstrom)
    if not np.all((rms >= 0) & np.isfinite(rms)):
        raise InputError(
            f"rms_angstrom is {rms_angstrom}; displacements are lengths of 0 Å or more"
        )
    return np.asarray(rms, dtype=np.float64)


def _file_amplitudes(atoms: ase.Atoms) -> Floats:
    """Returns the displacements that the crystal's file gives; NaN where it gives none."""
    nothing = np.full(len(atoms), np.nan)
    rms = np.asarray(atoms.arrays.get("rms_displacement_angstrom", nothing), dtype=np.float64)
    if TENSOR in atoms.arrays:
        equivalent = np.sqrt(np.trace(atoms.arrays[TENSOR], axis1=1, axis2=2) / 3)
        rms = np.where(np.isnan(equivalent), rms, equivalent)
    return rms


def _check_complete(atoms: ase.Atoms, rms: Floats) -> None:
    """Raises InputError if the crystal's file gives no displacement of an atom."""
    unknown = sorted(set(atoms[np.isnan(rms)].get_chemical_symbols()))
    if unknown:
        raise InputError(
            "the crystal's file gives no thermal displacement (U or B) for "
            f"{', '.join(unknown)}: give frozen_phonons.rms_angstrom as lengths in place of cif, "
            "or complete the file"
        )


def _wrap(positions: Floats, box: Floats) -> Floats:
    """Positions in [0, side) of sides above 0: the remainder alone can round up to the side
    itself.
    """
    wrapped = np.where(box > 0, positions % np.where(box > 0, box, 1), positions)
    return np.where((box > 0) & (wrapped >= box), 0.0, wrapped)
