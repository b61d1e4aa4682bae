"""The materials of an experiment, from all its sources, each crystal once."""

import difflib
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from namsa.config.materials import Materials
from namsa.crystals import duplicates, generator, materials_project, substitution
from namsa.crystals.builtin import builtin
from namsa.crystals.cif import read_cif
from namsa.crystals.material import Material
from namsa.errors import InputError


def select(config: Materials) -> tuple[Material, ...]:
    """The materials a configuration asks for, sorted by name.

    A crystal that several sources have is taken from the first of: CIF files, the Materials Project, the built-in
    ones, a generator, substitution (`duplicates`).

    Raises InputError for unknown names, crystals that cannot be read, two of one name, and where none is left.
    """
    chosen = [*(read_cif(path) for path in _cif_files(config.cif))]
    if config.materials_project:
        chosen += materials_project.read(config.materials_project)
    chosen += _named(config.builtin)
    if config.generator:
        chosen += generator.materials(config.generator)
    if not chosen:
        raise InputError(
            "the configuration names no material: set materials.builtin, cif, materials_project or generator"
        )
    _check_names(chosen)
    light = [m for m in chosen if m.atoms.numbers.max() <= config.max_atomic_number]
    if not light:
        raise InputError(
            f"all {len(chosen)} materials have elements beyond max_atomic_number {config.max_atomic_number}: raise it"
        )
    if config.substitute:
        light += substitution.substituted(config.substitute, light, config.max_atomic_number)
    if config.merge_duplicates:
        light = duplicates.merged(light)
    by_hash = sorted(light, key=lambda material: hashlib.sha256(material.name.encode()).digest())
    return tuple(sorted(by_hash[: config.limit], key=lambda material: material.name))


def _check_names(chosen: list[Material]) -> None:
    for name, count in Counter(material.name for material in chosen).items():
        if count > 1:
            sources = ", ".join(material.source for material in chosen if material.name == name)
            raise InputError(f"{count} materials are called {name} ({sources}): keep or rename one")


def _named(names: Literal["all"] | tuple[str, ...]) -> list[Material]:
    if not names:
        return []
    if names == "all":
        return list(builtin())
    known = {material.name: material for material in builtin({name.partition("-")[0] for name in names})}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, [material.name for material in builtin()], n=3, cutoff=0.0)
            raise InputError(f"materials.builtin: {name} is not known; nearest are {', '.join(near)}")
    return [known[name] for name in names]


def _cif_files(paths: Iterable[Path]) -> Iterator[Path]:
    """The files themselves and the *.cif of folders, in order of name."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        inside = sorted(file for file in path.iterdir() if file.suffix.lower() == ".cif")
        if not inside:
            raise InputError(f"materials.cif: the folder {path} holds no .cif file")
        yield from inside
