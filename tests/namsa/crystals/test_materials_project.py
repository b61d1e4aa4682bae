"""The Materials Project without a network: the query, the file with the answer, and the crystals in
it.

`tests/data/materials_project.json` was written by hand in the shape that the server's documentation
gives for `/materials/summary/`; its numbers are about those of the database.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import requests
from ase.neighborlist import neighbor_list
from paths import DATA

from namsa.base.errors import InputError, WorkError
from namsa.cli.parser import main
from namsa.config.materials import MaterialsProject
from namsa.crystals.materials_project import fetch, read

RECORDED = json.loads((DATA / "materials_project.json").read_text())
KEY = "0123456789abcdef0123456789abcdef"


class Server:
    """Answers from the recorded documents, by identifier, with the requested fields."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.requests = []

    def get(
        self, session: requests.Session, url: str, params: dict[str, Any], **_: Any
    ) -> requests.Response:
        assert session.headers["x-api-key"] == KEY
        assert url.startswith("https://api.materialsproject.org/materials/summary/?")
        self.requests.append(dict(params))
        fields = url.split("_fields=")[1].split("&", maxsplit=1)[0].split(",")
        identifiers = params.get("material_ids", "").split(",")
        documents = []
        for d in RECORDED["data"]:
            if identifiers == [""] or d["material_id"] in identifiers:
                documents.append(d)
        if "Xe" in params.get("elements", ""):
            documents = []
        answer = RECORDED | {
            "data": [{field: document[field] for field in fields} for document in documents]
        }
        response = requests.Response()
        response.status_code = self.status
        response._content = json.dumps(answer).encode()
        return response


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    recorded = Server()
    monkeypatch.setenv("MP_API_KEY", KEY)

    def get(session: requests.Session, *args: Any, **kwargs: Any) -> requests.Response:
        return recorded.get(session, *args, **kwargs)

    monkeypatch.setattr(requests.Session, "get", get)
    return recorded


def query(tmp_path: Path, **settings: Any) -> MaterialsProject:
    return MaterialsProject.model_validate(
        {"file": tmp_path / "mp.json", "elements": ["Ti", "O"]} | settings
    )


def test_the_answer_is_a_file_that_is_read_without_a_network(tmp_path, server, monkeypatch) -> None:
    config = query(tmp_path, max_energy_above_hull_ev=0.5, max_sites=20)
    assert fetch(config) == 3
    assert server.requests[0] == {
        "elements": "Ti,O",
        "energy_above_hull_min": 0,
        "energy_above_hull_max": 0.5,
        "nsites_min": 1,
        "nsites_max": 20,
        "deprecated": "false",
    }
    monkeypatch.delenv("MP_API_KEY")
    monkeypatch.setattr(requests.Session, "get", None)
    crystals = {material.name: material for material in read(config)}
    assert list(crystals) == [
        "TiO2-225-cF12-mp-1008677",
        "TiO2-141-tI12-mp-390",
        "SrTiO3-221-cP5-mp-5229",
    ]
    titanate = crystals["SrTiO3-221-cP5-mp-5229"]
    anatase = crystals["TiO2-141-tI12-mp-390"]
    assert titanate.atoms.cell.cellpar() == pytest.approx([3.9127] * 3 + [90] * 3)
    assert (titanate.kind, titanate.formula, titanate.space_group) == (
        "materials_project",
        "SrTiO3",
        "Pm-3m",
    )
    assert anatase.source == "Materials Project mp-390, observed, 0.026 eV/atom above the hull"
    assert "calculated only" in crystals["TiO2-225-cF12-mp-1008677"].source
    # The conventional cell, made from the primitive one, with titanium among six oxygens.
    assert anatase.atoms.cell.cellpar() == pytest.approx([3.8059, 3.8059, 9.7261, 90, 90, 90])
    assert len(neighbor_list("i", anatase.atoms, {("Ti", "O"): 2.1})) == 2 * 4 * 6


def test_a_limit_chooses_by_hash_and_limits_the_requested_structures(tmp_path, server) -> None:
    assert fetch(query(tmp_path, limit=2)) == 2
    assert len(server.requests[1]["material_ids"].split(",")) == 2
    chosen = []
    for document in json.loads((tmp_path / "mp.json").read_text())["documents"]:
        chosen.append(document["material_id"])
    assert chosen == sorted(server.requests[1]["material_ids"].split(","))


def test_errors_without_criteria_a_key_or_an_answer_name_the_remedy(
    tmp_path, server, monkeypatch
) -> None:
    with pytest.raises(ValueError, match="200,000 crystals"):  # without criteria
        query(tmp_path, elements=[])
    with pytest.raises(InputError, match="no crystal of .*Xe.*ask for less"):
        fetch(query(tmp_path, elements=["Xe"]))
    with pytest.raises(InputError, match="no folder .*absent"):
        fetch(query(tmp_path / "absent"))
    server.status = 403
    with pytest.raises(WorkError, match="does not answer.*403"):
        fetch(query(tmp_path))
    monkeypatch.setenv("MP_API_KEY", "short")
    with pytest.raises(InputError, match="MP_API_KEY: Invalid or old"):
        fetch(query(tmp_path))
    monkeypatch.delenv("MP_API_KEY")
    with pytest.raises(InputError, match="MP_API_KEY is not set: get a key"):
        fetch(query(tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_file_is_read_for_its_own_query_only(tmp_path, server) -> None:
    with pytest.raises(InputError, match="run namsa fetch CONFIG"):
        read(query(tmp_path))
    fetch(query(tmp_path))
    with pytest.raises(InputError, match="is there already"):
        fetch(query(tmp_path))
    with pytest.raises(InputError, match="answers another question"):
        read(query(tmp_path, max_sites=4))
    (tmp_path / "mp.json").write_text('{"format": "other"}')
    with pytest.raises(InputError, match="is no answer"):
        read(query(tmp_path))


@pytest.mark.parametrize(
    "fault", [{"structure": {"sites": []}}, {"structure": None}, {"structure": {}}]
)
def test_a_malformed_document_is_named(tmp_path, server, fault) -> None:
    fetch(query(tmp_path))
    answer = json.loads((tmp_path / "mp.json").read_text())
    answer["documents"][1] |= fault
    (tmp_path / "mp.json").write_text(json.dumps(answer))
    with pytest.raises(InputError, match="mp.json: mp-390 is no crystal"):
        read(query(tmp_path))


def test_the_command_fetches_the_configurations_query(
    tmp_path, server, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "c.yaml"
    config.write_text(
        "simulation: {sampling_angstrom: 0.2}\n"
        "materials: {materials_project: {file: mp.json, elements: [Ti, O], "
        "max_energy_above_hull_ev: 0.1}}\n"
    )
    assert main(["fetch", str(config)]) == 0
    assert capsys.readouterr().out == "mp.json: 3 crystals\n"
    assert main(["fetch", str(config), "--set", "materials.materials_project=null"]) == 2
    assert "nothing to ask" in capsys.readouterr().err
