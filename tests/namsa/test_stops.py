"""Commands that are stopped at any of their file events lose nothing, and end well when they are run again."""

import argparse
import hashlib
import importlib
import sys
from pathlib import Path

import fake_samples
import numpy as np
import pytest
import yaml
from stops import SIGNALS, Command, faults

from namsa.cli.commands import examples
from namsa.cli.parser import main
from namsa.config.simulation import load_config
from namsa.crystals.select import select_materials

BEAM = ["--energy-ev", "200e3", "--semiangle-mrad", "4", "--pixel-mrad", "1.5", "--scan-step-angstrom", "0.5"]
SIMULATION = {
    "materials": {"builtin": ["Al-225-cF4"]},
    "simulation": {"grid_shape": [32, 32], "slice_thickness_angstrom": 2.0},
    "detector": {"shape": [8, 8]},
    "scan": {"shape": [3, 4]},
    "specimen": {"thickness_angstrom": [4], "lateral_angstrom": [5, 5]},
}
EXAMPLE = examples.Example("scan.bin", 9, hashlib.sha256(bytes(9)).hexdigest(), *("",) * 4)
EXPORTS = {
    "ptyrad": ("patterns.h5", "first.h5", "ptyrad.yaml"),
    "phaser": ("patterns.h5", "first.h5", "phaser.yaml"),
    "py4dstem": ("patterns.h5", "parameters.json", "reconstruct.py"),  # and quantem
    "zspy": ("scan.zspy",),
}


def write_scan(folder: Path, seed: int = 0) -> None:
    np.save(folder / "scan.npy", np.random.default_rng(seed).poisson(9.0, (3, 4, 8, 8)).astype(np.uint16))


def export(program: str) -> Command:
    out = "scan.zspy" if program == "zspy" else "."
    words = ("export", "scan.npy", "--to", program, "--out", out, *BEAM)
    words += () if program == "zspy" else ("--defocus-angstrom", "80")

    def prepare(folder: Path) -> None:
        write_scan(folder)
        if program != "zspy":  # beside those of an earlier scan
            write_scan(folder, seed=1)
            assert not main(["export", str(folder / "scan.npy"), *words[2:5], str(folder), *words[6:]])
            write_scan(folder)

    return Command(words, prepare, main, EXPORTS[program])


def write_config(folder: Path) -> None:
    (folder / "c.yaml").write_text(yaml.safe_dump(SIMULATION))
    load_config(folder / "c.yaml")  # what is imported here need not be in each child
    importlib.import_module("namsa.cli.commands.simulate")
    select_materials(load_config(folder / "c.yaml").materials)


def write_dataset(folder: Path) -> None:
    fake_samples.produce(folder / "data", settings=fake_samples.config(**SIMULATION))


def write_example(folder: Path) -> None:
    (folder / "source").mkdir()
    (folder / "source" / EXAMPLE.name).write_bytes(bytes(EXAMPLE.bytes))


def main_with_example(words: list[str]) -> int:
    examples.EXAMPLES = (EXAMPLE,)  # of the child
    return main(words)


COMMANDS = {
    **{program: export(program) for program in EXPORTS},
    "simulate": Command(("simulate", "c.yaml", "--out", "cell.h5"), write_config, main, ("cell.h5", "cell.png")),
    "export": Command(("export", "data", "--out", "data.h5"), write_dataset, main, ("data.h5",)),
    "show": Command(("show", "data", "--out", "page.html"), write_dataset, main, ("page.html",)),
    "init": Command(("init", "new"), lambda folder: None, main, ("new",)),
    "examples": Command(
        ("examples", "fetch", "scan.bin", "--from", "source"), write_example, main_with_example, ("scan.bin",)
    ),
}


SLOW = ("simulate", "show", "zspy")  # import Matplotlib or Zarr in each child


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in COMMANDS])
def test_a_stop_at_some_events_loses_nothing(name):
    """A few events of each command; `python tests/namsa/test_stops.py` takes all of them."""
    rng = np.random.default_rng(len(name))

    def some(count: int) -> list[int]:
        return sorted(int(event) for event in rng.choice(count, min(3, count), replace=False) + 1)

    for number in ("SIGKILL", "SIGTERM"):
        assert not list(faults(COMMANDS[name], number, some))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Stops every command at every file event, by every signal.")
    parser.add_argument("commands", nargs="*", default=list(COMMANDS), choices=[[], *COMMANDS])
    wrong = 0
    for command in parser.parse_args().commands:
        for each in SIGNALS:
            for fault in faults(COMMANDS[command], each, lambda count: range(1, count + 1)):
                print(fault, flush=True)
                wrong += 1
        print(f"{command}: done", file=sys.stderr, flush=True)
    sys.exit(bool(wrong))
