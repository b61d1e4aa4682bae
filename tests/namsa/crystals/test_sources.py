"""Crystals from a user's function, substitution of ions, and duplicates from several sources."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ase.build import bulk
from paths import DATA
from pymatgen.core import Composition

from namsa.base.errors import InputError
from namsa.config.materials import Generator, Materials, Substitution
from namsa.crystals.builtin import builtin_materials, standardize
from namsa.crystals.cif import read_cif
from namsa.crystals.material import Material
from namsa.crystals.select import merge_duplicates, select_materials
from namsa.crystals.substitution import substitute_ions
from namsa.crystals.symmetry import space_group
from namsa.dataset.manifest import config_hash

GENERATOR = '''
import ase.build
import numpy as np

from namsa.crystals.material import Material

def alloys(count, seed, a=4.08):
    """Gold with silver on random sites."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        atoms = ase.build.bulk("Au", "fcc", a, cubic=True)
        atoms.numbers[rng.integers(4)] = 47
        atoms.info["name"] = f"gold-silver-{number}"
        yield atoms

def mixed():
    atoms = ase.build.bulk("Cu", "fcc", 3.7, cubic=True) + ase.build.bulk("Ni", "fcc", 3.7, cubic=True)
    atoms.set_array("occupancy", np.array([0.25] * 4 + [0.75] * 4))
    return [Material("mixed", "CuNi3", "?", atoms, "?")]

def nameless():
    return [ase.build.bulk("Au")]

def text():
    return ["Au"]

def nothing():
    return []

def overlapping():
    atoms = ase.build.bulk("Au", cubic=True) + ase.build.bulk("Ag", a=4.08, cubic=True)
    atoms.info["name"] = "overlapping"
    return [atoms]

def flat():
    return [ase.Atoms("Au", info={"name": "flat"})]

def fails(by=0):
    return 1 / by

