"""`python -m fcdensenet describe CONFIG [--set network.key=value] [--json]`: what an experiment's network weighs.

Reads only the `network` section of the experiment's YAML. Exit codes: 0 done, 2 bad input.
"""

import argparse
import difflib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from rich.console import Console

from fcdensenet.config import NetworkConfig
from fcdensenet.count import count
from fcdensenet.describe import as_json, layer_table, sums_table


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m fcdensenet", description=__doc__)
    describe = parser.add_subparsers(required=True, metavar="COMMAND").add_parser(
        "describe", help="parameters, FLOP and activation memory, by layer and in all"
    )
    describe.add_argument("config", type=Path, metavar="CONFIG", help="an experiment's YAML with a network section")
    describe.add_argument("--set", action="append", default=[], metavar="network.key=value", dest="overrides")
    describe.add_argument("--json", action="store_true", help="one JSON object on stdout instead of the tables")
    options = parser.parse_args(arguments)
    try:
        config = read_network(options.config, options.overrides)
    except ValueError as error:
        print(f"fcdensenet: {error}", file=sys.stderr)
        return 2
    weighed, recomputed = count(config), count(config, recompute=not config.block_norm)
    if options.json:
        print(json.dumps(as_json(weighed, recomputed)))
    else:
        Console().print(layer_table(weighed), sums_table(weighed, recomputed))
    return 0


def read_network(path: Path, overrides: Sequence[str] = ()) -> NetworkConfig:
    """The `network` section of the YAML at `path` after overrides. Raises ValueError of one line naming every fault."""
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"cannot read the configuration {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(tree, dict) or not isinstance(tree.get("network"), dict):
        raise ValueError(f"{path} has no section 'network': add one with at least input_shape: [channels, y, x]")
    section = tree["network"] | dict(_override(text) for text in overrides)
    try:
        return NetworkConfig.model_validate(section)
    except ValidationError as error:
        raise ValueError(f"{path}: " + "; ".join(_fault(fault) for fault in error.errors())) from None


def _override(text: str) -> tuple[str, Any]:
    path, equals, value = text.partition("=")
    section, _, key = path.strip().partition(".")
    if section != "network" or not key or not equals:
        raise ValueError(f"--set {text}: write it as --set network.key=value")
    try:
        return key, yaml.safe_load(value)
    except yaml.YAMLError:
        raise ValueError(f"--set {text}: {value!r} is not a YAML value") from None


def _fault(fault: Any) -> str:
    where = ".".join(["network", *map(str, fault["loc"])])
    if fault["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(fault["loc"][-1]), NetworkConfig.model_fields, n=1, cutoff=0.0)
        return f"unknown key {where}; did you mean {near[0]}?"
    given = "" if isinstance(fault["input"], dict) else f" (given {fault['input']!r})"
    return f"{where}: {fault['msg'].removeprefix('Value error, ')}{given}"


if __name__ == "__main__":
    sys.exit(main())
