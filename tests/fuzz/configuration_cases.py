"""Hostile configurations, overrides and crystals."""

import json
import random
from contextlib import suppress
from pathlib import Path

import values
import yaml
from case import Command
from paths import CONFIGS, DATA

BASES = [yaml.safe_load((CONFIGS / name).read_text()) for name in ("quickstart.yaml", "microscope.yaml")]
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
        "network": {"input_shape": [64, 8, 12], "layers": [1, 1, 1], "growth": 4, "first_filters": 8, "dropout": 0.1},
    }
)


def valid(folder: Path) -> list[Command]:
    """Returns commands that read every valid configuration and crystal; their files are written into `folder`."""
    commands: list[Command] = []
    for number, base in enumerate(BASES):
        path = folder / f"{number}.yaml"
        path.write_text(yaml.safe_dump(base))
        commands.append(("namsa", ["simulate", str(path), "--dry-run"]))
        commands.append(("fcdensenet", ["describe", str(path), "--json"]))
    # A name that is not known is compared with those of all crystals, which takes seconds the first time.
    commands.append(("namsa", ["simulate", str(folder / "2.yaml"), "--set", "materials.builtin=[none]", "--dry-run"]))
    for crystal in sorted(DATA.glob("*.cif")):
        commands.append(("namsa", ["simulate", str(folder / "2.yaml"), "--crystal", str(crystal), "--dry-run"]))
    return commands


def configuration(rng: random.Random, folder: Path) -> Command:
    """A configuration with odd values, or damaged as text."""
    path, base = folder / "c.yaml", rng.choice(BASES)
    text = yaml.safe_dump(base).encode()
    if rng.random() < 0.6:
        with suppress(RecursionError):
            text = yaml.safe_dump(values.changed_tree(base, rng), allow_unicode=True).encode(errors="surrogatepass")
    else:
        text = values.damaged(text, rng)
    path.write_bytes(text)
    if rng.random() < 0.2:
        return "fcdensenet", ["describe", "c.yaml", "--json"]
    return "namsa", ["simulate", "c.yaml", "--dry-run"]


def extreme(rng: random.Random, folder: Path) -> Command:
    """A configuration of which some numbers are extreme."""
    (folder / "c.yaml").write_text(yaml.safe_dump(values.changed_tree(rng.choice(BASES), rng, extremes=True)))
    return rng.choice(
        (
            ("namsa", ["simulate", "c.yaml", "--dry-run"]),
            ("namsa", ["dataset", "c.yaml", "--out", "d", "--limit", "0"]),
            ("fcdensenet", ["describe", "c.yaml", "--json"]),
        )
    )


def override(rng: random.Random, folder: Path) -> Command:
    """`--set` with odd keys and values."""
    tree = rng.choice(BASES)
    (folder / "c.yaml").write_text(yaml.safe_dump(tree))
    paths = [".".join(map(str, path)) for path in values.places(tree) if path and not isinstance(path[-1], int)]
    words = [
        "2024-13-45", "2001-12-14t21:59:43.10-05:00", "9" * 5000, "[" * 2000, "{a: " * 500,
        "!!python/object:os.system x", "!!binary x", "&a [*a]", "1e400", ".inf", ".nan", "'", "\x00",
        "<<: 1", "? x", "0x" + "f" * 5000, "=", "!!set {a}",
    ]  # fmt: skip
    value = rng.choice(words) if rng.random() < 0.6 else json.dumps(values.odd(rng))
    key = rng.choice(paths) if rng.random() < 0.8 else rng.choice(values.WORDS)
    return "namsa", ["simulate", "c.yaml", "--dry-run", "--set", f"{key}={value}".replace("\x00", "\\0")]


CIFS = [path.read_bytes() for path in sorted(DATA.glob("*.cif"))]


def cif(rng: random.Random, folder: Path) -> Command:
    """A CIF with damaged bytes, or with an odd number in place of one of its own."""
    data = rng.choice(CIFS)
    if rng.random() < 0.5:
        words = data.split(b" ")
        numbers = [i for i, word in enumerate(words) if word.strip().replace(b".", b"").replace(b"-", b"").isdigit()]
        for _ in range(rng.choice((1, 2))):
            odd = rng.choice(
                (b"0", b"-1", b"0.05", b"1e-9", b"1e9", b"1e400", b"nan", b"?", b".", b"90", b"180", b"1(2")
            )
            words[rng.choice(numbers)] = odd + rng.choice((b"", b"\n"))
        data = b" ".join(words)
    else:
        data = values.damaged(data, rng)
    (folder / "x.cif").write_bytes(data)
    (folder / "c.yaml").write_text(yaml.safe_dump(BASES[2]))
    return "namsa", ["simulate", "c.yaml", "--crystal", "x.cif", "--dry-run"]
