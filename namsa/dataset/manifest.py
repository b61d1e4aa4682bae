"""The manifest: the list of all samples of a dataset with their splits, fixed before the first is
simulated.

`manifest.jsonl` holds a header line, then one line per entry. The header carries a digest of all
the rest, so that a list that was cut short or edited is an error rather than another dataset. It
also carries a hash of all that decides the list, so that a directory belongs to one configuration.
"""

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NotRequired

import numpy as np
import xxhash
from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from namsa.base.errors import InputError, SimulationWarning
from namsa.base.files import read_bytes, read_text, write_text_atomic
from namsa.base.json_files import LARGEST_FILE_BYTES, parse_json, parse_typed
from namsa.base.text import plural, shorten
from namsa.base.version import __version__
from namsa.config.materials import Split
from namsa.config.simulation import SimulationConfig
from namsa.crystals import substitution
from namsa.crystals.material import Material
from namsa.crystals.select import source_files
from namsa.crystals.sites import TENSOR
from namsa.dataset import identity
from namsa.dataset.entries import build_entries
from namsa.dataset.entry import SPLITS, Entry, SplitName, feasible_entries, merged_names

FILE_NAME = "manifest.jsonl"
FORMAT = "namsa-manifest"
VERSION = 1


class Header(TypedDict):
    """The manifest's first line, without its digest."""

    format: str  # "namsa-manifest"
    version: int  # the version of the format
    name: str  # the name of the configuration that wrote it
    config_hash: str  # changes with any value that decides the list or a sample; see `config_hash`
    # changes with any value that decides a sample's bits; see `SimulationConfig.samples_hash`
    samples_hash: str
    entries: int  # number of entries
    samples: int  # number of entries that can be built
    skipped: int  # number of entries that cannot be built
    materials: int  # number of materials with samples
    splits: dict[SplitName, int]  # number of samples by split
    # Names and sources of the crystals that were merged into a material, by its name. Absent if
    # none were.
    merged: NotRequired[dict[str, list[str]]]
    # Changes with whatever the list follows from: settings, files of crystals, versions of the
    # programs that derive crystals. A rank compares it and need not build all crystals. Absent if
    # these are built fast.
    sources_hash: NotRequired[str]


def ensure(
    directory: Path, config: SimulationConfig, materials: Sequence[Material]
) -> tuple[Entry, ...]:
    """Returns the entries of the manifest in `directory`. If there is no manifest, builds and
    writes it first.

    Any number of ranks may call this at once: all build the same list, and the first to finish
    writes the file.

    Raises:
        InputError: If the manifest belongs to another configuration, or as `build_entries` and
            `read` raise it.
    """

    def build() -> tuple[Entry, ...]:
        return build_and_warn(config, materials)

    return ensure_entries(directory, config, config_hash(config, materials), build, materials)


def build_and_warn(config: SimulationConfig, materials: Sequence[Material]) -> tuple[Entry, ...]:
    """Returns the entries of a new list. Warns of splits without samples."""
    entries = build_entries(config, materials)
    warning = empty_splits(feasible_entries(entries), config.split)
    if warning:
        warnings.warn(warning, SimulationWarning, stacklevel=5)
    return entries


def ensure_entries(
    directory: Path,
    config: SimulationConfig,
    requested_hash: str,  # changes with the list
    build: Callable[[], tuple[Entry, ...]],  # returns the list; not called if there is a manifest
    materials: Sequence[Material] = (),  # of the list, as far as they are crystals
) -> tuple[Entry, ...]:
    """As `ensure`, of a list that is built otherwise."""
    path = directory / FILE_NAME
    if not path.exists():
        text = text_of(config, requested_hash, build(), materials)
        write_text_atomic(path, text, replace=False)
    return read_checked(directory, config, requested_hash)


def read_checked(
    directory: Path, config: SimulationConfig, requested_hash: str
) -> tuple[Entry, ...]:
    """Returns the entries of the manifest in `directory`.

    Args:
        requested_hash: That of the configuration and its crystals.

    Raises:
        InputError: If the manifest belongs to another configuration, or as `read` raises it.
    """
    header, entries = _read(directory / FILE_NAME)
    identity.check_same_list(directory, config, header["config_hash"], requested_hash)
    identity.check_same_samples(directory, header["samples_hash"], config.samples_hash())
    return entries


