"""`namsa export --to`: a scan in the form that another program starts from."""

import argparse
import sys

from namsa.base.text import plural
from namsa.cli.calibration_options import calibration_overrides, layout
from namsa.cli.commands.output import print_line
from namsa.exchange.export import export_ptychography
from namsa.exchange.stemdl_export import write_npz, write_stemdl
from namsa.exchange.zspy import write_zspy
from namsa.io.calibration_file import read_calibration
from namsa.io.reading import open_patterns


def export(options: argparse.Namespace) -> None:
    """Writes a scan, and a density as first object, for the program that --to names."""
    if options.to == "zspy":
        with open_patterns(options.data, calibration_overrides(options), **layout(options)) as scan:
            write_zspy(scan, options.out)
        print_line(str(options.out))
        return
    if options.to in ("stemdl", "npz"):
        _export_stemdl(options)
        return
    defocus = options.defocus_angstrom
    if defocus is None and options.calibration is not None:
        defocus = read_calibration(options.calibration).value("defocus_angstrom")
    command, *files = export_ptychography(
        options.data,
        options.to,
        options.out,
        overrides=calibration_overrides(options),
        layout=layout(options),
        defocus_angstrom=defocus,
        thickness_angstrom=options.thickness_angstrom,
        slices=options.slices,
        iterations=options.iterations,
        density=options.density,
        formula=options.formula,
        inputs=[options.calibration] if options.calibration else [],
        on_note=lambda line: print_line(f"note: {line}"),
    )
    print_line(f"{options.out}: {', '.join(files)}")
    print_line(f"cd {options.out} && {command}")


def _export_stemdl(options: argparse.Namespace) -> None:
    """Writes a dataset as the authors' programs read it, or their file as NumPy files."""
    write = write_npz if options.to == "npz" else write_stemdl
    count, lines = write(options.data, options.out)
    print_line(f"{options.out}: {plural(count, 'sample')}")
    for line in lines:
        print_line(f"warning: {line}", sys.stderr)
