"""Hostile configurations and overrides, also of odd YAML: anchors, tags, merges, documents,
encodings.
"""

import json
import random
from contextlib import suppress
from pathlib import Path

import values
import yaml
from paths import CONFIGS, DATA
from values import Command

BASES = [
    yaml.safe_load((CONFIGS / name).read_text()) for name in ("quickstart.yaml", "microscope.yaml")
]
BASES.append(yaml.safe_load((DATA / "tiny.yaml").read_text()))
for _tree in BASES:
    _tree["materials"] = {"builtin": ["Al-225-cF4", "NaCl-225-cF8"]}
# Every number that the others leave at its default.
BASES.append(
    {
        "name": "full",
        "seed": 1,
        "materials": {"builtin": ["NaCl-225-cF8"], "max_atomic_number": 90, "limit": 2},
        "specimen": {
            "zone_axes": [[0, 0, 1]],
            "thickness_angstrom": [8.0],
            "lateral_angstrom": [12.0, 14.0],
            "max_strain": 0.02,
            "max_atoms": 2000,
            "frozen_phonons": {"rms_angstrom": {"Na": 0.1, "Cl": 0.08}, "configurations": 2},
        },
        "microscope": {
            "energy_ev": 2e5,
            "semiangle_mrad": 15.0,
            "aberrations": {"C12": 10.0, "phi12": 0.5, "C30": 1e4, "C50": 1e6},
            "source_size_angstrom": 0.5,
            "source_points": 2,
            "chromatic_aberration_mm": 1.2,
            "energy_spread_ev": 0.8,
            "focal_points": 2,
        },
        "variation": {
            "rule": "random",
            "configurations": 3,
            "defocus_angstrom": [-100.0, 100.0],
            "beam_tilt_mrad": [0.0, 2.0],
            "specimen_tilt_mrad": [0.0, 5.0],
            "electrons_per_pattern": [1e3, 1e5],
        },
        "scan": {"shape": [8, 12], "step_angstrom": [0.5, 0.5], "origin_angstrom": [0.1, 0.2]},
        "simulation": {"sampling_angstrom": 0.25, "slice_thickness_angstrom": 2.0},
        "detector": {"binning": 2, "max_angle_mrad": 30.0, "point_spread_pixels": 0.5},
        "target": {"at": "scan", "max_q_per_angstrom": 1.0},
        "data": {"samples_per_commit": 1},
        "network": {
            "input_shape": [64, 8, 12],
            "layers": [1, 1, 1],
            "growth": 4,
            "first_filters": 8,
            "dropout": 0.1,
        },
    }
)


def valid(folder: Path) -> list[Command]:
    """Returns commands that read every valid configuration and crystal; their files are written
    into `folder`.
    """
    commands: list[Command] = []
    for index, base in enumerate(BASES):
        path = folder / f"{index}.yaml"
        path.write_text(yaml.safe_dump(base))
        commands.append(("namsa", ["simulate", str(path), "--dry-run"]))
        commands.append(("fcdensenet", ["describe", str(path), "--json"]))
    # A name that is not known is compared with those of all crystals, which takes seconds the first
    # time.
    commands.append(
        (
            "namsa",
            ["simulate", str(folder / "2.yaml"), "--set", "materials.builtin=[none]", "--dry-run"],
        )
    )
    for crystal in sorted(DATA.glob("*.cif")):
        commands.append(
            ("namsa", ["simulate", str(folder / "2.yaml"), "--crystal", str(crystal), "--dry-run"])
        )
    return commands


def configuration(rng: random.Random, folder: Path) -> Command:
    """A configuration with odd values, or damaged as text."""
    path = folder / "c.yaml"
    base = rng.choice(BASES)
    text = yaml.safe_dump(base).encode()
    if rng.random() < 0.6:
        with suppress(RecursionError):
            text = yaml.safe_dump(values.changed_tree(base, rng), allow_unicode=True).encode(
                errors="surrogatepass"
            )
    else:
        text = values.damaged(text, rng)
    path.write_bytes(text)
    if rng.random() < 0.2:
        return "fcdensenet", ["describe", "c.yaml", "--json"]
    return "namsa", ["simulate", "c.yaml", "--dry-run"]


def extreme(rng: random.Random, folder: Path) -> Command:
    """A configuration of which some numbers are extreme."""
    (folder / "c.yaml").write_text(
        yaml.safe_dump(values.changed_tree(rng.choice(BASES), rng, extremes=True))
    )
    return rng.choice(
        (
            ("namsa", ["simulate", "c.yaml", "--dry-run"]),
            ("namsa", ["dataset", "c.yaml", "--out", "d", "--limit", "0"]),
            ("fcdensenet", ["describe", "c.yaml", "--json"]),
        )
    )


