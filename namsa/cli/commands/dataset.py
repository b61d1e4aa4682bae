"""`namsa dataset`, `merge` and `export`: datasets are simulated, joined and written as HDF5."""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from namsa.base.errors import InputError, WorkError
from namsa.base.files import make_folder, write_text_atomic
from namsa.base.launcher import bind_to_share, local_rank_and_size, rank_and_size
from namsa.base.outputs import check_output
from namsa.base.pixels import pattern_grid
from namsa.base.text import plural
from namsa.cli.commands.output import (
    HDF5_SUFFIXES,
    print_estimate,
    print_failures,
    print_json,
    print_line,
    progress_bars,
    stage_bars,
)
from namsa.config.simulation import SimulationConfig, load_config
from namsa.crystals.select import select_materials
from namsa.dataset import estimate, factory, identity, manifest, shards, strata
from namsa.dataset.empty import check_not_empty, failures_of
from namsa.dataset.failures import most_common_reasons, read_failures
from namsa.dataset.merge import merge as merge_datasets
from namsa.dataset.records import Record
from namsa.dataset.sharing import RankLayout
from namsa.dataset.slab_file import write_slab_file
from namsa.io import hdf5
from namsa.samples.sample import Sample


def dataset(options: argparse.Namespace) -> None:
    """Simulates this rank's share; the last line is JSON. Raises WorkError if samples failed, now
    or before.
    """
    config = load_config(options.config, options.overrides)
    rank, size = rank_and_size(_number(options.rank, "--rank"), _number(options.size, "--size"))
    if options.dry_run:
        materials = select_materials(config.materials, run_generator=True)
        print_estimate(estimate.estimate_dataset(config, materials, size), options.json)
        return
    if options.manifest_only:
        _write_manifest(config, options.out)
        return
    local_rank, local_size = local_rank_and_size()
    device = bind_to_share(local_rank, local_size)
    limits = factory.RunLimits.of_machine(
        local_size, options.force, options.limit, options.time_limit
    )
    if size > 1:
        print(
            f"rank {rank} of {size}, {local_size} on this machine, takes {device}", file=sys.stderr
        )
    layout = RankLayout(rank, size, local_size)
    try:
        with stage_bars() as on_progress:
            on_sample = partial(on_progress, f"rank {rank} of {size}")
            on_sample(0, None)
            summary = factory.produce(config, options.out, layout, limits, on_sample=on_sample)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"interrupted; the samples in {options.out} are kept, and the same command continues "
            "from there"
        ) from None
    print_json(summary)
    failed = summary["failed"]
    if failed:
        failures = read_failures(options.out, config.samples_hash())
        reasons = most_common_reasons(failures) or "out of memory"
        count = failed + summary["written"] + summary["present"]
        raise WorkError(
            f"{failed} of {plural(count, 'sample')} could not be simulated ({reasons}); "
            f"{options.out}/failed-*.jsonl says which"
        )


def _write_manifest(config: SimulationConfig, directory: Path) -> None:
    """Writes the manifest of a dataset and simulates nothing."""
    start = time.monotonic()
    make_folder(directory)
    entries = manifest.read_if_current(directory, config)
    if entries is None:
        entries = manifest.ensure(
            directory, config, select_materials(config.materials, run_generator=True)
        )
    identity.write_settings(directory, config)
    counts = strata.count_strata(entries)
    write_text_atomic(
        directory / "strata.json", json.dumps(counts, indent=1, ensure_ascii=False) + "\n"
    )
    for name, value in strata.table_rows(counts):
        print(f"{name}: {value}")
    samples = counts["samples"]
    summary = {
        "materials": sum(counts["materials"].values()),
        "configurations": sum(samples.values()),
        **samples,
        "seconds": round(time.monotonic() - start, 3),
    }
    print_json(summary)


def _number(text: str, option: str) -> int | None:
    """Returns the number in `text`, None for "auto"."""
    if text == "auto":
        return None
    try:
        return int(text)
    except ValueError:
        raise InputError(f"{option} is {text!r}; it must be auto or a number") from None


def merge(options: argparse.Namespace) -> None:
    """Joins datasets; the summary is the last line, as JSON."""
    with stage_bars() as on_progress:
        summary = merge_datasets(options.directories, options.out, partial(on_progress, "merge"))
    print_json(summary)


def export(options: argparse.Namespace) -> int | None:
    """Writes a dataset or a scan, or several scans, one after the other."""
    if len(options.data) == 1:
        _export_one(argparse.Namespace(**vars(options) | {"data": options.data[0]}))
        return None
    if options.to is None or options.to in ("stemdl", "npz"):
        raise InputError(
            f"{len(options.data)} DATA are given, and --to is {options.to or 'not given'}: several "
            "scans are exported for ptyrad, phaser, py4dstem, quantem or zspy"
        )
    from namsa.cli.many_scans import treat_scans

    suffix = ".zspy" if options.to == "zspy" else ""
    return treat_scans(options, options.data, suffix, _export_one, {})


def _export_one(options: argparse.Namespace) -> None:
    """Writes a dataset's samples to a file, and names those whose simulation failed; with --to,
    writes a scan.
    """
    if options.tiles and (options.to or options.compression != "none"):
        raise InputError(
            "--tiles writes a dataset uncompressed: leave out --to and --compression, or --tiles"
        )
    if options.to:
        from namsa.cli.commands import exchange

        exchange.export(options)
        return
    folder = os.path.dirname(os.path.realpath(options.out))
    is_input = options.out.exists() and folder == os.path.realpath(options.data)
    if is_input and options.out.suffix not in HDF5_SUFFIXES:
        raise InputError(
            f"--out {options.out} is a file of the dataset: name a new file that ends in .h5"
        )
    check_output(options.out, shards.shard_paths(options.data), makes_folders=True)
    with shards.Dataset(options.data) as data, progress_bars() as progress:
        failures = failures_of(options.data, data)
        if not data.ids:
            print_failures(failures)
        check_not_empty(options.data, data)
        beyond: list[str] = []
        task = progress.add_task("export", total=len(data.ids))

        def on_sample(name: str, sample: Sample | Record) -> None:
            if empty := pattern_grid(sample.provenance).emptiness(sample.cbed.shape[1:]):
                beyond.append(f"{name}: {empty}")
            progress.advance(task)

        def samples() -> Iterator[tuple[str, Sample]]:
            for name in data.ids:
                sample = data.read_sample(name)
                yield name, sample
                on_sample(name, sample)

        if options.tiles:
            count = write_slab_file(options.out, data, on_sample)
        else:
            count = hdf5.write_samples(options.out, samples(), options.compression)
    print_line(f"{options.out}: {plural(count, 'sample')}, {len(failures)} failed")
    print_failures(failures)
    if beyond:
        print_line(f"warning: of {plural(len(beyond), 'sample')}, as {beyond[0]}", sys.stderr)
