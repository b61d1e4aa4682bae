"""Every block of README and of the documentation: commands are understood, and those of the guides
run in order.

Each page has a folder of its own, as empty as a fresh checkout. What takes hours or belongs to
another machine is only parsed, with its configuration and overrides: pages of benchmarks, commands
of batch systems, and those with `skip`.
"""

import ast
import re
import shlex
import sys
import time
from pathlib import Path

import dft_files
import guides
import launch
import matplotlib
import pytest
import yaml
from paths import ROOT

from namsa.cli import parser as namsa_parser
from namsa.cli.commands.starter import init
from namsa.config.simulation import load_config
from train.commands import parser as train_parser
from train.experiment.experiment import load

DOCS = ROOT / "docs"
PAGES = sorted(
    page
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")]
    if "_build" not in page.parts and guides.blocks(page)
)
LANGUAGES = {"bash", "include", "python", "yaml", "text", "eval-rst", "toctree"}
LANGUAGES |= {"code-cell"}  # which the build of the site runs
OF_NETWORKS = {"describe", "scaling"}  # which read the section network alone
# Five crystals: three to train on, one of dev, and one of test.
FEW = (
    "--set materials.limit=5 --set split='{train: 0.17, dev: 0.05, test: 0.78}' --set "
    "training.epochs=1 --set training.validation=null"
)
FEW += " --set training.batch_size=2"
# FC-DenseNet
SMALL = "--set network.layers=[1,1,1] --set network.growth=8 --set network.first_filters=16"
SMALL_RESNET = "--set network.width=4 --set network.units=[1,1,1]"
# Not run as they are: a pattern, and `skip` or arguments that make the command small.
CHANGES = {
    "pip *": "skip",
    "pytest*": "skip",
    "namsa simulate *": "--set specimen.thickness_angstrom=[8]",
    "namsa simulate first-hour/starter.yaml*": "--set scan.shape=[32,32]",
    "namsa simulate stem.yaml --*": "--set specimen.lateral_angstrom=[8,8]",
    "namsa simulate stem.yaml --out sto.h5": "--set scan.shape=[4,6]",
    "namsa simulate stem.yaml --crystal run.extxyz *": "--set scan.shape=[2,3] --set "
    "simulation.accuracy=0.05",
    "* substitute: {limit: 300}}*": "--set materials.substitute.limit=8 --set materials.limit=8",
    # The shipped network that takes the same data in half of the time; Python on these pages has
    # the other.
    "*reconstruct * --checkpoint 200kv-20mrad-reality *": "--checkpoint 200kv-20mrad-fast",
    "*reconstruct * --thickness-angstrom 50 *": "--thickness-angstrom 8",
    "*reconstruct * --refine *": "--refine-steps 2",
    "*configs/quickstart.yaml*": f"{FEW} --set specimen.thickness_angstrom=[20] {SMALL}",
    "namsa dataset set.yaml --out data/*here *": "--limit 1",
    "* --dry-run --ranks 4*": "--set training.batch_size=1",
    "*trial.yaml*": f"{FEW} --set simulation.accuracy=0.05 --set specimen.zone_axes=[[0,0,1]] "
    f"{SMALL}",
    "namsa simulate trial.yaml *": "--set scan.shape=[32,32]",
    "*scripts/bench/*": "skip",
    "jsrun *": "skip",
    "* --supervise *horovodrun -np 4": "skip",
    "* --supervise *jsrun *": "skip",
    "*training.checkpoints.every_seconds=300*": "skip",  # a training, as slurm_cpu.sh starts it
    "namsa-train profile *": "skip",
    "horovodrun * namsa-train profile *": "skip",
    "namsa-train scaling --compare *": "skip",  # two runs
    # as microscope.md does with its own network
    "namsa-train calibrate runs/quickstart": "skip",
    "namsa-train calibrate runs/trial": "--simulated 2",
    r"* reconstruct \*.mib *": "skip",  # the reader's own scans
    "*rotavirus*": "skip",  # the file is not of this repository
    "*namsa fetch *": "skip",  # needs a network
    "*configs/80kv.yaml*": "skip",  # minutes to list all materials
    "*configs/paper.yaml*": "skip",
    "*train configs/classify.yaml*": f"{FEW} {SMALL_RESNET} --set specimen.thickness_angstrom=[8] "
    "--set training.classify='{label: zone_axis}' --set network.classes=3",
    "*train configs/thickness.yaml*": f"{FEW} {SMALL_RESNET} --set "
    "specimen.thickness_angstrom=[4,8,12,16,20]",
    "*train configs/potential_clusters.yaml*": f"{FEW} {SMALL_RESNET} --set "
    "specimen.thickness_angstrom=[8]",
    "*train configs/depth.yaml*": f"{FEW} --set specimen.thickness_angstrom=[40] --set "
    "specimen.zone_axes=[[0,0,1]]",
    "*train configs/depth.yaml": SMALL,
    "*train configs/embed.yaml*": f"{FEW} --set materials.limit=8",
    "namsa simulate configs/embed.yaml *": "--set specimen.thickness_angstrom=[20]",
    "*train configs/estimate.yaml*": f"{FEW} --set network.filters=[4,4,4] --set "
    "variation.configurations=2",
    "*configs/estimate.yaml*": "--set specimen.thickness_angstrom=[20] --set "
    "variation.thickness_angstrom=[10,20]",
    "*train configs/segment.yaml*": f"{FEW} {SMALL} --set specimen.thickness_angstrom=[8] --set "
    "materials.limit=8 "
    # two of each split, for a phase in the other
    "--set split='{train: 0.17, dev: 0.2, test: 0.63}'",
}
# Packages that no test has: Python that imports them is read only.
OTHERS = ("py4DSTEM", "hyperspy", "libertem", "torch", "grain")
GUIDES = [
    "index",
    "simulate",
    "datasets",
    "view",
    "exchange",
    "reading",
    "inspect",
    "reconstruct",
    "tasks",
]
GUIDES += ["live", "microscope", "networks", "cluster"]
GUIDES += [f"tasks/{path.stem}" for path in sorted((DOCS / "tasks").glob("*.md"))]
RUN = ("README.md", *(f"docs/{name}.md" for name in GUIDES))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_are_understood(page, tmp_path, monkeypatch):
    """Commands have arguments that exist, of configurations that exist; Python and YAML can be
    read.
    """
    guides.lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)
    for block in guides.blocks(page):
        place = f"{page.name}:{block.line}"
        assert block.language in LANGUAGES, place
        if block.language == "bash":
            log = tmp_path / f"{block.line}.log"
            done = guides.bash(block.text, tmp_path, {"GUIDE_LOG": str(log)})
            assert done.returncode == 0, f"{place}: {done.stderr}"
            for words in guides.recorded(log):
                check(words, place)
        elif block.language == "python":
            ast.parse(block.text, place)
        elif block.language == "yaml":
            yaml.safe_load(block.text)
        if block.file:
            Path(block.file).write_text(block.text, encoding="utf-8")