def read_if_current(directory: Path, config: SimulationConfig) -> tuple[Entry, ...] | None:
    """Returns the entries of the manifest in `directory` if its first line shows that it is the
    configuration's own.

    Returns:
        The entries. `None` if there is no manifest, or `ensure` must compare its crystals.

    Raises:
        InputError: As `read` raises it, or if its samples are those of another revision.
    """
    if not (_builds_slowly(config) and (directory / FILE_NAME).exists()):
        return None
    header = read_header(directory)
    if header.get("sources_hash") != sources_hash(config):
        return None
    identity.check_same_samples(directory, header["samples_hash"], config.samples_hash())
    return read(directory)


def given_text(directory: Path, config: SimulationConfig) -> str | None:
    """Returns the content of the manifest in `config.data.manifest_from`, which a directory without
    one takes; `None` if the directory has one, or none is given.

    Raises:
        InputError: If the given manifest is missing or damaged.
    """
    source = config.data.manifest_from
    if not source or os.path.lexists(directory / FILE_NAME):
        return None
    _read_header(source / FILE_NAME)
    return read_text(source / FILE_NAME, largest_bytes=LARGEST_FILE_BYTES)


def read(directory: Path) -> tuple[Entry, ...]:
    """Returns the entries of the manifest in `directory`.

    Raises:
        InputError: If there is none, or it was cut short, edited, or written by a newer version.
    """
    return _read(directory / FILE_NAME)[1]


def read_header(directory: Path) -> Header:
    """Returns the manifest's first line: counts, hashes, and samples by split. Raises as `read`
    does.
    """
    return _read_header(directory / FILE_NAME)[0]


def present(directory: Path, ids: Collection[str]) -> list[Entry]:
    """Returns those entries of the manifest in `directory` whose id is among `ids`. Raises as
    `read` does.
    """
    return list(_read(directory / FILE_NAME, frozenset(ids))[1])


def config_hash(config: SimulationConfig, materials: Sequence[Material]) -> str:
    """Returns 16 hex digits that change with any value that decides the list or a sample, atoms
    included.
    """
    phonons = config.specimen.frozen_phonons
    amplitudes = phonons is not None and phonons.rms_angstrom == "cif"
    decisive = [
        config.settings_hash(),
        config.seed,
        config.split.model_dump(exclude={"by"} if config.split.by == "formula" else None),
        config.specimen.simplest_zone_axes or config.specimen.zone_axes,
        config.specimen.thickness_angstrom,
        [
            [material.name, material.formula, _atoms_hash(material, amplitudes)]
            for material in materials
        ],
    ]
    return _sha256(json.dumps(decisive))[:16]


def sources_hash(config: SimulationConfig) -> str:
    """Returns 16 hex digits of all that the entries follow from. Raises InputError for an
    unreadable crystal.
    """
    decisive = [
        config_hash(config, ()),
        config.materials.model_dump(mode="json", exclude_defaults=True),
        [
            xxhash.xxh3_128_hexdigest(read_bytes(path, largest_bytes=2**30))
            for path in source_files(config.materials)
        ],
        [__version__, *(version(name) for name in ("ase", "numpy", "pymatgen", "spglib"))],
        *([version("gemmi")] if config.materials.cif or config.materials.files else []),
        substitution.VERSION,
    ]
    return _sha256(json.dumps(decisive))[:16]


def _builds_slowly(config: SimulationConfig) -> bool:
    """Whether there may be so many crystals that a rank should not build all of them."""
    return (
        bool(config.materials.substitute or config.materials.materials_project)
        and not config.materials.generator
    )


def empty_splits(entries: Sequence[Entry], split: Split) -> str | None:
    """Returns a warning if a split with a fraction above 0 has none of `entries`, else `None`."""
    present = {entry.split for entry in entries}
    shares = []
    settings = []
    for name in SPLITS:
        fraction = getattr(split, name)
        if fraction > 0 and name not in present:
            shares.append(f"{name} ({fraction:.0%})")
            settings.append(f"split.{name}")
    if not shares:
        return None
    formulas = {entry.formula for entry in entries}
    there_are = "there is" if len(formulas) == 1 else "there are"
    return (
        f"no sample is in {' and '.join(shares)}: splits are by {split.by}, and {there_are} "
        f"{plural(len(formulas), 'formula')}: add some, or raise {' and '.join(settings)}"
    )


