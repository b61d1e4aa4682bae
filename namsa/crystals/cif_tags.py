"""The values of a CIF by tag, as gemmi reads them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import gemmi

from namsa.base.errors import InputError
from namsa.base.text import plural, shorten

Tags = Mapping[str, Sequence[str]]

PLACE_KEYS = ("_atom_site_fract_x", "_atom_site_fract_y", "_atom_site_fract_z")
UNKNOWN = ("", "?", ".")
_READ_TAGS = re.compile(
    r"_(cell_|symmetry_|space_group_|atom_site_|chemical_formula_|exptl_crystal_density_)"
)


def structure_tags(text: str) -> dict[str, list[str]]:
    """Returns the values by tag of the one block that has atom sites.

    Tags are in small letters and without points.
    """
    plain = re.sub(r"[^\n\t\x20-\x7e]", "_", text.replace("\r\n", "\n").replace("\r", "\n"))
    try:
        document = gemmi.cif.read_string(plain, 0)
    except (RuntimeError, ValueError) as error:
        if not re.search(r"^\s*data_", plain, re.MULTILINE | re.IGNORECASE):
            raise InputError(
                "a CIF must hold one structure with atom sites, not 0: it has no block data_"
            ) from None
        reason = shorten(str(error).removeprefix("string:"), 200)
        raise InputError(
            f"a loop_ has too few or too many values, or a quotation is left open (line {reason})"
        ) from None
    structures = []
    for block in document:
        tags = _tags(block)
        if any(tags.get(key) for key in PLACE_KEYS):
            structures.append(tags)
    if len(structures) != 1:
        raise InputError(f"a CIF must hold one structure with atom sites, not {len(structures)}")
    return structures[0]


def without_dummies(tags: Tags) -> tuple[Tags, list[str]]:
    """Returns the values without the atom sites whose `_atom_site_calc_flag` is `dum`.

    These are points of the drawing, as centres of rings, and no atoms.

    Returns:
        The values, and a note if there are such sites.

    Raises:
        InputError: If no site is an atom.
    """
    flags = [flag.lower() for flag in tags.get("_atom_site_calc_flag", ())]
    kept = [row for row, flag in enumerate(flags) if flag != "dum"]
    count = len(flags) - len(kept)
    if not count:
        return tags, []
    if not kept:
        raise InputError("all of its atom sites are dummies (_atom_site_calc_flag dum)")
    atoms_alone: dict[str, Sequence[str]] = {}
    for tag, values in tags.items():
        is_column = tag.startswith("_atom_site_") and not tag.startswith("_atom_site_aniso_")
        if is_column and len(values) == len(flags):
            atoms_alone[tag] = [values[row] for row in kept]
        else:
            atoms_alone[tag] = values
    return atoms_alone, [
        f"{plural(count, 'atom site')} with the flag dum, of dummy atoms, left out"
    ]


def _tags(block: gemmi.cif.Block) -> dict[str, list[str]]:
    """Returns the values of a block by tag; of a tag that is there twice, the first."""
    tags: dict[str, list[str]] = {}
    for item in block:
        loop: Any = item.loop
        pair: Any = item.pair
        if loop:
            names = list(loop.tags)
            values = list(loop.values)
        else:
            names = list(pair[:1]) if pair else []
            values = list(pair[1:]) if pair else []
        for column, name in enumerate(names):
            tag = name.lower().replace(".", "_").rstrip("_")
            if _READ_TAGS.match(tag) and tag not in tags:
                tags[tag] = [_text(value) for value in values[column :: len(names)]]
    return tags


def _text(value: str) -> str:
    """Returns a value without quotation marks; ? and . stand for themselves."""
    if value in UNKNOWN:
        return value
    return gemmi.cif.as_string(value).strip()
