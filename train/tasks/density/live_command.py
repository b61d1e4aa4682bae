"""What `python -m train live` does: reconstructs a scan while its file is written."""

import argparse
from pathlib import Path

from rich.console import Console

from namsa.cli.calibration_options import calibration_overrides, layout
from namsa.errors import InputError
from namsa.files import check_output
from namsa.io.read_options import parse_shape
from namsa.text import printable

from ...apply.scan_result import beam_intensity, picture_beside
from ...ranks.signals import Stopped
from .application import ReconstructionOptions
from .command import known_specimen
from .live import reconstruct_live


def live(options: argparse.Namespace) -> None:
    """Follows a file, and writes the density after each strip of windows."""
    inputs = (options.data, Path(options.checkpoint))
    console, picture = Console(markup=False), picture_beside(options.out, inputs)
    state = options.out.with_suffix(".live.npz")
    check_output(state, inputs, f"--out {options.out}: the state to continue from")
    in_file = layout(options)
    scan_shape = parse_shape(in_file.pop("scan_shape"), "--scan-shape")
    if scan_shape is None:
        raise InputError(f"{options.data} is still being written: give the whole scan's shape with --scan-shape SYxSX")
    try:
        for update in reconstruct_live(
            options.data,
            options.checkpoint,
            calibration_overrides(options),
            scan_shape=scan_shape,
            beam_intensity=beam_intensity(options),
            specimen=known_specimen(options),
            options=ReconstructionOptions(options.passes),
            state=state,
            wait_s=options.wait,
            layout=in_file,
            console=console,
        ):
            update.result.save(options.out)
            console.print(
                f"row {update.rows_read} of {scan_shape[0]}: {update.rows_done} rows of {options.out} are final, "
                f"{update.seconds:.2g} s",
                highlight=False,
                soft_wrap=True,
            )
    except KeyboardInterrupt:
        raise Stopped("interrupted; the same command continues from the last strip") from None
    update.result.show(picture)
    console.print(printable(f"{options.out} and {picture}"), highlight=False, soft_wrap=True)
