"""`namsa inspect`: the calibration of a scan, measured from its own patterns."""

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from namsa.base.errors import InputError
from namsa.base.outputs import check_output
from namsa.cli.calibration_options import layout, pair
from namsa.cli.commands.output import print_json, print_line, print_table, stage_bars
from namsa.cli.many_scans import is_for_many, treat_scans
from namsa.crystals.structure_files import read_crystal
from namsa.inspection.inspect import inspect as measure
from namsa.inspection.inspection import Inspection
from namsa.io.calibration_file import readable
from namsa.view.inspection_figure import (
    caption,
    contrast_line,
    draw_inspection,
    write_inspection_page,
    write_scan_images,
)

PICTURES = (".png", ".pdf", ".svg")
MOST_LINES = 20  # about bad pixels


def inspect(options: argparse.Namespace) -> int | None:
    """Measures the calibration of a scan, or of several, one after the other."""
    if not is_for_many(options.data, options.out):
        _inspect_one(argparse.Namespace(**vars(options) | {"data": options.data[0]}))
        return None
    given = [name for name in ("png", "html", "images") if getattr(options, name) is not None]
    if given:
        raise InputError(
            f"--{given[0]} is for one scan, and --out {options.out} is a folder: leave it out, or "
            "give one scan and FILE.json"
        )

    def inspect_one(one: argparse.Namespace) -> None:
        _inspect_one(argparse.Namespace(**vars(one) | {"json": False}))

    return treat_scans(options, options.data, ".json", inspect_one, {})


def _inspect_one(options: argparse.Namespace) -> None:
    """Prints what a scan's patterns say of its calibration, and writes it to the files that are
    asked for.
    """
    outputs = {
        "--out": options.out,
        "--png": options.png,
        "--html": options.html,
        "--images": options.images,
    }
    _check_options(options, outputs)
    with stage_bars() as on_progress:
        inspection = measure(
            options.data,
            crystal=None if options.crystal is None else read_crystal(options.crystal).atoms,
            zone_axis=options.zone_axis and tuple(options.zone_axis),
            lattice_angstrom=options.lattice_angstrom,
            focus=options.focus,
            on_progress=on_progress,
            dataset=options.dataset,
            energy_ev=options.energy_ev,
            semiangle_mrad=options.semiangle_mrad,
            scan_step_angstrom=pair(options.scan_step_angstrom, "--scan-step-angstrom"),
            pixel_mrad=pair(options.pixel_mrad, "--pixel-mrad"),
            rotation_deg=options.rotation_deg,
            flip=options.mirrored,
            **layout(options),
        )
    if options.out is not None:
        inspection.save(options.out)
    if options.png is not None:
        draw_inspection(inspection, options.png)
    if options.html is not None:
        write_inspection_page(inspection, options.html)
    if options.images is not None:
        write_scan_images(inspection, options.images)
    if options.json:
        print_json(inspection.as_json())
    else:
        _print(inspection, [path for path in outputs.values() if path is not None])


def _check_options(options: argparse.Namespace, outputs: Mapping[str, Path | None]) -> None:
    """Raises InputError if outputs are no files to write, or options do not go together.

    Args:
        outputs: What to write, by option; `None` for what is not asked for.
    """
    inputs = [path for path in (options.data, options.crystal) if path is not None]
    places = [os.path.realpath(path) for path in outputs.values() if path is not None]
    if len(set(places)) < len(places):
        raise InputError(f"{', '.join(outputs)} name one file twice: name another for each")
    if options.images is not None and options.images.exists() and not options.images.is_dir():
        raise InputError(f"--images {options.images} is a file: name a folder")
    for option, path in outputs.items():
        if path is not None and option != "--images":
            check_output(path, inputs, option)
    if options.png is not None and options.png.suffix not in PICTURES:
        raise InputError(f"--png {options.png} does not end in one of {', '.join(PICTURES)}")
    if options.zone_axis is not None and (options.crystal is None or not any(options.zone_axis)):
        raise InputError(
            "--zone-axis is a direction of the crystal that --crystal names: give both, not all "
            "zeros"
        )


def _print(inspection: Inspection, written: Sequence[Path]) -> None:
    """Prints facts, numbers and notes for people."""
    facts = inspection.facts
    print_line(f"{inspection.recording.name}: {caption(inspection)}")
    for name, plural in (
        ("saturated_values", "values are the largest that the counter holds"),
        ("negative_values", "values are below 0"),
    ):
        if facts[name]:
            print_line(f"{facts[name]} {plural}")
    pixels = facts["hot_dead_pixels"]
    for pixel in pixels[:MOST_LINES]:
        print_line(
            f"{pixel['kind']} pixel {tuple(pixel['pixel'])}, {pixel['sigmas']:g} standard "
            "deviations"
        )
    if len(pixels) > MOST_LINES:
        print_line(f"and {len(pixels) - MOST_LINES} more bad pixels, which --json lists")
    if facts.get("flyback_columns"):
        print_line(
            f"columns {facts['flyback_columns']} differ abruptly: the beam may be flying back, see "
            "--flyback"
        )
    methods = [quantity.method for quantity in inspection.calibration.quantities.values()]
    print_table(
        [
            (*row, method)
            for row, method in zip(readable(inspection.calibration), methods, strict=True)
        ]
    )
    contrast = contrast_line(inspection)
    if contrast:
        print_line(contrast)
    for note in inspection.calibration.notes:
        print_line(f"note: {note}")
    for path in written:
        print_line(str(path))
