"""`namsa crystals` and `fetch`: the crystals that come with namsa, and those of the Materials
Project.
"""

import argparse

from namsa.base.errors import InputError
from namsa.cli.commands.output import print_json, print_table
from namsa.config.simulation import load_config
from namsa.crystals import materials_project
from namsa.crystals.builtin import builtin_materials
from namsa.crystals.layers import layer_materials

COLUMNS = ("name", "formula", "space group", "atoms", "source")


def crystals(options: argparse.Namespace) -> None:
    """Prints the built-in crystals by name, then the films of layered crystals."""
    materials = (*builtin_materials(), *layer_materials())
    rows = [(m.name, m.formula, m.space_group, len(m.atoms), m.source) for m in materials]
    if options.json:
        print_json([dict(zip(COLUMNS, row, strict=True)) for row in rows])
    else:
        print_table((tuple(map(str, row)) for row in rows), COLUMNS)


def fetch(options: argparse.Namespace) -> None:
    """Writes the Materials Project's answer to the configuration's query into the file that the
    query names.
    """
    query = load_config(options.config, options.overrides).materials.materials_project
    if query is None:
        raise InputError(
            f"{options.config} has no section materials.materials_project: there is nothing to ask"
        )
    print(f"{query.file}: {materials_project.fetch(query)} crystals")
