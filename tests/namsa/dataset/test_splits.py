"""Which materials are held out together."""

from collections import Counter

from ase.build import bulk

from namsa.config.materials import Split
from namsa.crystals.builtin import builtin_materials
from namsa.crystals.material import Material
from namsa.dataset.entry import assign, split_of

THIRDS = Split(train=0.4, dev=0.3, test=0.3, by="prototype")


def material(name, formula, space_group):
    return Material(name, formula, space_group, bulk("Al"), "made up")


def test_relatives_by_formula_or_prototype_are_in_one_split():
    """Rutile and anatase share a formula, rutile and cassiterite a prototype: all three go together."""
    crystals = builtin_materials()
    splits = assign(crystals, THIRDS)
    assert set(splits) == {"train", "dev", "test"}
    by_label = {}
    for crystal, split in zip(crystals, splits, strict=True):
        by_label.setdefault(crystal.formula, set()).add(split)
    assert all(len(splits) == 1 for splits in by_label.values())

    family = [material("rutile", "TiO2", "P4_2/mnm"), material("anatase", "TiO2", "I4_1/amd")]
    family += [material("cassiterite", "SnO2", "P4_2/mnm"), material("zircon", "ZrSiO4", "I4_1/amd")]
    others = [material(f"X{i}", f"Al{i}O", f"group {i}") for i in range(2, 40)]
    splits = assign([*others, *family], THIRDS)[-4:]
    assert len(set(splits[:3])) == 1


def test_kind_of_formula_and_space_group_make_a_prototype_whatever_the_elements():
    pairs = [(material(f"a{i}", f"Li{i}F", f"g{i}"), material(f"b{i}", f"Na{i}Cl", f"g{i}")) for i in range(2, 60)]
    splits = assign([each for pair in pairs for each in pair], THIRDS)
    assert splits[::2] == splits[1::2]
    assert len(Counter(splits)) == 3


def test_the_largest_family_is_learnt_from():
    elements = [material(symbol, symbol, "Fm-3m") for symbol in ("Al", "Au", "Ag", "Cu", "Ni")]
    others = [material(f"X{i}", f"Al{i}O", f"group {i}") for i in range(2, 30)]
    assert set(assign([*elements, *others], THIRDS)[:5]) == {"train"}
    assert set(assign(elements, Split(train=0, dev=0, test=1, by="prototype"))) == {"test"}


def test_by_formula_nothing_has_changed():
    crystals = builtin_materials()
    assert assign(crystals, Split()) == [split_of(crystal.formula, Split()) for crystal in crystals]
