"""Crystals of the Materials Project: downloaded once by `namsa fetch`, then read from the file with
the answer.

The answer is a file for three reasons: compute nodes have no network, a thousand ranks must not
query a server, and the database changes. The file holds the query too. Jain et al., APL Materials
1, 011002 (2013); the data are CC BY 4.0. Lattice parameters are calculated; in most cases they
differ by 1 to 3% from measured ones.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol

import ase
import numpy as np

from namsa.base.errors import InputError, WorkError
from namsa.base.files import write_text_atomic
from namsa.base.json_files import read_json
from namsa.base.text import shorten
from namsa.config.materials import MaterialsProject
from namsa.crystals.builtin import standardize
from namsa.crystals.material import Material
from namsa.crystals.sites import MAX_ELEMENT, check_cell
from namsa.crystals.symmetry import MOST_ATOMS

FORMAT = "namsa-materials-project"
VERSION = 1
SOURCE = "The Materials Project, https://materialsproject.org, CC BY 4.0; Jain et al. 2013"
FIELDS = ("material_id", "structure", "energy_above_hull", "theoretical", "last_updated")
SYMPREC = 0.01  # Å
LARGEST_FILE_BYTES = 2**30
IDENTIFIERS_PER_REQUEST = 100  # they are part of the request's address, whose length is limited
KEY_VARIABLE = "MP_API_KEY"
JsonObject = dict[str, Any]


class Client(Protocol):
    """The part of pymatgen's MPRester that is used."""

    def request(
        self, sub_url: str, payload: JsonObject | None = None, *, mp_decode: bool = True
    ) -> list[JsonObject]: ...


def fetch(config: MaterialsProject) -> int:
    """Queries the server and writes the answer to `config.file`; returns the number of crystals.

    Raises:
        InputError: If there is no API key, the file exists already, its folder does not, or no
            crystal matches.
        WorkError: If the server does not answer.
    """
    from pymatgen.ext.matproj import MPRester, MPRestError

    if config.file.exists():
        raise InputError(
            f"{config.file} is there already; delete it to ask the Materials Project again"
        )
    if not config.file.parent.is_dir():
        raise InputError(f"there is no folder {config.file.parent} for the answer: make it first")
    key = os.environ.get(KEY_VARIABLE, "")
    if not key:
        raise InputError(
            f"{KEY_VARIABLE} is not set: get a key at https://materialsproject.org/api, then "
            f"export {KEY_VARIABLE}=... and run this again"
        )
    try:
        with MPRester(key) as client:
            documents = request_documents(config, client)
    except ValueError as error:  # the key is malformed
        raise InputError(f"{KEY_VARIABLE}: {error}") from None
    except MPRestError as error:
        raise WorkError(
            f"the Materials Project does not answer: {' '.join(str(error).split())[:300]}"
        ) from None
    answer = {
        "format": FORMAT,
        "version": VERSION,
        "query": _query(config),
        "fetched": datetime.now(UTC).isoformat(timespec="seconds"),
        "source": SOURCE,
        "documents": documents,
    }
    write_text_atomic(config.file, json.dumps(answer) + "\n")
    return len(documents)


def request_documents(config: MaterialsProject, client: Client) -> list[JsonObject]:
    """Requests the identifiers of all matching crystals, chooses among them, and requests the
    chosen ones.

    Returns:
        One document per crystal with the keys `FIELDS`, sorted by identifier.

    Raises:
        InputError: If no crystal matches.
    """
    matches = _request(client, _criteria(config), ("material_id",))
    all_identifiers = {str(document["material_id"]) for document in matches}
    identifiers = sorted(all_identifiers, key=_hash)[: config.limit]
    if not identifiers:
        raise InputError(f"the Materials Project has no crystal of {_query(config)}: ask for less")
    documents = []
    for start in range(0, len(identifiers), IDENTIFIERS_PER_REQUEST):
        batch = {"material_ids": ",".join(identifiers[start : start + IDENTIFIERS_PER_REQUEST])}
        for document in _request(client, batch, FIELDS):
            documents.append({key: document.get(key) for key in FIELDS})
    return sorted(documents, key=lambda document: str(document["material_id"]))


