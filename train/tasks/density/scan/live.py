"""Reconstructs a scan while it is recorded: rows in, density and uncertainty out.

The steps are those of `train.tasks.density.scan.application`, strip by strip: a strip of windows is
predicted as soon as its rows are there. The result is that of the whole scan if the optic axis and
the beam's intensity are known. Otherwise both are taken from the mean of the first rows, as the
mean of the whole scan is not known yet.

What is held are the rows of one strip on the network's detector, and images. They are written after
each strip if the caller names a file, and an interrupted reconstruction continues from there to the
same result.
"""

import argparse
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

import numpy.typing as npt
from rich.console import Console

from namsa.base.console import output_console
from namsa.base.errors import InputError
from namsa.base.outputs import check_output
from namsa.base.text import printable
from namsa.base.version import __version__
from namsa.cli.calibration_options import calibration_overrides
from namsa.cli.calibration_options import layout as layout_of
from namsa.io.calibration import CalibrationOverrides, FourDData, calibrate
from namsa.io.read_options import parse_shape

from ....apply import resampling
from ....apply.identity import network_identity
from ....apply.models import Model
from ....apply.scan_result import beam_intensity as given_intensity
from ....apply.scan_result import picture_beside
from ....ranks.signals import Stopped
from ..command import known_specimen
from ..trust.consistency import KnownSpecimen
from .application import checked_network
from .live_session import LiveUpdate, Session
from .live_state import read_state, write_state
from .options import ReconstructionOptions
from .row_sources import ArrayStream, GrowingFile, RowSource

# Fields of a scan that differ from one look at its file to the next.
_NOT_IDENTITY = ("data", "notes", "opened")


def reconstruct_live(
    data: str | Path | Iterable[npt.ArrayLike],
    model: Model | str | Path,
    calibration: CalibrationOverrides = CalibrationOverrides(),  # noqa: B008 - frozen
    *,
    scan_shape: tuple[int, int],
    first_row: int = 0,
    beam_intensity: float | None = None,
    specimen: KnownSpecimen | None = None,
    options: ReconstructionOptions = ReconstructionOptions(),  # noqa: B008 - frozen
    state: str | Path | None = None,
    wait_s: float = 60.0,
    layout: Mapping[str, object] | None = None,
    console: Console | None = None,
) -> Iterator[LiveUpdate]:
    """Reconstructs a scan while it is recorded.

    Args:
        data: Path of a file that grows (Merlin, raw, HDF5 in SWMR mode), or an iterable of arrays
            `(..., dy, dx)` with any number of patterns each, in the order of the scan.
        model: The network, or what `train.load_model` finds it by.
        calibration: What the data do not say, or say wrongly. With the optic axis (`centre_pixels`)
            and `beam_intensity`, the last result is that of `train.reconstruct`.
        scan_shape: Rows and columns of the whole scan.
        first_row: Row of the scan that the iterable begins with, if it continues an earlier one;
            see `next_row`.
        beam_intensity: As for `train.reconstruct`.
        specimen: As for `train.reconstruct`.
        options: As for `train.reconstruct`.
        state: File that keeps what is needed to continue, written after each strip. If it exists,
            the reconstruction continues from it; it is removed after the last strip. `None` keeps
            nothing.
        wait_s: Time without a new row after which the writer of a file counts as stopped.
        layout: How the patterns lie in a file that does not say it, as `namsa.read` takes it:
            {"dtype": "u2"}.
        console: Where notes are printed. `None` prints nothing; the notes are in the result.

    Yields:
        An update after each strip of windows.

    Raises:
        InputError: If the data do not fit the network, or if `state` belongs to other data.
        WorkError: If the data end before the scan does.
    """
    model = checked_network(model, beam_intensity, specimen, options, whole_scan=False)
    source = _row_source(data, scan_shape, calibration, first_row, wait_s, layout)
    recording = source.describe()
    scan = calibrate(recording)
    resampling.check_fit(scan, model.conditions, recording.name)
    network = network_identity(model)
    identity = _identity(network, scan, beam_intensity, specimen, options)
    state_file = None
    kept = None
    if state is not None:
        state_file = Path(state)
        if state_file.exists():
            kept = read_state(state_file, identity)
    name_of_data = "stream"
    if isinstance(data, str | Path):
        name_of_data = Path(data).name
    session = Session(
        scan,
        model,
        str(network["weights"]),
        recording.name,
        name_of_data,
        beam_intensity,
        specimen,
        options,
        console,
    )
    for update, new_state in session.updates(source, kept):
        if state_file is not None and not update.is_last:
            write_state(state_file, identity, new_state)
        yield update
    if state_file is not None:
        state_file.unlink(missing_ok=True)


