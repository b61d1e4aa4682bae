"""The Materials Project: the question as it is asked, the answer as a file, and the crystals in it; without a network.

`tests/data/materials_project.json` was written by hand in the shape that the server's documentation gives for
`/materials/summary/`; its numbers are about those of the database.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import requests
from ase.neighborlist import neighbor_list
from paths import DATA

from namsa.cli.parser import main
from namsa.config.materials import MaterialsProject
from namsa.crystals.materials_project import fetch, read
from namsa.errors import InputError, WorkError

RECORDED = json.loads((DATA / "materials_project.json").read_text())
KEY = "0123456789abcdef0123456789abcdef"


class Server:
    """Answers from the recorded documents, by identifier, with the fields that are asked for."""

    def __init__(self, status: int = 200) -> None:
        self.status, self.asked = status, []

    def get(self, session: requests.Session, url: str, params: dict[str, Any], **_: Any) -> requests.Response:
        assert session.headers["x-api-key"] == KEY
        assert url.startswith("https://api.materialsproject.org/materials/summary/?")
        self.asked.append(dict(params))
        fields = url.split("_fields=")[1].split("&", maxsplit=1)[0].split(",")
        wanted = params.get("material_ids", "").split(",")
        documents = [d for d in RECORDED["data"] if wanted == [""] or d["material_id"] in wanted]
        if "Xe" in params.get("elements", ""):
            documents = []
        answer = RECORDED | {"data": [{field: document[field] for field in fields} for document in documents]}
        response = requests.Response()
        response.status_code, response._content = self.status, json.dumps(answer).encode()
        return response


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    found = Server()
    monkeypatch.setenv("MP_API_KEY", KEY)

    def get(session: requests.Session, *args: Any, **kwargs: Any) -> requests.Response:
        return found.get(session, *args, **kwargs)

    monkeypatch.setattr(requests.Session, "get", get)
    return found


def query(tmp_path: Path, **given: Any) -> MaterialsProject:
    return MaterialsProject.model_validate({"file": tmp_path / "mp.json", "elements": ["Ti", "O"]} | given)


def test_the_answer_is_a_file_that_is_read_without_a_network(tmp_path, server, monkeypatch) -> None:
    asked = query(tmp_path, max_energy_above_hull_ev=0.5, max_sites=20)
    assert fetch(asked) == 3
    assert server.asked[0] == {
        "elements": "Ti,O",
        "energy_above_hull_min": 0,
        "energy_above_hull_max": 0.5,
        "nsites_min": 1,
        "nsites_max": 20,
        "deprecated": "false",
    }
    monkeypatch.delenv("MP_API_KEY")
    monkeypatch.setattr(requests.Session, "get", None)
    crystals = {material.name: material for material in read(asked)}
    assert list(crystals) == ["TiO2-225-cF12-mp-1008677", "TiO2-141-tI12-mp-390", "SrTiO3-221-cP5-mp-5229"]
    titanate, anatase = crystals["SrTiO3-221-cP5-mp-5229"], crystals["TiO2-141-tI12-mp-390"]
    assert titanate.atoms.cell.cellpar() == pytest.approx([3.9127] * 3 + [90] * 3)
    assert (titanate.kind, titanate.formula, titanate.space_group) == ("materials_project", "SrTiO3", "Pm-3m")
    assert anatase.source == "Materials Project mp-390, observed, 0.026 eV/atom above the hull"
    assert "calculated only" in crystals["TiO2-225-cF12-mp-1008677"].source
    # The conventional cell of what was given as the primitive one, with titanium among six oxygens.
    assert anatase.atoms.cell.cellpar() == pytest.approx([3.8059, 3.8059, 9.7261, 90, 90, 90])
    assert len(neighbor_list("i", anatase.atoms, {("Ti", "O"): 2.1})) == 2 * 4 * 6


def test_a_limit_is_kept_to_by_hash_and_asks_for_no_more_structures(tmp_path, server) -> None:
    assert fetch(query(tmp_path, limit=2)) == 2
    assert len(server.asked[1]["material_ids"].split(",")) == 2
    chosen = [document["material_id"] for document in json.loads((tmp_path / "mp.json").read_text())["documents"]]
    assert chosen == sorted(server.asked[1]["material_ids"].split(","))


def test_without_a_key_or_an_answer_it_is_said_what_to_do(tmp_path, server, monkeypatch) -> None:
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


def test_a_file_answers_its_own_question_only(tmp_path, server) -> None:
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


@pytest.mark.parametrize("fault", [{"structure": {"sites": []}}, {"structure": None}, {"structure": {}}])
def test_a_document_that_is_no_crystal_is_named(tmp_path, server, fault) -> None:
    fetch(query(tmp_path))
    answer = json.loads((tmp_path / "mp.json").read_text())
    answer["documents"][1] |= fault
    (tmp_path / "mp.json").write_text(json.dumps(answer))
    with pytest.raises(InputError, match="mp.json: mp-390 is no crystal"):
        read(query(tmp_path))


def test_the_command_fetches_what_the_configuration_asks(tmp_path, server, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "c.yaml"
    config.write_text(
        "simulation: {sampling_angstrom: 0.2}\n"
        "materials: {materials_project: {file: mp.json, elements: [Ti, O], max_energy_above_hull_ev: 0.1}}\n"
    )
    assert main(["fetch", str(config)]) == 0
    assert capsys.readouterr().out == "mp.json: 3 crystals\n"
    assert main(["fetch", str(config), "--set", "materials.materials_project=null"]) == 2
    assert "nothing to ask" in capsys.readouterr().err


def test_a_question_for_everything_is_refused(tmp_path) -> None:
    with pytest.raises(ValueError, match="200,000 crystals"):
        query(tmp_path, elements=[])