# ---- YAML and overrides

PREFIXES = (
    "&a ", "*a", "!!str ", "!!int ", "!!float ", "!!binary ", "!!set ", "!!omap ", "!!null ",
    "!a!b ", "!<x> ",
    "!!python/name:os.system ", "| ", "> ", "@", "`", "%", "? ", "- ", "'", '"', "{", "[", "\t",
    "# ", "!!merge ",
)  # fmt: skip
LINES = (
    "<<: *a", "<<: {seed: 1}", "<<: [{seed: 1}, {seed: 2}]", "<<: 1", "---", "...", "--- x",
    "%YAML 1.2", "%YAML 9.9",
    "%TAG ! x", "? [1, 2]", "? {a: b}", ": 1", "seed: 1", "name: &a", "- 1", "  seed: 2",
    "\tseed: 2", "=: 1", "~: 1",
    "1: 1", "yes: 1", "2001-01-01: 1", "specimen:", "name: |", "'name': x", '"\\ud800": 1',
    '"\\U0001f600": 1',
    "name: \u2028x", "name: \x85x", "name: \x7f", "x: &a [*a]", "specimen: &a {x: *a}",
    "name: 0o17", "seed: 1_0",
    "seed: 1:30:00", "seed: 0b1", "name: .inf", "name: >-\n\n  x\n y", "!!map {a: 1}",
)  # fmt: skip
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1", "utf-7", "cp500")
KEYS = (
    "", ".", "a..b", ".name", "name.", "name.x", "materials.builtin.0", "specimen.zone_axes.0.1",
    "specimen",
    "variation", "detector.shape.-1", "seed.0", "<<", "*", "network.layers[0]", "'seed'", "scan",
    "microscope",
    "specimen.frozen_phonons.rms_angstrom.Na", "simulation.grid_shape", "x" * 400,
    "training.optimizer",
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
            lines[at:at] = [
                f"x{n}: &x{n} [{f'*x{n - 1}, ' * 9 if n else '1'}]"
                for n in range(rng.choice((3, 30)))
            ]
        else:
            lines[at] = rng.choice(
                (
                    lines[at] * 2,
                    lines[at] + " " * 10**5,
                    lines[at].replace(": ", ":"),
                    lines[at][:5],
                )
            )
    encoding = rng.choice(ENCODINGS) if rng.random() < 0.2 else "utf-8"
    ends = rng.choice(("\n", "\n", "\n", "\r\n", "\r", "\x85"))
    (folder / "c.yaml").write_bytes(ends.join([*lines, ""]).encode(encoding, errors="replace"))
    if rng.random() < 0.2:
        return "fcdensenet", ["describe", "c.yaml"]
    return "namsa", ["simulate", "c.yaml", "--dry-run", *rng.choice(((), ("--json",)))]


ODD_VALUES = (
    "2024-13-45", "2001-12-14t21:59:43.10-05:00", "9" * 5000, "[" * 2000, "{a: " * 500,
    "!!python/object:os.system x", "!!binary x", "&a [*a]", "1e400", ".inf", ".nan", "'", "\x00",
    "<<: 1", "? x", "0x" + "f" * 5000, "=", "!!set {a}",
)  # fmt: skip


def overrides(rng: random.Random, folder: Path) -> Command:
    """One `--set` or several with odd keys and values: of lists, of sections as a whole, and of
    what is in them.
    """
    tree = rng.choice(BASES)
    (folder / "c.yaml").write_text(yaml.safe_dump(tree))
    paths = [path for path in values.places(tree) if path]
    words: list[str] = []
    for _ in range(rng.choice((1, 2, 3))):
        path = rng.choice(paths)
        value = values.at(tree, path)
        if rng.random() < 0.6:
            if isinstance(value, dict | list):
                value = values.changed_tree(value, rng)
            else:
                value = values.odd(rng)
        key = rng.choice((*KEYS, *values.WORDS)) if rng.random() < 0.3 else ".".join(map(str, path))
        if rng.random() < 0.7:
            text = json.dumps(value)
        else:
            text = yaml.safe_dump(value, default_flow_style=rng.random() < 0.5)
        text = rng.choice(ODD_VALUES) if rng.random() < 0.3 else text
        words += ["--set", f"{key}={text}".replace("\x00", "\\0")]
    return "namsa", ["simulate", "c.yaml", "--dry-run", *words]
