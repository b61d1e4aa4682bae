"""Electron densities of DFT codes: VASP's CHGCAR and AECCAR, and Gaussian cube files.

A density on a grid replaces the sum over independent atoms where the grid resolves it. Beyond the
grid's band limit the form factors of `namsa.physics.form_factors` complete it, and nuclei are
points. The potential follows by Mott–Bethe, as for the atoms: V(q) = C (Σ Z exp(−2πi q·r) − ρ(q)) /
(2π²a₀q²). It is determined up to its mean, which a wave does not see; the mean is that of the
independent atoms.

A density must hold all electrons. VASP's CHGCAR holds the valence only; AECCAR0 and AECCAR2
together hold all (LAECHG).
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import ase
import numpy as np
import numpy.typing as npt
from ase.data import chemical_symbols
from scipy.spatial import KDTree

from namsa.base.arrays import Array, Floats
from namsa.base.errors import InputError
from namsa.base.files import read_text
from namsa.base.memory import check_memory_for
from namsa.base.text import plural, shorten
from namsa.crystals.sites import check_cell, occupancies
from namsa.crystals.structure_files import parse_cube, parse_vasp
from namsa.physics.bonding import Bonding
from namsa.physics.form_factors import BOHR_RADIUS, Table, electron, xray
from namsa.physics.grid import Grid
from namsa.physics.potential import POTENTIAL_CONSTANT

Complexes = npt.NDArray[np.complex128]

LARGEST_FILE_BYTES = 2**30
LARGEST_POINTS = 2**27
SAME_CELL = 1e-3  # relative; the digits of files, not two values of a lattice constant
SAME_PLACE = 0.1  # Å; of a nucleus and an atom
# of the electrons; the potential of 0.3 % unbalanced charge is 2 % of an atom's at q = 0.2/Å
MISSING = 3e-3


@dataclass(frozen=True)
class ChargeDensity:
    """The electrons of a crystal on the points of a grid, in a right-angled cell.

    Attributes:
        density: Number density (nx, ny, nz), e/Å³; point [0, 0, 0] is the cell's origin.
        atoms: The nuclei, with the cell.
    """

    density: Floats
    atoms: ase.Atoms

    @property
    def electrons(self) -> float:
        """Electrons in the cell."""
        return float(self.density.mean() * self.atoms.cell.volume)

    def projected_density(self, grid: Grid, table: Table = "lobato") -> Floats:
        """Returns the electrons along z.

        Args:
            grid: The pixels over the cell, (ny, nx), with sides (b, a).
            table: Form factors beyond the band limit of the density's own grid.

        Returns:
            Projected density (ny, nx), e/Å². Its integral is the number of electrons.

        Raises:
            InputError: If the grid does not cover the cell.
        """
        return _field(self._electrons(grid, table), grid)

    def projected_potential(self, grid: Grid, table: Table = "lobato") -> Floats:
        """Returns the potential along z; arguments and errors as `projected_density`.

        Returns:
            Projected potential (ny, nx), V·Å.

        Raises:
            InputError: If electrons are missing, also: the potential would be that of ions.
        """
        self.check_complete()
        q2 = grid.squared_frequency()
        charge = _sum(self.atoms, grid, float) - self._electrons(grid, table)
        factor = np.divide(
            charge, 2 * np.pi**2 * BOHR_RADIUS * q2, out=np.zeros_like(charge), where=q2 > 0
        )
        factor[0, 0] = sum(
            float(electron(int(atomic_number), np.zeros(1), table)[0])
            for atomic_number in self.atoms.numbers
        )
        return POTENTIAL_CONSTANT * _field(factor, grid)

    def check_complete(self) -> None:
        """Raises InputError if electrons are missing."""
        total = int(self.atoms.numbers.sum())
        if abs(self.electrons - total) > MISSING * total:
            raise InputError(
                f"the density holds {self.electrons:.2f} electrons and its atoms have {total}: a "
                "potential needs all; of VASP give AECCAR0 and AECCAR2 (LAECHG = .TRUE.), on a "
                "grid (NGXF) that resolves the cores; CHGCAR has the valence alone"
            )

    def _electrons(self, grid: Grid, table: Table) -> Complexes:
        """Returns the Fourier coefficients of the electrons along z, (ny, nx): of the grid, beyond
        it of the atoms.
        """
        a, b, _ = self.atoms.cell.lengths()
        if not np.allclose(grid.extent_angstrom, (b, a), rtol=1e-4):  # the digits of files
            raise InputError(
                f"the grid covers {grid.extent_angstrom[0]:g} × {grid.extent_angstrom[1]:g} Å (y, "
                f"x), and the density's cell {b:g} × {a:g} Å: make them the same"
            )
        atoms = _sum(
            self.atoms,
            grid,
            lambda atomic_number: xray(atomic_number, grid.squared_frequency(), table),
        )
        along = self.density.mean(axis=2).T  # (ny, nx) of the density's grid
        coefficients = np.fft.fft2(along) * (self.atoms.cell.volume / along.size)
        # orders of the coefficients
        frequencies = [np.fft.fftfreq(n, 1 / n).astype(int) for n in grid.shape]
        rows, columns = (
            np.flatnonzero(2 * abs(order) < n)
            for order, n in zip(frequencies, along.shape, strict=True)
        )
        atoms[np.ix_(rows, columns)] = coefficients[
            np.ix_(frequencies[0][rows], frequencies[1][columns])
        ]
        return atoms


def read_charge_density(path: Path | str, *others: Path | str) -> ChargeDensity:
    """Reads an electron density, or the sum of several of one cell and grid, as AECCAR0 and
    AECCAR2.

    Args:
        path: A CHGCAR or AECCAR of VASP (by its name, or ending in .vasp), or a cube file in
            e/bohr³ (.cube, .cub).
        others: Files whose densities are added.

    Raises:
        InputError: If a file cannot be read, is no density, or has a cell that is not right-angled
            along x, y, z.

    Example:
        >>> from ase.io.cube import write_cube
        >>> with open("silicon.cube", "w") as file:
        ...     write_cube(file, bulk("Si", cubic=True), data=np.full((6, 6, 6), 0.1))
        >>> density = namsa.read_charge_density("silicon.cube")
        >>> density.density.shape, len(density.atoms)
        ((6, 6, 6), 8)
    """
    head_density, *rest = [_read(Path(file)) for file in (path, *others)]
    density = head_density.density
    for name, other in zip(others, rest, strict=True):
        if other.density.shape != density.shape or not np.allclose(
            other.atoms.cell, head_density.atoms.cell, atol=1e-4
        ):
            raise InputError(f"{name} has another grid or cell than {path}")
        density = density + other.density
    return ChargeDensity(density, head_density.atoms)


def bonding_of(density: ChargeDensity, snapshots: Sequence[ase.Atoms], table: Table) -> Bonding:
    """Returns what bonds change in a specimen: a density less its independent atoms, up to its band
    limit.

    Args:
        snapshots: The specimen without thermal displacements: this cell, repeated.
        table: Form factors of the independent atoms.

    Raises:
        InputError: If electrons are missing, or the specimen is not the density's cell, repeated.
        OutOfMemoryError: If the coefficients do not fit into memory.
    """
    density.check_complete()
    sides = snapshots[0].cell.lengths()
    repeats = _repeats(density, sides)
    cell = sides / repeats
    farthest = max(_check_nuclei(density.atoms, atoms, cell, repeats) for atoms in snapshots)
    points = density.density.shape
    check_memory_for(
        64 * density.density.size, f"a density on {_times(points)} points", "compute it on fewer"
    )
    change = _change_by_bonds(density, cell, table)
    digest = hashlib.sha256(np.ascontiguousarray(density.density).tobytes())
    digest.update(density.atoms.positions.tobytes() + density.atoms.numbers.tobytes())
    described = {
        "electrons_per_cell": round(density.electrons, 4),
        "points": list(points),
        "repeats": repeats.tolist(),
        "nuclei_to_atoms_angstrom": round(farthest, 4),
        "sha256": digest.hexdigest(),
    }
    a, b, c = cell.tolist()
    rx, ry, rz = repeats.tolist()
    return Bonding(
        np.ascontiguousarray(change.transpose(2, 1, 0)), (a, b, c), (rx, ry, rz), described
    )


def _repeats(density: ChargeDensity, sides: Floats) -> npt.NDArray[np.int64]:
    """Returns how many cells of a density a specimen of these sides (x, y, z), Å, has along each
    axis. Raises InputError if it has no whole number of them.
    """
    density_sides = density.atoms.cell.lengths()
    repeats = np.maximum(1, np.rint(sides / density_sides)).astype(int)
    if np.any(abs(sides / (repeats * density_sides) - 1) > SAME_CELL):
        raise InputError(
            f"the specimen's cell is {_times(sides)} Å, no whole multiple of the density's "
            f"{_times(density_sides)} Å (x, y, z): repeat its atoms, as "
            "density.atoms.repeat((2, 2, 5)) does, or take the zone axis [0 0 1]"
        )
    return repeats


def _change_by_bonds(density: ChargeDensity, cell: Floats, table: Table) -> Complexes:
    """Returns the Fourier coefficients of a density less those of its independent atoms, up to its
    band limit, `(qx, qy, qz)`, e.

    Args:
        cell: Sides (x, y, z) of the cell in the specimen, Å.
    """
    atoms = density.atoms
    places = atoms.positions * (cell / atoms.cell.lengths())
    kept = []
    frequencies = []
    phases = []  # of each frequency and atom
    for axis, points in enumerate(density.density.shape):
        is_kept = 2 * abs(np.fft.fftfreq(points, 1 / points)) < points
        q = np.fft.fftfreq(points, cell[axis] / points)[is_kept]
        kept.append(is_kept)
        frequencies.append(q)
        phases.append(np.exp(-2j * np.pi * q[:, None] * places[:, axis]))
    qx, qy, qz = frequencies
    voxel = atoms.cell.volume / density.density.size
    change = np.fft.fftn(density.density)[np.ix_(*kept)] * voxel
    for atomic_number in np.unique(atoms.numbers):
        chosen = atoms.numbers == atomic_number
        x = phases[0][:, chosen]
        y = phases[1][:, chosen]
        z = phases[2][:, chosen]
        for index, height in enumerate(qz):
            factor = xray(int(atomic_number), qx[:, None] ** 2 + qy**2 + height**2, table)
            change[:, :, index] -= factor * ((x * z[index]) @ y.T)
    return change


def _check_nuclei(
    nuclei: ase.Atoms, atoms: ase.Atoms, cell: Floats, repeats: npt.NDArray[np.int64]
) -> float:
    """Returns the largest distance of an atom to its nucleus, Å. Raises InputError if they do not
    fit.
    """
    expected = len(nuclei) * int(repeats.prod())
    count = int(np.count_nonzero(occupancies(atoms) == 1))
    if len(atoms) != expected or count != expected:
        raise InputError(
            f"the specimen has {len(atoms)} atoms, {count} of which fill their sites, and "
            f"{_times(repeats)} cells of the density have {expected}: repeat density.atoms"
        )
    farthest = 0.0
    cells = int(repeats.prod())
    for atomic_number in np.unique(np.append(nuclei.numbers, atoms.numbers)):
        places = (nuclei.positions / nuclei.cell.lengths())[nuclei.numbers == atomic_number]
        sites = (atoms.positions / cell)[atoms.numbers == atomic_number]
        symbol = chemical_symbols[atomic_number]
        if len(sites) != len(places) * cells:
            raise InputError(
                f"the specimen has {plural(len(sites), 'atom')} of {symbol}, and {_times(repeats)} "
                f"cells of the density have {len(places) * cells}: repeat density.atoms"
            )
        tree = KDTree(places % 1 % 1 * cell, boxsize=cell)
        distances, nearest = map(np.asarray, tree.query(sites % 1 % 1 * cell))
        farthest = max(farthest, float(distances.max()))
        if farthest > SAME_PLACE or np.any(np.bincount(nearest, minlength=len(places)) != cells):
            raise InputError(
                f"an atom of {symbol} is {farthest:.3g} Å from the density's nearest nucleus, and "
                f"at most {SAME_PLACE:g} Å are allowed: repeat density.atoms, at the same origin, "
                "and give thermal displacements as frozen_phonons"
            )
    return farthest


def _times(values: Iterable[float]) -> str:
    return "×".join(f"{value:.6g}" for value in values)


def _read(path: Path) -> ChargeDensity:
    """Returns the density in one file."""
    name = path.name.upper()
    if path.suffix.lower() in (".cube", ".cub"):
        parse: Callable[[str], tuple[ase.Atoms, Floats]] = _parse_cube
    elif name.startswith(("CHGCAR", "AECCAR", "CHG")) or path.suffix.lower() == ".vasp":
        parse = _parse_chgcar
    else:
        raise InputError(f"{path} is no density that is read: give a CHGCAR, AECCAR or cube file")
    text = read_text(path, largest_bytes=LARGEST_FILE_BYTES, kind="the density", errors="replace")
    try:
        atoms, density = parse(text)
        _check(atoms)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (IndexError, ValueError, OverflowError) as error:
        raise InputError(f"{path} cannot be read as a density: {shorten(error, 200)}") from None
    return ChargeDensity(density, atoms)


def _parse_chgcar(text: str) -> tuple[ase.Atoms, Floats]:
    """Returns atoms and density of a CHGCAR: a POSCAR, an empty line, the grid, and density times
    volume, x fastest.
    """
    lines = text.splitlines(keepends=True)
    empty = next(
        (index for index, line in enumerate(lines) if index > 6 and not line.strip()), len(lines)
    )
    atoms = parse_vasp("".join(lines[:empty]))
    shape = [int(word) for word in lines[empty + 1].split()]
    values = _numbers("".join(lines[empty + 2 :]), shape)
    return atoms, values.reshape(shape, order="F") / atoms.cell.volume


def _parse_cube(text: str) -> tuple[ase.Atoms, Floats]:
    """Returns atoms and density of a cube file."""
    atoms, shape, header_lines = parse_cube(text)
    values = _numbers("".join(text.splitlines(keepends=True)[header_lines:]), list(shape))
    return atoms, values.reshape(shape) / BOHR_RADIUS**3


def _numbers(text: str, shape: list[int]) -> Floats:
    """Returns as many numbers from the beginning of a text as a grid has points."""
    if len(shape) != 3 or min(shape) < 1 or np.prod(shape, dtype=float) > LARGEST_POINTS:
        raise InputError(
            f"its grid is {shorten(shape)}; it must be three numbers with at most {LARGEST_POINTS} "
            "points"
        )
    count = int(np.prod(shape))
    words = text.split(None, count)[:count]
    values = np.array(words, np.float64)
    if len(values) < count or not np.isfinite(values).all():
        raise InputError(
            f"its grid of {shape} needs {count} finite numbers, and {len(values)} follow"
        )
    return values


def _check(atoms: ase.Atoms) -> None:
    """Raises InputError for a cell that is not right-angled along x, y, z, and for no atoms."""
    cell = np.asarray(atoms.cell, np.float64)
    check_cell(cell, len(atoms))
    sides = np.diag(cell)
    if not (sides > 0).all() or abs(cell - np.diag(sides)).max() > 1e-4:
        raise InputError(
            f"its cell {cell.round(3).tolist()} Å is not right-angled along x, y, z: give the "
            "density of a cell that is"
        )


def _sum(atoms: ase.Atoms, grid: Grid, factor: Callable[[int], Array | float]) -> Complexes:
    """Returns Σ factor exp(−2πi q·r) over the atoms, (ny, nx), zero frequency first."""
    ky, kx = grid.frequencies()
    total = np.zeros(grid.shape, np.complex128)
    for atomic_number in np.unique(atoms.numbers):
        positions = atoms.positions[atoms.numbers == atomic_number]
        along_y = np.exp(-2j * np.pi * ky * positions[:, 1])
        along_x = np.exp(-2j * np.pi * positions[:, :1] * kx)
        total += factor(int(atomic_number)) * (along_y @ along_x)
    return total


def _field(coefficients: Complexes, grid: Grid) -> Floats:
    """Returns the real field per Å² of Fourier coefficients."""
    area = grid.extent_angstrom[0] * grid.extent_angstrom[1]
    field: Floats = np.fft.ifft2(coefficients).real * (coefficients.size / area)
    return field
