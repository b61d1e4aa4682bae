"""The materials of an experiment, from all its sources, each crystal once."""

import difflib
import hashlib
import math
import warnings
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

from pymatgen.core import Structure

from namsa.base.errors import InputError, SimulationWarning
from namsa.base.text import shorten
from namsa.config.materials import Materials
from namsa.crystals import materials_project
from namsa.crystals.builtin import builtin_materials
from namsa.crystals.cif import to_structure
from namsa.crystals.generator import generate_materials
from namsa.crystals.layers import layer_materials
from namsa.crystals.material import Material, MaterialKind
from namsa.crystals.structure_files import read_crystal
from namsa.crystals.substitution import substitute_ions
from namsa.crystals.symmetry import MOST_ATOMS


def select_materials(
    config: Materials, *, run_generator: bool = False, names: Collection[str] | None = None
) -> tuple[Material, ...]:
    """Returns the materials that a configuration asks for, sorted by name.

    A crystal that several sources have is taken from the first of: CIF files, other files, the
    Materials Project, the built-in crystals, a generator, substitution (`namsa.crystals.select`).

    Args:
        run_generator: Whether a generator may run. It is Python code that the configuration names,
            so give true only for a configuration that the user has given, and never for one that
            lies beside results or models.
        names: Return only the materials of these names, which an earlier selection has given. No
            others are derived by substitution, which takes long for many.

    Raises:
        InputError: If a name is unknown, a crystal cannot be read, two materials have the same
            name, no material is left, or there is a generator that may not run.
    """
    return select_few(config, None, run_generator=run_generator, names=names)[0]


def select_few(
    config: Materials,
    few: int | None,
    *,
    run_generator: bool = False,
    names: Collection[str] | None = None,
) -> tuple[tuple[Material, ...], float]:
    """Returns what `select_materials` does, but only so many crystals by substitution.

    These stand for all.

    Returns:
        The materials, and the number of all for each of them.
    """
    materials = list(_from_files(config))
    if config.materials_project:
        materials += materials_project.read(config.materials_project)
    materials += _builtin_by_name(config.builtin)
    materials += _layers_by_name(config.layers)
    if config.generator:
        if not run_generator:
            raise InputError(
                f"materials.generator {shorten(config.generator.function)} is Python code, which "
                "runs only from a configuration that is given on the command line: give that "
                "configuration, as in `namsa-train CONFIG --run-dir RUN`"
            )
        materials += generate_materials(config.generator)
    if not materials:
        raise InputError(
            "the configuration names no material: set materials.builtin, layers, cif, files, "
            "materials_project or generator"
        )
    _check_names_are_unique(materials)
    allowed = [
        material
        for material in materials
        if material.atoms.numbers.max() <= config.max_atomic_number
    ]
    if not allowed:
        raise InputError(
            f"all {len(materials)} materials have elements beyond max_atomic_number "
            f"{config.max_atomic_number}: raise it"
        )
    omitted = 0
    if config.substitute:
        derived = substitute_ions(config.substitute, allowed, config.max_atomic_number, names, few)
        allowed = [*allowed, *derived.materials]
        omitted = derived.total - len(derived.materials)
    if config.merge_duplicates:
        allowed = merge_duplicates(allowed)
    if names is not None:
        named = [material for material in allowed if material.name in names]
        return tuple(sorted(named, key=_name)), 1.0
    by_hash = sorted(allowed, key=lambda material: hashlib.sha256(material.name.encode()).digest())
    selected = tuple(sorted(by_hash[: config.limit], key=_name))
    all_selected = min(config.limit or math.inf, len(allowed) + omitted)
    return selected, all_selected / len(selected)


def _name(material: Material) -> str:
    return material.name


def source_files(config: Materials) -> list[Path]:
    """Returns the files of all materials in a fixed order.

    Raises:
        InputError: For a folder without .cif file.
    """
    answer = [config.materials_project.file] if config.materials_project else []
    return [*_cif_files(config.cif), *config.files, *answer]


def _check_names_are_unique(materials: list[Material]) -> None:
    for name, count in Counter(material.name for material in materials).items():
        if count > 1:
            sources = [material.source for material in materials if material.name == name]
            raise InputError(
                f"{count} materials are called {shorten(name)} "
                f"({shorten(', '.join(sources), 300)}): keep or rename one"
            )


def _from_files(config: Materials) -> Iterator[Material]:
    """Yields the crystals in files; warns of those that are left out."""
    paths = [*_cif_files(config.cif), *config.files]
    remedy = "; materials.skip_unreadable: true leaves out such files" if len(paths) > 1 else ""
    for path in paths:
        try:
            yield read_crystal(path, as_is=config.as_is)
        except InputError as error:
            if not config.skip_unreadable:
                raise InputError(f"{error}{remedy}") from None
            warnings.warn(f"left out: {error}", SimulationWarning, stacklevel=3)


def _builtin_by_name(names: Literal["all"] | tuple[str, ...]) -> list[Material]:
    if not names:
        return []
    if names == "all":
        return list(builtin_materials())
    formulas = {name.partition("-")[0] for name in names}
    known = {material.name: material for material in builtin_materials(formulas)}
    chosen = []
    for name in names:
        if name not in known:
            raise _unknown_name(name)
        chosen.append(known[name])
    return chosen


