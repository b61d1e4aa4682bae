"""`namsa schema`: the keys of a configuration."""

import argparse
import json

from pydantic import BaseModel

from namsa.config.reference import key_tables
from namsa.config.simulation import SimulationConfig


def schema(options: argparse.Namespace) -> None:
    """Prints the keys of what `namsa` reads."""
    print_schema(SimulationConfig, options)


def print_schema(config: type[BaseModel], options: argparse.Namespace) -> None:
    """Prints the JSON schema of a configuration, or tables of its keys in Markdown."""
    keys = config.model_json_schema()
    print(key_tables(keys) if options.markdown else json.dumps(keys, indent=0, ensure_ascii=False))
