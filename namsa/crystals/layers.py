"""Films of one to three layers of layered crystals: two-dimensional materials.

`layers.yaml` has the crystals, with lattice parameters that were not compared with the papers that
it names. A film keeps the distances and the stacking of the layers in the bulk. Its cell ends
halfway between two layers on either side, and its third vector is perpendicular to the layers. One
period along [001] is the whole film: multislice needs no vacuum above and below.
"""

import re
from fractions import Fraction
from importlib.resources import files
from typing import Literal, NotRequired, TypedDict

import ase
import numpy as np
import spglib
import yaml
from ase.spacegroup import crystal

from namsa.base.errors import WorkError
from namsa.crystals.cif import reduced_formula
from namsa.crystals.material import Material

MOST_LAYERS = 3
SYMPREC = 1e-3  # Å; the table's coordinates are those of the space group
_HEXAGONAL = range(143, 195)
# The cell's new (a, b, c), so that c is the axis across the layers. Both orders are right-handed.
_TURNED = {"a": (1, 2, 0), "b": (2, 0, 1), "c": (0, 1, 2)}


class LayeredCrystal(TypedDict):
    """An entry of the table; its units are in the file."""

    group: int  # number of the space group
    setting: NotRequired[int]
    cell: list[float]  # a, b, c and perhaps β
    layers: int  # in the cell
    axis: NotRequired[Literal["a", "b", "c"]]  # across the layers
    sites: dict[str, list[float | str]]
    source: str


def layer_materials() -> tuple[Material, ...]:
    """Returns films of one, two and three layers of each crystal of the table, sorted by name.

    A name is that of the crystal and the number of layers: `MoS2-2H-1L`. The space group is that of
    the bulk.

    Raises:
        WorkError: If an entry of the table does not have its space group.

    Example:
        >>> namsa.layer_materials()[0].name
        'BN-194-1L'
    """
    table = yaml.safe_load(
        files("namsa.crystals").joinpath("layers.yaml").read_text(encoding="utf-8")
    )
    materials = {}
    for name, entry in table["crystals"].items():
        bulk, symbol = _bulk(name, entry)
        for layers in range(1, MOST_LAYERS + 1):
            film = cut_film(bulk, entry["layers"], layers)
            film_name = f"{name}-{layers}L"
            source = (
                f"after {table['sources'][entry['source']]}, not compared with it; layers: {layers}"
            )
            materials[film_name] = Material(
                film_name, reduced_formula(film), symbol, film, source, "layers"
            )
    return tuple(materials[name] for name in sorted(materials))


def cut_film(bulk: ase.Atoms, layers_per_cell: int, layers: int) -> ase.Atoms:
    """Returns a film of the first `layers` layers of a crystal, in the stacking of the crystal.

    Args:
        bulk: The crystal, with its layers parallel to a and b, and a and b in the plane xy.
        layers_per_cell: Number of layers in the cell, at equal distances.

    Returns:
        The film in the cell (a, b, c'), with c' along z and as long as the layers are thick
        together. The cell begins halfway between two layers.
    """
    distance = bulk.cell[2, 2] / layers_per_cell
    heights = np.sort(bulk.get_scaled_positions()[:, 2]) * bulk.cell[2, 2]
    gaps = np.diff(heights, append=heights[0] + bulk.cell[2, 2])
    widest = int(np.argmax(np.round(gaps, 6)))  # rounding makes equal gaps tie on every machine
    start = (heights[widest] + gaps[widest] / 2) % bulk.cell[2, 2]
    stack = bulk.copy()
    stack.wrap()
    stack = stack.repeat((1, 1, -(-layers // layers_per_cell) + 1))
    stack.positions[:, 2] -= start
    film = stack[(stack.positions[:, 2] > 0) & (stack.positions[:, 2] < layers * distance)]
    film.set_cell([bulk.cell[0], bulk.cell[1], [0, 0, layers * distance]], scale_atoms=False)
    film.wrap()
    return film


def _bulk(name: str, entry: LayeredCrystal) -> tuple[ase.Atoms, str]:
    """Returns a crystal of the table with its layers across c, and its space group's symbol."""
    a, b, c, *beta = entry["cell"]
    gamma = 120 if entry["group"] in _HEXAGONAL else 90
    elements = []
    places = []
    for site, place in entry["sites"].items():
        elements.append(re.sub(r"\d", "", site))
        places.append([float(Fraction(str(coordinate))) for coordinate in place])
    atoms = crystal(
        elements,
        places,
        spacegroup=entry["group"],
        setting=entry.get("setting", 1),
        cellpar=[a, b, c, 90, *(beta or [90]), gamma],
    )
    symmetry = spglib.get_symmetry_dataset(
        (atoms.cell[:], atoms.get_scaled_positions(), atoms.numbers), SYMPREC
    )
    if symmetry is None or symmetry.number != entry["group"]:
        raise WorkError(f"layers.yaml: {name} does not have space group {entry['group']}")
    order = list(_TURNED[entry.get("axis", "c")])
    lengths_and_angles = [*order, *(3 + axis for axis in order)]
    turned = ase.Atoms(
        numbers=atoms.numbers,
        scaled_positions=atoms.get_scaled_positions()[:, order],
        cell=atoms.cell.cellpar()[lengths_and_angles],
        pbc=True,
    )
    return turned, symmetry.international