def read(config: MaterialsProject) -> list[Material]:
    """Reads the crystals in `config.file`, in the conventional cells of the International Tables.

    Args:
        config: The query and the file.

    Raises:
        InputError: If the file is missing, has another format, or holds the answer to another
            query.
    """
    path = config.file
    if not path.exists():
        raise InputError(
            f"there is no {path}: run namsa fetch CONFIG where there is a network, with "
            f"{KEY_VARIABLE} set"
        )
    answer = read_json(path, largest_bytes=LARGEST_FILE_BYTES)
    if (
        not isinstance(answer, dict)
        or answer.get("format") != FORMAT
        or answer.get("version") != VERSION
    ):
        raise InputError(
            f"{path} is no answer of the Materials Project in format {FORMAT} {VERSION}: see namsa "
            "fetch"
        )
    if answer.get("query") != _query(config):
        raise InputError(
            f"{path} answers another question, {shorten(answer.get('query'), 200)}, than the "
            f"configuration's, {shorten(_query(config), 200)}: name another file, or delete it and "
            "run namsa fetch CONFIG"
        )
    documents = answer.get("documents")
    if not isinstance(documents, list) or not all(
        isinstance(document, dict) for document in documents
    ):
        raise InputError(f"{path} has no list of documents: delete it and run namsa fetch CONFIG")
    return list(_materials(documents, str(path)))


def _materials(documents: Sequence[JsonObject], path: str) -> Iterator[Material]:
    for document in documents:
        try:
            identifier = _identifier(document["material_id"])
            atoms = _to_atoms(document["structure"])
            if document["energy_above_hull"] is None:
                hull = None
            else:
                hull = float(document["energy_above_hull"])
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
            name = shorten(document.get("material_id"))
            reason = shorten(repr(error), 200)
            raise InputError(f"{path}: {name} is no crystal as expected ({reason})") from None
        if atoms.numbers.max() > MAX_ELEMENT:
            continue
        status = "calculated only" if document.get("theoretical") else "observed"
        energy = "" if hull is None else f", {hull:.3f} eV/atom above the hull"
        source = f"Materials Project {identifier}, {status}{energy}"
        material = standardize(atoms, source, "materials_project", SYMPREC)
        yield replace(material, name=f"{material.name}-{identifier}")


def _identifier(value: object) -> str:
    """An identifier, which becomes part of the names of samples and files."""
    if not re.fullmatch(r"[A-Za-z0-9-]{1,40}", str(value)):
        raise ValueError("material_id must be of letters, digits and -")
    return str(value)


def _to_atoms(structure: JsonObject) -> ase.Atoms:
    """Atoms from pymatgen's JSON of a structure. The database has no mixed sites."""
    for site in structure["sites"]:
        if len(site["species"]) != 1 or site["species"][0]["occu"] != 1:
            raise ValueError("a site is mixed")
    atoms = ase.Atoms(
        symbols=[site["species"][0]["element"] for site in structure["sites"]],
        scaled_positions=np.array([site["abc"] for site in structure["sites"]], dtype=float),
        cell=np.array(structure["lattice"]["matrix"], dtype=float),
        pbc=True,
    )
    check_cell(np.asarray(atoms.cell), len(atoms))
    if len(atoms) > MOST_ATOMS:
        raise ValueError(f"it has more than {MOST_ATOMS} atoms")
    return atoms


def _request(client: Client, criteria: JsonObject, fields: Sequence[str]) -> list[JsonObject]:
    # The answer is not decoded: numbers and names are read from it, not Python objects of the
    # server's choice.
    address = f"materials/summary/?_fields={','.join(fields)}&_all_fields=False"
    return client.request(address, payload=criteria, mp_decode=False)


def _criteria(config: MaterialsProject) -> JsonObject:
    """The query in the terms of the server, https://api.materialsproject.org/docs."""
    lists = ("material_ids", "formula", "chemsys", "elements", "exclude_elements")
    criteria: JsonObject = {
        name: ",".join(getattr(config, name)) for name in lists if getattr(config, name)
    }
    if config.max_energy_above_hull_ev is not None:
        criteria |= {
            "energy_above_hull_min": 0,
            "energy_above_hull_max": config.max_energy_above_hull_ev,
        }
    if config.max_sites is not None:
        criteria |= {"nsites_min": 1, "nsites_max": config.max_sites}
    if config.observed:
        criteria["theoretical"] = "false"
    return criteria | {"deprecated": "false"}


def _query(config: MaterialsProject) -> JsonObject:
    """The query as it is written to the file: the settings that are not at their defaults."""
    return config.model_dump(mode="json", exclude_defaults=True, exclude={"file"})


def _hash(identifier: str) -> bytes:
    return hashlib.sha256(identifier.encode()).digest()