def text_of(
    config: SimulationConfig,
    requested_hash: str,
    entries: tuple[Entry, ...],
    materials: Sequence[Material],
) -> str:
    """Returns the manifest's content. Raises InputError for a list that cannot be trained on."""
    feasible = feasible_entries(entries)
    if not feasible:
        raise InputError(
            f"none of the {len(entries)} samples can be built; {entries[0].id}: "
            f"{entries[0].skipped}"
        )
    splits = dict.fromkeys(SPLITS, 0)
    for entry in feasible:
        splits[entry.split] += 1
    if config.split.train > 0 and not splits["train"]:
        raise InputError(
            f"all {len(feasible)} samples are held out (splits are by formula): add materials, or "
            "raise split.train"
        )
    body = "".join(entry.to_json() + "\n" for entry in entries)
    header: Header = {
        "format": FORMAT,
        "version": VERSION,
        "name": config.name,
        "config_hash": requested_hash,
        "samples_hash": config.samples_hash(),
        "entries": len(entries),
        "samples": len(feasible),
        "skipped": len(entries) - len(feasible),
        "materials": len({entry.material for entry in feasible}),
        "splits": splits,
    }
    merged = merged_names(materials)
    if merged:
        header["merged"] = merged
    if _builds_slowly(config):
        header["sources_hash"] = sources_hash(config)
    return json.dumps({**header, "digest": _digest(header, body)}, ensure_ascii=False) + "\n" + body


def _read(path: Path, ids: Collection[str] | None = None) -> tuple[Header, tuple[Entry, ...]]:
    """Returns the header of a manifest and its entries, or those with the given ids."""
    header, body, remedy = _read_header(path)
    entries = (
        Entry.from_json(line, f"{path}, line {line_number}", remedy)
        for line_number, line in enumerate(body.split("\n")[:-1], start=2)
        if ids is None or _id(line) in ids
    )
    return header, tuple(entries)


def _id(line: str) -> str:
    """Returns the id of a line without reading the rest: it comes first, and names have no escaped
    characters.
    """
    return line.removeprefix('{"id": "').partition('"')[0]


def _read_header(path: Path) -> tuple[Header, str, str]:
    """Returns the header of a manifest, its other lines and the remedy for a fault, after its
    digest was compared.
    """
    write = f"namsa dataset CONFIG --out {path.parent}"
    if not os.path.lexists(path):
        raise InputError(f"there is no {path}: make the dataset with {write}")
    remedy = f"delete it, and {write} writes it again"
    try:
        header_line, _, body = read_text(path, largest_bytes=LARGEST_FILE_BYTES).partition("\n")
    except InputError as error:
        raise InputError(f"{error}: {remedy}") from None
    try:
        header = parse_json(header_line, str(path))
    except InputError:
        header = None
    if not (
        isinstance(header, dict)
        and header.get("format") == FORMAT
        and type(header.get("version")) is int
    ):
        raise InputError(
            f"{path} is not a manifest: its first line is not a manifest's header: {remedy}"
        )
    if header["version"] > VERSION:
        version = shorten(header["version"])
        raise InputError(
            f"{path} is of format version {version}, this namsa reads up to {VERSION}: update it"
        )
    if header.pop("digest", None) != _digest(header, body):
        lines = body.count("\n")
        listed = shorten(header.get("entries"))
        raise InputError(
            f"{path} was cut short or edited since it was written ({lines} entries of {listed}): "
            f"{remedy}"
        )
    return parse_typed(Header, header_line, f"{path}, line 1", remedy), body, remedy


def _digest(header: Mapping[str, object], body: str) -> str:
    """Returns the digest of the header, without its own, and of all entries."""
    digest = xxhash.xxh3_128(json.dumps(header, ensure_ascii=False).encode())
    digest.update(body.encode())
    return digest.hexdigest()


def _atoms_hash(material: Material, amplitudes: bool) -> str:
    """Returns a hash of the crystal's cell, elements, positions and occupancies, and if asked its
    amplitudes.
    """
    atoms = material.atoms
    lengths = np.concatenate([np.asarray(atoms.cell), atoms.positions])
    occupancies = np.asarray(atoms.arrays.get("occupancy", np.ones(len(atoms))))
    # Rounded: the last digits of a computed position may depend on the machine.
    rounded = [(np.round(values, 5) + 0.0).tolist() for values in (lengths, occupancies)]
    if amplitudes and "rms_displacement_angstrom" in atoms.arrays:
        rounded.append(
            np.nan_to_num(np.round(atoms.arrays["rms_displacement_angstrom"], 5), nan=-1.0).tolist()
        )
    if amplitudes and TENSOR in atoms.arrays:
        rounded.append(np.nan_to_num(np.round(atoms.arrays[TENSOR], 5), nan=-1.0).tolist())
    rounded += [(np.round(frame.positions, 5) + 0.0).tolist() for frame in material.snapshots]
    return _sha256(json.dumps([atoms.numbers.tolist(), rounded]))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
