"""Configurations whose YAML itself is odd: anchors, tags, merges, documents, encodings; overrides of any shape."""

import json
import random
from pathlib import Path

import values
import yaml
from case import Command
from configuration_cases import BASES

PREFIXES = (
    "&a ", "*a", "!!str ", "!!int ", "!!float ", "!!binary ", "!!set ", "!!omap ", "!!null ", "!a!b ", "!<x> ",
    "!!python/name:os.system ", "| ", "> ", "@", "`", "%", "? ", "- ", "'", '"', "{", "[", "\t", "# ", "!!merge ",
)  # fmt: skip
LINES = (
    "<<: *a", "<<: {seed: 1}", "<<: [{seed: 1}, {seed: 2}]", "<<: 1", "---", "...", "--- x", "%YAML 1.2", "%YAML 9.9",
    "%TAG ! x", "? [1, 2]", "? {a: b}", ": 1", "seed: 1", "name: &a", "- 1", "  seed: 2", "\tseed: 2", "=: 1", "~: 1",
    "1: 1", "yes: 1", "2001-01-01: 1", "specimen:", "name: |", "'name': x", '"\\ud800": 1', '"\\U0001f600": 1',
    "name: \u2028x", "name: \x85x", "name: \x7f", "x: &a [*a]", "specimen: &a {x: *a}", "name: 0o17", "seed: 1_0",
    "seed: 1:30:00", "seed: 0b1", "name: .inf", "name: >-\n\n  x\n y", "!!map {a: 1}",
)  # fmt: skip
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1", "utf-7", "cp500")
KEYS = (
    "", ".", "a..b", ".name", "name.", "name.x", "materials.builtin.0", "specimen.zone_axes.0.1", "specimen",
    "variation", "detector.shape.-1", "seed.0", "<<", "*", "network.layers[0]", "'seed'", "scan", "microscope",
    "specimen.frozen_phonons.rms_angstrom.Na", "simulation.grid_shape", "x" * 400, "training.optimizer",
)  # fmt: skip


def yaml_text(rng: random.Random, folder: Path) -> Command:
    """A configuration whose text has odd lines, odd values, or an odd encoding."""
    lines = yaml.safe_dump(rng.choice(BASES)).splitlines()
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(lines))
        action = rng.randrange(5)
        indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
        if action == 0:
            lines.insert(at, indent + rng.choice(LINES))
        elif action == 1:
            key, colon, value = lines[at].partition(": ")
            lines[at] = key + colon + rng.choice(PREFIXES) + value
        elif action == 2:
            lines[at] = rng.choice(("", " ", "   ", "\t")) + lines[at].strip()
        elif action == 3:
            lines[at:at] = [f"x{n}: &x{n} [{f'*x{n - 1}, ' * 9 if n else '1'}]" for n in range(rng.choice((3, 30)))]
        else:
            lines[at] = rng.choice(
                (lines[at] * 2, lines[at] + " " * 10**5, lines[at].replace(": ", ":"), lines[at][:5])
            )
    encoding = rng.choice(ENCODINGS) if rng.random() < 0.2 else "utf-8"
    ends = rng.choice(("\n", "\n", "\n", "\r\n", "\r", "\x85"))
    (folder / "c.yaml").write_bytes(ends.join([*lines, ""]).encode(encoding, errors="replace"))
    if rng.random() < 0.2:
        return "fcdensenet", ["describe", "c.yaml"]
    return "namsa", ["simulate", "c.yaml", "--dry-run", *rng.choice(((), ("--json",)))]


def overrides(rng: random.Random, folder: Path) -> Command:
    """Several `--set` of lists, of sections as a whole, and of what is in them."""
    tree = rng.choice(BASES)
    (folder / "c.yaml").write_text(yaml.safe_dump(tree))
    paths = [path for path in values.places(tree) if path]
    words: list[str] = []
    for _ in range(rng.choice((1, 2, 3))):
        path = rng.choice(paths)
        value = values.at(tree, path)
        if rng.random() < 0.6:
            value = values.changed_tree(value, rng) if isinstance(value, dict | list) else values.odd(rng)
        key = rng.choice(KEYS) if rng.random() < 0.3 else ".".join(map(str, path))
        text = json.dumps(value) if rng.random() < 0.7 else yaml.safe_dump(value, default_flow_style=rng.random() < 0.5)
        words += ["--set", f"{key}={text}".replace("\x00", "\\0")]
    return "namsa", ["simulate", "c.yaml", "--dry-run", *words]