def _row_source(
    data: str | Path | Iterable[npt.ArrayLike],
    scan_shape: tuple[int, int],
    calibration: CalibrationOverrides,
    first_row: int,
    wait_s: float,
    layout: Mapping[str, object] | None,
) -> RowSource:
    """Returns the source of a scan's rows; arguments as of `reconstruct_live`."""
    if isinstance(data, str | Path):
        in_file = {"dataset": calibration.dataset, **(layout or {})}
        return GrowingFile(Path(data), scan_shape, calibration, in_file, wait_s)
    return ArrayStream(data, scan_shape, calibration, first_row)


def next_row(state: str | Path) -> int:
    """Returns the row of the scan that a stream must begin with, at the latest, to continue from a
    state.
    """
    return read_state(Path(state), None).next_row


def _identity(
    network: Mapping[str, object],
    scan: FourDData,
    beam_intensity: float | None,
    specimen: KnownSpecimen | None,
    options: ReconstructionOptions,
) -> dict[str, object]:
    """Returns what a kept state belongs to."""
    facts_of_specimen = None
    if specimen:
        facts_of_specimen = asdict(specimen)
    return {
        "program": __version__,
        "network": network,
        "scan": _scan_identity(scan),
        "beam_intensity": beam_intensity,
        "specimen": facts_of_specimen,
        "options": asdict(options),
    }


def _scan_identity(scan: FourDData) -> dict[str, object]:
    """Returns what is known of a scan beside its patterns, as text by name."""
    identity: dict[str, object] = {"shape": list(scan.shape), "dtype": str(scan.data.dtype)}
    for name, value in vars(scan).items():
        is_whole_scan = name == "window" and value is None  # as states of earlier versions
        if name not in _NOT_IDENTITY and not is_whole_scan:
            identity[name] = repr(value)
    return identity


def live(options: argparse.Namespace) -> None:
    """Follows a file, and writes the density after each strip of windows."""
    inputs = (options.data, Path(options.checkpoint))
    console = output_console()
    picture = picture_beside(options.out, inputs)
    state = options.out.with_suffix(".live.npz")
    option = f"--out {options.out}: the state to continue from"
    check_output(state, inputs, option, makes_folders=True)
    in_file = layout_of(options)
    scan_shape = parse_shape(in_file.pop("scan_shape"), "--scan-shape")
    if scan_shape is None:
        raise InputError(
            f"{options.data} is still being written: give the whole scan's shape with --scan-shape "
            "SYxSX"
        )
    try:
        for update in reconstruct_live(
            options.data,
            options.checkpoint,
            calibration_overrides(options),
            scan_shape=scan_shape,
            beam_intensity=given_intensity(options),
            specimen=known_specimen(options),
            options=ReconstructionOptions(options.passes, trust=not options.no_trust),
            state=state,
            wait_s=options.wait,
            layout=in_file,
            console=console,
        ):
            update.result.save(options.out)
            console.print(
                f"row {update.rows_read} of {scan_shape[0]}: {update.rows_done} rows of "
                f"{options.out} are final, {update.seconds:.2g} s",
                highlight=False,
                soft_wrap=True,
            )
    except KeyboardInterrupt:
        raise Stopped("interrupted; the same command continues from the last strip") from None
    update.result.show(picture)
    console.print(printable(f"{options.out} and {picture}"), highlight=False, soft_wrap=True)
