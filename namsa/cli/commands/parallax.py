"""`namsa parallax`: the bright-field image of a defocused scan on fine pixels."""

import argparse
import math

from namsa.base.outputs import check_output
from namsa.cli.calibration_options import calibration_overrides, layout
from namsa.cli.commands.output import print_json, print_line, print_table, stage_bars
from namsa.figures.panels import picture_format
from namsa.parallax.parallax import Parallax, parallax_image

ARRAYS = (".npy", ".tif", ".tiff")  # endings of files that are no pictures


def parallax(options: argparse.Namespace) -> None:
    """Aligns the bright-field images of a scan, writes their sum and prints what it is made of."""
    inputs = [path for path in (options.data, options.calibration) if path is not None]
    check_output(options.out, inputs)
    if options.out.suffix and options.out.suffix.lower() not in ARRAYS:
        picture_format(options.out)
    aberrations = None
    if options.defocus_angstrom is not None:
        aberrations = {"C10": -options.defocus_angstrom}
    with stage_bars() as on_progress:
        result = parallax_image(
            options.data,
            upsampling=options.upsampling,
            calibration=options.calibration,
            aberrations=aberrations,
            on_progress=on_progress,
            **_stated(options),
            **layout(options),
        )
    result.save(options.out)
    if options.json:
        print_json(_facts(result))
        return
    print_table([(name, str(value)) for name, value in _rows(result)])
    for note in result.notes:
        print_line(f"note: {note}")
    print_line(str(options.out))


def _stated(options: argparse.Namespace) -> dict[str, object]:
    """Returns the numbers that the options give."""
    given = calibration_overrides(
        argparse.Namespace(**vars(options) | {"calibration": None})  # it is read in whole
    )
    return {name: value for name, value in vars(given).items() if value not in (None, ())}


def _facts(result: Parallax) -> dict[str, object]:
    """Returns what an image is made of, in JSON types."""
    return {
        "shape": list(result.bright_field.shape),
        "pixel_angstrom": list(result.bright_field.sampling),
        "aberrations": dict(result.lens),
        "rays": result.rays,
        "largest_shift_steps": list(result.largest_shift_steps),
        "blur_angstrom": result.blur_angstrom,
        "notes": list(result.notes),
    }


def _rows(result: Parallax) -> list[tuple[str, str]]:
    """Returns the same in words."""
    ny, nx = result.bright_field.shape
    y, x = result.bright_field.sampling
    shift_y, shift_x = result.largest_shift_steps
    lens = []
    for name, value in result.lens.items():
        if name.startswith("phi"):
            lens.append(f"{name} {math.degrees(value):.4g}°")
        else:
            lens.append(f"{name} {value:.4g} Å")
    return [
        ("image", f"{ny} × {nx} pixels of {y:.4g} × {x:.4g} Å"),
        ("aberrations", ", ".join(lens)),
        ("added images", f"{result.rays}, one for each pixel in the disk"),
        ("largest shift (y, x)", f"{shift_y:.3g}, {shift_x:.3g} steps of the scan"),
        ("blur by the detector's pixel", f"{result.blur_angstrom:.3g} Å"),
    ]