def check(words, place):
    """Parses the arguments of a command, and the configuration that it names with its overrides."""
    if words[0] in ("horovodrun", "jsrun"):  # the launcher's own words end at the program
        programs = ("python", "namsa", "namsa-train")
        start = next((n for n, word in enumerate(words) if word in programs), len(words))
        words = words[start:]
    program, *rest = words or [""]
    if program == "python" and rest and rest[0].endswith(".py"):
        return check_script(rest[0], rest[1:], place)
    if program == "python" and rest[:1] == ["-m"]:
        program, *rest = rest[1:]
    build = {"namsa": namsa_parser.build_parser}.get(program, train_parser.build_parser)
    if program not in ("namsa", "namsa-train", "train"):
        return None
    try:
        options = build().parse_args(rest[: rest.index("--")] if "--" in rest else rest)
    except SystemExit:
        pytest.fail(f"{place}: {shlex.join(words)}")
    if options.run.endswith(":init"):  # whose files the page's other commands name
        options.folder.exists() or init(options)
    config = getattr(options, "config", None)
    if config is not None and program == "namsa":
        load_config(config, options.overrides)
    elif config is not None and rest[0] not in OF_NETWORKS:
        load(config, options.overrides)
    return None


def check_script(name, arguments, place):
    """A script that a page names has the options.

    One that is not there is at the commit that the page names, which test_docs.py checks.
    """
    path = ROOT / name
    if not path.is_file():
        page = next(page for page in PAGES if page.name == place.split(":")[0])
        assert re.search(r"\bcommit [0-9a-f]{8}\b", page.read_text(encoding="utf-8")), place
        return
    text = path.read_text(encoding="utf-8")
    for module in re.findall(r"^(?:from|import) (\w+)", text, flags=re.MULTILINE):
        beside = path.with_name(f"{module}.py")
        text += beside.read_text(encoding="utf-8") if beside.is_file() else ""
    for option in (word for word in arguments if re.fullmatch(r"--[a-z][\w-]*", word)):
        assert re.search(f'"({option}|{option[2:].replace("-", "_")}|{option[2:]})"', text), (
            f"{place}: {name} {option}"
        )


@pytest.mark.slow  # simulations, trained networks and a job of two ranks
@pytest.mark.parametrize("name", RUN)
def test_commands_and_code_run_in_order_in_an_empty_folder(name, tmp_path, monkeypatch):
    guides.lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    matplotlib.use("agg")
    settings = {
        "GUIDE_LOG": str(tmp_path / "commands.log"),
        "GUIDE_RUN": "1",
        "GUIDE_PYTHON": launch.forked_python(),
        "GUIDE_HOROVODRUN": str(launch.HOROVODRUN),
        "GUIDE_CHANGES": "\n".join(f"{pattern}\t{change}" for pattern, change in CHANGES.items()),
    }
    if name == "docs/exchange.md":  # whose density is the reader's own
        density = dft_files.independent_atoms(dft_files.crystal())
        for share, file in ((0.25, "AECCAR0"), (0.75, "AECCAR2")):
            dft_files.write_chgcar(tmp_path / file, dft_files.crystal(), share * density)
    names = {"__name__": "__main__"}
    for block in guides.blocks(ROOT / name):
        place = f"{name}:{block.line}"
        print(place, time.strftime("%X"), flush=True)
        if block.file:
            Path(block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "bash":
            done = guides.bash(block.text, tmp_path, settings)
            assert done.returncode == 0, (
                f"{place}\n{block.text}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
            )
        elif block.language == "python" and not re.search(
            f"^import ({'|'.join(OTHERS)})", block.text, re.MULTILINE
        ):
            exec(compile(block.text, place, "exec"), names)