def _unknown_name(name: str) -> InputError:
    """Returns the error for a name that no built-in material has, with the nearest names."""
    every_name = [material.name for material in builtin_materials()]
    near = difflib.get_close_matches(name, every_name, n=3, cutoff=0.0)
    return InputError(
        f"materials.builtin: {name} is not known; nearest are {', '.join(near)}"
        f"{_other_source(name)}"
    )


def _other_source(name: str) -> str:
    """Returns where a name belongs that is no built-in crystal's: the films, or a file."""
    films = {film.name for film in layer_materials()}
    if name in films or name in {film.rpartition("-")[0] for film in films}:
        return f". It is a film of layers: give materials.layers: [{name}]"
    if Path(name).suffix:
        return f". Is it a file? Give materials.cif: [{name}]"
    return ". `namsa crystals` lists all; a crystal of your own is a file, materials.cif: [FILE]"


def _layers_by_name(names: Literal["all"] | tuple[str, ...]) -> list[Material]:
    if not names:
        return []
    films = layer_materials()
    if names == "all":
        return list(films)
    crystals = {film.name: film.name.rpartition("-")[0] for film in films}
    chosen = []
    for name in names:
        named = [film for film in films if name in (film.name, crystals[film.name])]
        if not named:
            near = difflib.get_close_matches(
                name, sorted({*crystals, *crystals.values()}), n=3, cutoff=0.0
            )
            raise InputError(
                f"materials.layers: {name} is not known; nearest are {', '.join(near)}. "
                f"`namsa crystals` lists all"
            )
        chosen += named
    return chosen


def _cif_files(paths: Iterable[Path]) -> Iterator[Path]:
    """The files themselves and the *.cif files of folders, sorted by name."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        files = sorted(file for file in path.iterdir() if file.suffix.lower() == ".cif")
        if not files:
            raise InputError(f"materials.cif: the folder {path} holds no .cif file")
        yield from files


# A crystal of one of these kinds is not compared with others of its kind.
NOT_COMPARED: tuple[MaterialKind, ...] = ("builtin", "layers", "generator", "substituted")
PREFERENCE: tuple[MaterialKind, ...] = get_args(MaterialKind)
# largest ratio of the lattice parameters: calculated cells are closer to the measured ones
MAX_SCALE = 1.1
# fractions of sides and of spacings, degrees
LENGTH_TOLERANCE = 0.1
SITE_TOLERANCE = 0.15
ANGLE_TOLERANCE = 5.0


def merge_duplicates(materials: Sequence[Material]) -> list[Material]:
    """Keeps one of all materials that are the same crystal.

    Two crystals are the same if formula and space group agree and pymatgen's StructureMatcher maps
    one onto the other. The space group distinguishes polymorphs that differ by a small distortion.
    The matcher distinguishes crystals that have the same atoms at other positions. Lattice
    parameters may differ by as much as those of measurements and calculations do.

    The material of the preferred source is kept, and of one source the first by name. Built-in
    crystals are not compared with each other, because the library holds each once, and substituted
    ones are not, because no two have the same formula and space group. The crystals of a generator
    are not either, because they may differ as little as the user wants. A film of few layers is
    another specimen than the crystal that its period would make, and is kept. Crystals of more than
    `namsa.crystals.symmetry.MOST_ATOMS` atoms are not compared.

    Returns:
        The kept materials in their order. Their `merged` lists what was left out.
    """
    groups: dict[tuple[str, str, bool], list[Material]] = defaultdict(list)
    for material in sorted(
        materials, key=lambda material: (PREFERENCE.index(material.kind), material.name)
    ):
        groups[material.formula, material.space_group, material.kind == "layers"].append(material)
    kept = {}
    for group in groups.values():
        for material in _distinct(group):
            kept[material.name] = material
    return [kept[material.name] for material in materials if material.name in kept]


def _distinct(group: Sequence[Material]) -> list[Material]:
    """The different crystals of one formula and space group, in order of preference."""
    if len({material.kind for material in group}) == 1 and group[0].kind in NOT_COMPARED:
        return list(group)
    from pymatgen.analysis.structure_matcher import StructureMatcher

    # The time of a comparison grows fast with the number of atoms.
    large = [material for material in group if len(material.atoms) > MOST_ATOMS]
    group = [material for material in group if len(material.atoms) <= MOST_ATOMS]
    matcher = StructureMatcher(
        ltol=LENGTH_TOLERANCE, stol=SITE_TOLERANCE, angle_tol=ANGLE_TOLERANCE
    )
    kept: list[Material] = []
    structures: list[Structure] = []  # of those that are kept
    for material in group:
        structure = to_structure(material.atoms)
        for index, other in enumerate(kept):
            if material.kind == other.kind and material.kind in NOT_COMPARED:
                continue
            if not _similar_volume(structure, structures[index]):
                continue
            if matcher.fit(structure, structures[index]):
                duplicate = f"{material.name} ({material.source})"
                kept[index] = replace(other, merged=(*other.merged, duplicate))
                break
        else:
            kept.append(material)
            structures.append(structure)
    return kept + large


def _similar_volume(one: Structure, other: Structure) -> bool:
    """Whether the volumes per atom are similar.

    The matcher scales cells and would accept any pressure.
    """
    ratio = one.volume / one.composition.num_atoms / (other.volume / other.composition.num_atoms)
    return MAX_SCALE**-3 < ratio < MAX_SCALE**3