number = 3
'''  # noqa: E501


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "my crystals.py"
    path.write_text(GENERATOR)
    return path


@pytest.fixture(scope="module")
def library() -> dict[str, Material]:
    return {material.name: material for material in builtin_materials()}


def generated(script: Path, function: str, **arguments: Any) -> Materials:
    return Materials(generator=Generator(function=f"{script}:{function}", arguments=arguments))


def test_a_function_runs_only_where_that_is_allowed(script: Path) -> None:
    script.write_text(f"open({str(script.with_name('ran'))!r}, 'w')")
    message = (
        "materials.generator .*crystals.py:alloys is Python code, which runs only from .* on the "
        "command line: give"
    )
    with pytest.raises(InputError, match=message):
        select_materials(generated(script, "alloys"))
    assert not script.with_name("ran").exists()


def test_a_functions_crystals_keep_their_cells_and_mixed_sites_their_symmetry(script: Path) -> None:
    first, second = select_materials(
        generated(script, "alloys", count=2, seed=3), run_generator=True
    )
    assert (first.name, first.formula) == ("gold-silver-0", "AgAu3")
    assert (first.space_group, first.kind) == ("Pm-3m", "generator")
    assert first.source.endswith("crystals.py:alloys, number 0")
    assert np.array_equal(first.atoms.cell.lengths(), [4.08] * 3)
    assert (
        second.name == "gold-silver-1"
    )  # of the same structure: those of one generator are not compared
    (mixed,) = select_materials(generated(script, "mixed"), run_generator=True)
    assert (mixed.space_group, len(mixed.atoms)) == ("Fm-3m", 8)
    assert (
        Composition(mixed.formula).fractional_composition
        == Composition("CuNi3").fractional_composition
    )


def test_a_function_in_a_package_is_found(monkeypatch: pytest.MonkeyPatch, script: Path) -> None:
    (script.parent / "package").mkdir()
    (script.parent / "package" / "made.py").write_text(GENERATOR)
    monkeypatch.syspath_prepend(script.parent)
    config = Materials(
        generator=Generator(function="package.made:alloys", arguments={"count": 1, "seed": 0})
    )
    assert [material.name for material in select_materials(config, run_generator=True)] == [
        "gold-silver-0"
    ]


def test_the_manifest_depends_on_a_functions_crystals_and_not_on_its_name(script: Path) -> None:
    import fake_samples

    def digest(path: Path, **arguments: float) -> str:
        materials = generated(path, "alloys", count=2, seed=3, **arguments)
        return config_hash(fake_samples.config(), select_materials(materials, run_generator=True))

    one = digest(script)
    other = digest(script, a=4.09)
    assert digest(script.rename(script.with_name("renamed.py"))) == one != other


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("nameless", r"number 0 is named '': set atoms.info\['name'\]"),
        ("text", "number 0 is a str: give ase.Atoms"),
        ("nothing", "gives no crystal"),
        ("overlapping", "overlapping of .* overlap"),
        ("flat", "flat of .* is no crystal"),
        ("fails", r"fails failed at .*crystals\.py:\d+: ZeroDivisionError: division by zero"),
        ("absent", "cannot find .*absent"),
        ("number", "is a int, not a function"),
        ("alloys", "failed at .*missing 2 required positional arguments"),
    ],
)
def test_errors_name_what_is_wrong_with_a_function(
    script: Path, function: str, message: str
) -> None:
    with pytest.raises(InputError, match=message) as refused:
        select_materials(generated(script, function), run_generator=True)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("place", ["no/such/file.py", "no.such.module"])
def test_a_missing_module_is_named(place: str) -> None:
    with pytest.raises(InputError, match=f"cannot find {place}:function"):
        select_materials(
            Materials(generator=Generator(function=f"{place}:function")), run_generator=True
        )


@pytest.mark.slow
def test_the_lattice_of_a_substituted_crystal_is_near_the_measured_one(
    library: dict[str, Material],
) -> None:
    """Against the handbook's lattice parameters of crystals that exist and were left out of the
    prototypes.
    """
    measured = {
        "NaBr-from-NaCl-225-cF8": 5.973,
        "ZnSe-from-ZnS-216-cF8": 5.668,
        "SrF2-from-CaF2-225-cF12": 5.800,
        "SrTiO3-from-CaTiO3-221-cP5": 3.905,
    }
    prototypes = [library[name.split("-from-")[1]] for name in measured]
    derived = substitute_ions(Substitution(limit=10_000), prototypes, 103)
    materials = {m.name: m for m in derived.materials}
    for name, length in measured.items():
        assert materials[name].atoms.cell.lengths() == pytest.approx([length] * 3, rel=0.03), name


@pytest.mark.slow
def test_substituted_crystals_are_neutral_ordered_and_labelled(
    library: dict[str, Material],
) -> None:
    prototypes = list(library.values())
    known = {(m.formula, m.space_group) for m in prototypes}
    materials = substitute_ions(Substitution(limit=60), prototypes, 83).materials
    assert len(materials) == len({m.name for m in materials}) == 60
    for material in materials:
        prototype = library[material.name.split("-from-")[1]]
        assert material.kind == "substituted"
        assert material.source.startswith(f"made up from {prototype.name}")
        assert (material.formula, material.space_group) not in known
        assert material.atoms.numbers.max() <= 83
        changed = material.atoms.numbers != prototype.atoms.numbers
        assert 0 < changed.sum() < len(changed)
        assert len(set(material.atoms.symbols[changed])) == 1
        shift = material.atoms.get_scaled_positions() - prototype.atoms.get_scaled_positions()
        assert np.allclose(shift, np.round(shift))
    fewer = substitute_ions(Substitution(limit=10), prototypes, 83).materials
    assert {m.name for m in fewer} < {m.name for m in materials}


def test_alloys_elements_and_mixed_crystals_are_no_prototypes(library: dict[str, Material]) -> None:
    prototypes = []
    for name in ("Cu-225-cF4", "Si-227-cF8", "SiC-186-hP8", "Al2Cu-140-tI12"):
        prototypes.append(library[name])
    mixed = [*prototypes, read_cif(DATA / "mixed_perovskite.cif")]
    assert substitute_ions(Substitution(limit=10), mixed, 103).materials == []


def test_duplicates_are_taken_from_the_preferred_source(library: dict[str, Material]) -> None:
    rocksalt = library["NaCl-225-cF8"]
    primitive = bulk("NaCl", "rocksalt", a=5.69)
    primitive.rotate(30, "y", rotate_cell=True)
    calculated = replace(
        standardize(primitive, "calculated"), name="NaCl-mp", kind="materials_project"
    )
    shifted = rocksalt.atoms.copy()
    shifted.positions += 0.7
    user = replace(rocksalt, name="z-my-salt", atoms=shifted, kind="cif", source="my.cif")
    made_up = replace(rocksalt, name="NaCl-from-KCl", kind="substituted")
    kept = merge_duplicates([made_up, rocksalt, library["CsCl-221-cP2"], calculated, user])
    assert [m.name for m in kept] == ["CsCl-221-cP2", "z-my-salt"]
    assert kept[-1].merged == (
        f"NaCl-mp ({calculated.source})",
        f"NaCl-225-cF8 ({rocksalt.source})",
        f"NaCl-from-KCl ({rocksalt.source})",
    )


def test_polymorphs_and_strained_structures_are_not_merged(library: dict[str, Material]) -> None:
    rocksalt = library["NaCl-225-cF8"]
    pressed = rocksalt.atoms.copy()
    pressed.set_cell(pressed.cell * 0.85, scale_atoms=True)
    others = [
        replace(rocksalt, name="pressed", atoms=pressed, kind="cif"),
        replace(standardize(bulk("NaCl", "zincblende", a=6.1), "x"), name="zincblende", kind="cif"),
        replace(
            standardize(bulk("NaCl", "cesiumchloride", a=3.5), "x"), name="caesium", kind="cif"
        ),
    ]
    assert merge_duplicates([rocksalt, *others]) == [rocksalt, *others]


def test_mixed_sites_are_compared_by_their_occupancies() -> None:
    mixed = read_cif(DATA / "mixed_perovskite.cif")
    same = replace(mixed, name="again", atoms=mixed.atoms.copy())
    assert [m.name for m in merge_duplicates([mixed, same])] == ["again"]
    swapped = mixed.atoms.copy()
    swapped.symbols[[i for i, s in enumerate(mixed.atoms.symbols) if s in ("Sr", "Ba")]] = [
        "Ba",
        "Sr",
    ]
    assert len(merge_duplicates([mixed, replace(mixed, name="other", atoms=swapped)])) == 2
    assert space_group(mixed.atoms) == mixed.space_group


def test_the_library_has_no_duplicates_and_merging_is_optional(
    library: dict[str, Material], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "namsa.crystals.select.builtin_materials", lambda formulas=None: tuple(library.values())
    )
    assert [m.name for m in select_materials(Materials(builtin="all"))] == list(library)
    for m in select_materials(Materials(builtin="all")):
        assert not m.merged
    chosen = {"builtin": ("ZrO2-14-mP12", "NaCl-225-cF8"), "cif": (DATA / "baddeleyite.cif",)}
    assert [m.name for m in select_materials(Materials(**chosen))] == [
        "NaCl-225-cF8",
        "baddeleyite",
    ]
    assert len(select_materials(Materials(**chosen, merge_duplicates=False))) == 3
    with_more = select_materials(Materials(**chosen, substitute=Substitution(limit=2)))
    assert [m.kind for m in with_more].count("substituted") == 2
