"""Crystals of the Materials Project: asked for once by `namsa fetch`, then read from the file that holds the answer.

Compute nodes have no network, a thousand ranks must not ask a server, and its answer changes with its database: so
the answer is a file, with the question in it. Jain et al., APL Materials 1, 011002 (2013); the data are CC BY 4.0.
Lattice parameters are calculated, in most cases 1 to 3% from the measured.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol

import ase
import numpy as np

from namsa.config.materials import MaterialsProject
from namsa.crystals.builtin import standard
from namsa.crystals.material import Material
from namsa.crystals.sites import MAX_ELEMENT
from namsa.errors import InputError, WorkError
from namsa.files import write_text_atomic

FORMAT, VERSION = "namsa-materials-project", 1
FIELDS = ("material_id", "structure", "energy_above_hull", "theoretical", "last_updated")
SYMPREC = 0.01  # Å
BATCH = 100  # identifiers in one request: they stand in its address
KEY = "MP_API_KEY"
Tree = dict[str, Any]


class Client(Protocol):
    """The part of pymatgen's MPRester that is used."""

    def request(self, sub_url: str, payload: Tree | None = None, *, mp_decode: bool = True) -> list[Tree]: ...


def fetch(config: MaterialsProject) -> int:
    """Asks the server and writes the answer to `config.file`; the number of crystals.

    Raises InputError without a key, where the file is there already, and where nothing answers the question; WorkError
    where the server does not answer.
    """
    from pymatgen.ext.matproj import MPRester, MPRestError

    if config.file.exists():
        raise InputError(f"{config.file} is there already; delete it to ask the Materials Project again")
    if not config.file.parent.is_dir():
        raise InputError(f"there is no folder {config.file.parent} for the answer: make it first")
    key = os.environ.get(KEY, "")
    if not key:
        raise InputError(
            f"{KEY} is not set: get a key at https://materialsproject.org/api, then export {KEY}=... and run this again"
        )
    try:
        with MPRester(key) as client:
            documents = ask(config, client)
    except ValueError as error:  # of a key that is none
        raise InputError(f"{KEY}: {error}") from None
    except MPRestError as error:
        raise WorkError(f"the Materials Project does not answer: {' '.join(str(error).split())[:300]}") from None
    answer = {
        "format": FORMAT,
        "version": VERSION,
        "query": _query(config),
        "fetched": datetime.now(UTC).isoformat(timespec="seconds"),
        "source": "The Materials Project, https://materialsproject.org, CC BY 4.0; Jain et al. 2013",
        "documents": documents,
    }
    write_text_atomic(config.file, json.dumps(answer) + "\n")
    return len(documents)


def ask(config: MaterialsProject, client: Client) -> list[Tree]:
    """The documents of the crystals, sorted by identifier: first which there are, then those that are wanted."""
    found = _request(client, _criteria(config), ("material_id",))
    names = sorted({str(document["material_id"]) for document in found}, key=_hash)[: config.limit]
    if not names:
        raise InputError(f"the Materials Project has no crystal of {_query(config)}: ask for less")
    documents = []
    for start in range(0, len(names), BATCH):
        batch = {"material_ids": ",".join(names[start : start + BATCH])}
        documents += [{key: one.get(key) for key in FIELDS} for one in _request(client, batch, FIELDS)]
    return sorted(documents, key=lambda document: str(document["material_id"]))


def read(config: MaterialsProject) -> list[Material]:
    """The crystals in `config.file`, in the conventional cells of the International Tables.

    Raises InputError where the file is missing, holds the answer to another question, or is none.
    """
    path = config.file
    try:
        answer = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"there is no {path}: run namsa fetch CONFIG where there is a network, with {KEY} set"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {error}") from None
    if not isinstance(answer, dict) or answer.get("format") != FORMAT or answer.get("version") != VERSION:
        raise InputError(f"{path} is no answer of the Materials Project in format {FORMAT} {VERSION}: see namsa fetch")
    if answer["query"] != _query(config):
        raise InputError(
            f"{path} answers another question, {answer['query']}, than the configuration's, {_query(config)}: "
            "name another file, or delete it and run namsa fetch CONFIG"
        )
    return list(_materials(answer["documents"], str(path)))


def _materials(documents: Sequence[Tree], path: str) -> Iterator[Material]:
    for document in documents:
        try:
            name = str(document["material_id"])
            atoms = _atoms(document["structure"])
            hull = document["energy_above_hull"]
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise InputError(f"{path}: {document.get('material_id')} is no crystal as expected ({error!r})") from None
        if atoms.numbers.max() > MAX_ELEMENT:
            continue
        known = "calculated only" if document.get("theoretical") else "observed"
        energy = "" if hull is None else f", {hull:.3f} eV/atom above the hull"
        material = standard(atoms, f"Materials Project {name}, {known}{energy}", "materials_project", SYMPREC)
        yield replace(material, name=f"{material.name}-{name}")


def _atoms(structure: Tree) -> ase.Atoms:
    """From pymatgen's JSON of a structure; the database has no mixed sites."""
    for site in structure["sites"]:
        if len(site["species"]) != 1 or site["species"][0]["occu"] != 1:
            raise ValueError("a site is mixed")
    return ase.Atoms(
        symbols=[site["species"][0]["element"] for site in structure["sites"]],
        scaled_positions=np.array([site["abc"] for site in structure["sites"]], dtype=float),
        cell=np.array(structure["lattice"]["matrix"], dtype=float),
        pbc=True,
    )


def _request(client: Client, criteria: Tree, fields: Sequence[str]) -> list[Tree]:
    # Undecoded: what is read of the answer is numbers and names, not Python objects of the server's choosing.
    address = f"materials/summary/?_fields={','.join(fields)}&_all_fields=False"
    return client.request(address, payload=criteria, mp_decode=False)


def _criteria(config: MaterialsProject) -> Tree:
    """The question in the server's words, https://api.materialsproject.org/docs."""
    lists = ("material_ids", "formula", "chemsys", "elements", "exclude_elements")
    criteria: Tree = {name: ",".join(getattr(config, name)) for name in lists if getattr(config, name)}
    if config.max_energy_above_hull_ev is not None:
        criteria |= {"energy_above_hull_min": 0, "energy_above_hull_max": config.max_energy_above_hull_ev}
    if config.max_sites is not None:
        criteria |= {"nsites_min": 1, "nsites_max": config.max_sites}
    if config.observed:
        criteria["theoretical"] = "false"
    return criteria | {"deprecated": "false"}


def _query(config: MaterialsProject) -> Tree:
    return config.model_dump(mode="json", exclude_defaults=True, exclude={"file"})


def _hash(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()
