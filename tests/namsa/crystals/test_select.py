"""Materials: the built-in crystals, CIF files also of hostile content, and the selection for an
experiment.
"""

import hashlib
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import spglib
from ase.neighborlist import neighbor_list
from cif_files import density
from paths import DATA
from pymatgen.core import Element

from namsa import InputError
from namsa.config.materials import Materials
from namsa.crystals.builtin import builtin_materials
from namsa.crystals.material import Material
from namsa.crystals.select import select_materials


@pytest.fixture(scope="module")
def library() -> dict[str, Material]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        return {material.name: material for material in builtin_materials()}


@pytest.fixture
def built_once(library: dict[str, Material], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "namsa.crystals.select.builtin_materials", lambda formulas=None: tuple(library.values())
    )


def test_formulas_select_from_the_whole_library(library: dict[str, Material]) -> None:
    formulas = {
        "C",
        "KAg_CN_2",
        "Fe",
    }  # names that differ in Wyckoff letters, brackets, an element of ASE
    some = builtin_materials(formulas)
    assert [m.name for m in some] == [
        name for name in library if name.partition("-")[0] in formulas
    ]
    for material in some:
        np.testing.assert_array_equal(
            material.atoms.positions, library[material.name].atoms.positions
        )
        assert material.source == library[material.name].source


def test_builtin_materials_are_sorted_and_have_safe_names(library: dict[str, Material]) -> None:
    assert len(library) == 341
    assert list(library) == sorted(library)
    for name in library:
        assert re.fullmatch(r"[A-Za-z0-9_]+-\d+-[amothc][PCIFR]\d+(-[a-z]+)?", name)
    for name, material in library.items():
        assert set(re.findall(r"[A-Z][a-z]?", name.split("-")[0])) == set(material.atoms.symbols)
    assert {
        "NaCl-225-cF8",
        "CaTiO3-221-cP5",
        "Si-227-cF8",
        "C-194-hP4-bc",
        "C-194-hP4-f",
    } <= library.keys()


def test_builtin_cells_have_the_named_space_group_and_the_density_of_handbooks(
    library: dict[str, Material],
) -> None:
    for name in (
        "NaCl-225-cF8",
        "Al2O3-167-hR10",
        "ZrO2-14-mP12",
        "Mg-194-hP2",
        "Bi-166-hR2",
        "PI2-2-aP6",
    ):
        material = library[name]
        cell = (
            material.atoms.cell[:],
            material.atoms.get_scaled_positions(),
            material.atoms.numbers,
        )
        assert (
            spglib.get_spacegroup(cell, symprec=1e-3)
            == f"{material.space_group} ({name.split('-')[1]})"
        )
    assert len(library["NaCl-225-cF8"].atoms) == 8
    assert len(library["Al2O3-167-hR10"].atoms) == 30
    assert library["Al2O3-167-hR10"].atoms.cell.angles() == pytest.approx([90, 90, 120])
    states = [material for material in library.values() if material.source.startswith("ASE")]
    assert len(states) == 60
    for material in states:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # noble gases have no density as solids here
            known = Element(material.formula).density_of_solid
        if known:
            assert density(material.atoms) == pytest.approx(known / 1000, rel=0.07), material.name
    minerals = {
        "NaCl-225-cF8": 2.165,
        "TiO2-136-tP6": 4.25,
        "CaF2-225-cF12": 3.18,
        "Al2O3-167-hR10": 3.99,
    }
    for name, expected in minerals.items():
        assert density(library[name].atoms) == pytest.approx(expected, rel=0.02)


def test_misprints_are_left_out(library: dict[str, Material]) -> None:
    sources = " ".join(material.source for material in library.values())
    for misprint in ("AB_mP4_11_e_e", "ABC_cP12_198_a_a_a Ullmanite", "sigma_tP30"):
        assert misprint not in sources
    for material in library.values():
        assert not np.any(neighbor_list("d", material.atoms, 0.95)), material.name


@pytest.mark.usefixtures("built_once")
def test_select_takes_names_files_and_folders_sorted(tmp_path: Path) -> None:
    (tmp_path / "kyanite.cif").write_text((DATA / "kyanite.cif").read_text())
    (tmp_path / "notes.txt").write_text("no crystal")
    config = Materials(
        builtin=("Si-227-cF8", "Cu-225-cF4"), cif=(DATA / "baddeleyite.cif", tmp_path)
    )
    assert [m.name for m in select_materials(config)] == [
        "Cu-225-cF4",
        "Si-227-cF8",
        "baddeleyite",
        "kyanite",
    ]


@pytest.mark.usefixtures("built_once")
def test_select_limits_by_element_and_by_hash(library: dict[str, Material]) -> None:
    light = select_materials(Materials(builtin="all", max_atomic_number=30))
    assert {m.name for m in light} == {
        m.name for m in library.values() if m.atoms.numbers.max() <= 30
    }
    by_hash = sorted(
        (m.name for m in light), key=lambda name: hashlib.sha256(name.encode()).hexdigest()
    )
    few = select_materials(Materials(builtin="all", max_atomic_number=30, limit=10))
    assert [m.name for m in few] == sorted(by_hash[:10])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (Materials(), "names no material"),
        (Materials(builtin=("Si-227-cF9",)), "Si-227-cF9 is not known; nearest are Si-227-cF8"),
        (Materials(builtin=("MoS2-2H-1L",)), r"give materials.layers: \[MoS2-2H-1L\]"),
        (Materials(builtin=("MoS2-2H",)), r"give materials.layers: \[MoS2-2H\]"),
        (Materials(builtin=("GaN.cif",)), r"Give materials.cif: \[GaN.cif\]"),
        (
            Materials(builtin=("Au-225-cF4",), max_atomic_number=30),
            "all 1 materials.*max_atomic_number 30",
        ),
        (
            Materials(cif=(DATA / "kyanite.cif", DATA / "kyanite.cif")),
            r"2 materials are called kyanite \(.*kyanite",
        ),
        (Materials(builtin=("Al-225-cF4",) * 2001), "2001 materials are called Al-225-cF4"),
        (Materials(cif=(Path(__file__).parent,)), "holds no .cif"),
        (Materials(cif=(DATA / "broken.cif",)), "broken"),
    ],
)
@pytest.mark.usefixtures("built_once")
def test_select_refuses(config: Materials, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        select_materials(config)
    assert len(str(error.value)) < 500


# ---- Hostile CIF files
# ------------------------------------------------------------------------------------------------
