"""What each `namsa` command does, with progress on stderr and results on stdout."""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from namsa.cli import doctor as doctors
from namsa.config.simulation import load
from namsa.crystals import materials_project
from namsa.crystals import select as materials
from namsa.crystals.cif import read_cif
from namsa.dataset import estimate as estimates
from namsa.dataset import factory, manifest, shards
from namsa.dataset import merge as merging
from namsa.dataset import repair as repairs
from namsa.dataset import verify as verification
from namsa.dataset.failures import not_made
from namsa.dataset.simulate_entry import simulate_entry
from namsa.errors import InputError
from namsa.io import hdf5
from namsa.launcher import bind_to_share, local_rank_and_size, rank_and_size
from namsa.sample import Sample
from namsa.text import plural
from namsa.view import info as infos
from namsa.view import panels as pictures
from namsa.view import viewer


def simulate(options: argparse.Namespace) -> None:
    """One stack: the configuration's first material (or --crystal), zone axis and thickness."""
    if options.json and not options.dry_run:
        raise InputError("--json goes with --dry-run; `namsa info FILE.h5 --json` says what a stack holds")
    config = load(options.config, options.overrides)
    material = read_cif(options.crystal) if options.crystal else materials.select(config.materials)[0]
    specimen = config.specimen
    first = specimen.model_copy(
        update={"zone_axes": specimen.zone_axes[:1], "thickness_angstrom": specimen.thickness_angstrom[:1]}
    )
    config = config.model_copy(update={"specimen": first})
    entry = manifest.build(config, (material,))[0]
    if entry.skipped:
        raise InputError(f"{entry.id}: {entry.skipped}")
    if options.dry_run:
        _print_estimate(estimates.stack(config, material, entry), options.json)
        return
    path = options.out or Path(f"{entry.id}.h5")
    if path.suffix not in (".h5", ".hdf5", ".emd"):
        raise InputError(f"--out {path}: end it in .h5, .hdf5 or .emd; the preview becomes {path.with_suffix('.png')}")
    if not options.out and path.exists():
        raise InputError(f"{path} is there already, perhaps of another microscope: name another file with --out")
    with _progress() as progress:
        tasks: dict[str, TaskID] = {}

        def on_progress(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = progress.add_task(stage)
            progress.update(tasks[stage], completed=done, total=total)

        sample = simulate_entry(config, material, entry, on_progress)
    hdf5.write(path, [(entry.id, sample)])
    preview = pictures.show(sample, path.with_suffix(".png"))
    print(f"{path}  {preview}")


def dataset(options: argparse.Namespace) -> None:
    """This rank's share; the summary is the last line, as JSON."""
    config = load(options.config, options.overrides)
    rank, size = rank_and_size(_number(options.rank, "--rank"), _number(options.size, "--size"))
    if options.dry_run:
        _print_estimate(estimates.dataset(config, materials.select(config.materials), size), options.json)
        return
    local_rank, local_size = local_rank_and_size()
    device = bind_to_share(local_rank, local_size)
    if size > 1:
        print(f"namsa: rank {rank} of {size}, {local_size} on this machine, takes {device}", file=sys.stderr)
    with _progress() as progress:
        task = progress.add_task(f"rank {rank} of {size}", total=None)
        summary = factory.produce(
            config,
            options.out,
            rank,
            size,
            local_size=local_size,
            limit=options.limit,
            time_limit_s=options.time_limit,
            on_sample=lambda done, total: progress.update(task, completed=done, total=total),
        )
    print(json.dumps(summary))


def _print_estimate(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(found, ensure_ascii=False))
        return
    table = Table(box=None, show_header=False)
    for name, value in estimates.rows(found):
        table.add_row(name, value)
    Console().print(table)


def _number(text: str, name: str) -> int | None:
    if text == "auto":
        return None
    try:
        return int(text)
    except ValueError:
        raise InputError(f"{name} is {text!r}; it must be auto or a number") from None


def _print_failures(failures: Mapping[str, str]) -> None:
    for sample_id, reason in failures.items():
        print(f"failed {sample_id}: {reason}")


def verify(options: argparse.Namespace) -> int:
    """Exit code 1 where a record is corrupt."""
    found = verification.verify(options.directory)
    if options.json:
        print(json.dumps(found, ensure_ascii=False))
        return 1 if found["corrupt"] else 0
    counts = ", ".join(f"{len(found[kind])} {kind}" for kind in ("corrupt", "missing", "repeated"))
    print(
        f"{plural(found['samples'], 'sample')}, {counts}, {found['failed']} failed, {found['skipped']} cannot be built"
    )
    for kind in ("corrupt", "missing", "repeated"):
        for sample_id in found[kind]:
            print(f"{kind} {sample_id}")
    _print_failures(found["failures"])
    if found["corrupt"]:
        print(f"namsa: namsa repair {options.directory} moves what is corrupt aside", file=sys.stderr)
    return 1 if found["corrupt"] else 0


def repair(options: argparse.Namespace) -> None:
    """What is damaged goes into a folder beside the rest."""
    found = repairs.repair(options.directory)
    if options.json:
        print(json.dumps(found, ensure_ascii=False))
    elif not found["shards"]:
        print("nothing is damaged")
    else:
        for shard in found["shards"]:
            what = "the file is damaged" if shard["damaged"] else ", ".join(shard["moved"])
            print(f"{found['quarantine']}/{shard['shard']}: {what}; {shard['kept']} whole samples kept")
        print("the next namsa dataset makes what is missing")


def merge(options: argparse.Namespace) -> None:
    """The summary is the last line, as JSON."""
    with _progress() as progress:
        task = progress.add_task("merge", total=None)
        summary = merging.merge(
            options.directories,
            options.out,
            lambda done, total: progress.update(task, completed=done, total=total),
        )
    print(json.dumps(summary))


def info(options: argparse.Namespace) -> None:
    """What a dataset or a file holds: samples, and the first one's arrays with their axes and units; or only names."""
    found = infos.dataset(options.path) if options.path.is_dir() else infos.file(options.path)
    names = infos.ids(found)
    found.pop("ids", None)  # of tens of thousands of samples only where they are asked for
    if options.ids:
        print(json.dumps(names) if options.json else "\n".join(names))
    else:
        print(json.dumps(found, ensure_ascii=False) if options.json else infos.text(found))


def show(options: argparse.Namespace) -> None:
    """Pictures of one sample, as a page to look through where --out ends in .html, and beside it with --html."""
    name, sample = _find_sample(options.sample)
    out = options.out or Path(f"{name}.png")
    if out.suffix == ".html":
        print(viewer.write(sample, out, name))
        return
    print(pictures.show(sample, out))
    if options.html:
        print(viewer.write(sample, out.with_suffix(".html"), name))


def _find_sample(path: Path) -> tuple[str, Sample]:
    if path.is_file():
        return next(hdf5.read(path))
    directory, wanted = (path, None) if path.is_dir() else (path.parent, path.name)
    with shards.Dataset(directory) as data:
        if not data.ids:
            raise InputError(f"{directory} holds no sample yet")
        name = wanted or data.ids[0]
        if name not in data.ids:
            raise InputError(f"no file {path}, and no sample {name} in {directory}; `namsa info {directory}` lists it")
        return name, data.read(name, check=True).sample()


def export(options: argparse.Namespace) -> None:
    """All of a dataset's samples, one group each; what is not among them because it failed is said."""
    with shards.Dataset(options.directory) as data, _progress() as progress:
        task = progress.add_task("export", total=len(data.ids))

        def samples() -> Iterator[tuple[str, Sample]]:
            for name in data.ids:
                yield name, data.read(name, check=True).sample()
                progress.advance(task)

        count = hdf5.write(options.out, samples())
        failures = not_made(options.directory, data.config_hash or "", data.ids)
    print(f"{options.out}: {plural(count, 'sample')}, {len(failures)} failed")
    _print_failures(failures)


def crystals(options: argparse.Namespace) -> None:
    """The built-in crystals by name."""
    rows = [(m.name, m.formula, m.space_group, len(m.atoms), m.source) for m in materials.builtin()]
    columns = ("name", "formula", "space group", "atoms", "source")
    if options.json:
        print(json.dumps([dict(zip(columns, row, strict=True)) for row in rows], ensure_ascii=False))
        return
    table = Table(*columns, box=None)
    for row in rows:
        table.add_row(*map(str, row))
    Console().print(table)


def fetch(options: argparse.Namespace) -> None:
    """The Materials Project's answer to the configuration's query, into the file that it names."""
    query = load(options.config, options.overrides).materials.materials_project
    if query is None:
        raise InputError(f"{options.config} has no section materials.materials_project: there is nothing to ask")
    print(f"{query.file}: {materials_project.fetch(query)} crystals")


def doctor(options: argparse.Namespace) -> int:
    """Exit code 1 where something needed is missing."""
    found = doctors.report()
    if options.json:
        print(json.dumps(found, ensure_ascii=False))
    else:
        Console().print(doctors.table(found))
    return 0 if found["ok"] else 1


@contextmanager
def _progress() -> Iterator[Progress]:
    """Bars on a terminal's stderr; nothing where stderr is a file, which a batch job's log would be."""
    console = Console(file=sys.stderr)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield progress
