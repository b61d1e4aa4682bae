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
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xxhash
from rich.console import Console

from namsa.base.arrays import Array
from namsa.base.console import output_console
from namsa.base.errors import InputError
from namsa.base.files import check_output
from namsa.base.text import printable, without_folders
from namsa.base.version import __version__
from namsa.cli.calibration_options import calibration_overrides
from namsa.cli.calibration_options import layout as layout_of
from namsa.io.calibration import CalibrationOverrides, FourDData, calibrate
from namsa.io.read_options import parse_shape

from ....apply import reading, resampling, tiles
from ....apply.identity import network_identity
from ....apply.models import Model
from ....apply.scan_result import beam_intensity as given_intensity
from ....apply.scan_result import picture_beside
from ....apply.scans import Notes, fit_scan
from ....apply.weights import check_unchanged
from ....ranks.signals import Stopped
from ..command import known_specimen
from ..trust.aberrations import MEASURED
from ..trust.consistency import KnownSpecimen
from .application import checked_network, so_far
from .live_state import LiveState, image_arrays, read_state, write_state
from .options import ReconstructionOptions
from .preparation import Prepared, prepare
from .result import Reconstruction
from .row_sources import ArrayStream, GrowingFile, RowSource

# Fields of a scan that differ from one look at its file to the next.
_NOT_IDENTITY = ("data", "notes", "opened")
FIRST_ROWS = 8  # from whose mean the optic axis and the scale are taken where they are not known


@dataclass(frozen=True)
class LiveUpdate:
    """The reconstruction after a strip of windows.

    Attributes:
        rows_read: Rows of the scan that have come.
        rows_done: First rows of the density that no later row of the scan changes.
        seconds: Time that the strip took, without waiting for its rows.
        result: The reconstruction; its images are NaN where nothing is known yet.
        is_last: Whether the scan is complete.
    """

    rows_read: int
    rows_done: int
    seconds: float
    result: Reconstruction
    is_last: bool


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
    source: RowSource
    if isinstance(data, str | Path):
        in_file = {"dataset": calibration.dataset, **(layout or {})}
        source = GrowingFile(Path(data), scan_shape, calibration, in_file, wait_s)
        origin = Path(data).name
    else:
        source = ArrayStream(data, scan_shape, calibration, first_row)
        origin = "stream"
    recording = source.describe()
    scan = calibrate(recording)
    resampling.check_fit(scan, model.conditions, recording.name)
    network = network_identity(model)
    identity: dict[str, object] = {
        "program": __version__,
        "network": network,
        "scan": _scan_identity(scan),
        "beam_intensity": beam_intensity,
        "specimen": asdict(specimen) if specimen else None,
        "options": asdict(options),
    }
    path = None if state is None else Path(state)
    kept = read_state(path, identity) if path is not None and path.exists() else None
    session = _Session(
        scan,
        model,
        str(network["weights"]),
        recording.name,
        origin,
        beam_intensity,
        specimen,
        options,
        console,
    )
    for update, now in session.updates(source, kept):
        if path is not None and not update.is_last:
            write_state(path, identity, now)
        yield update
    if path is not None:
        path.unlink(missing_ok=True)


def next_row(state: str | Path) -> int:
    """Returns the row of the scan that a stream must begin with, at the latest, to continue from a
    state.
    """
    return read_state(Path(state), None).next_row


class _Session:
    """A reconstruction that is going on."""

    def __init__(
        self,
        scan: FourDData,
        model: Model,
        weights_digest: str,
        name: str,
        origin: str,
        beam_intensity: float | None,
        specimen: KnownSpecimen | None,
        options: ReconstructionOptions,
        console: Console | None,
    ) -> None:
        self._scan = scan
        self._model = model
        self._weights_digest = weights_digest
        self._name = name
        self._origin = origin
        self._beam_intensity = beam_intensity
        self._specimen = specimen
        self._options = options
        self._positions = scan.shape[0] * scan.shape[1]
        self._survey = set(reading.survey_rows(scan))
        self._survey_sum: Array = np.zeros(scan.shape[2:])
        self._survey_rows = 0
        self._digests = np.zeros(scan.shape[0], np.uint64)  # of the rows that were read
        self._row = 0  # the next one that is read
        self._rows_read = 0
        self._note = Notes(console)

    def updates(
        self, source: RowSource, kept: LiveState | None
    ) -> Iterator[tuple[LiveUpdate, LiveState]]:
        """Yields an update, and the state to continue from, after each strip."""
        if kept is None:
            first, blocks = first_rows(source.rows(0), min(FIRST_ROWS, self._scan.shape[0]))
            total, recorded = reading.recorded_sum(first, self._positions)
            pattern = total / max(1, recorded)
            reading.check_pattern(pattern, self._name)
        else:
            self._digests = kept.arrays["digests"].copy()
            self._rows_read = kept.rows_read
            if isinstance(source, GrowingFile):
                self._check_rows(source, kept.next_row)
            blocks = source.rows(kept.next_row)
            pattern = kept.arrays["pattern"]
            self._survey_sum = kept.arrays["survey_sum"]
            self._row = kept.next_row
            self._survey_rows = kept.survey_rows
        prepared = self._prepare(pattern)
        images = prepared.images()
        if kept is not None:
            kept.restore(images)
            self._note(
                f"continued after {images.strips} of {len(images.rows)} strips, with row "
                f"{self._row}"
            )
        along_y = prepared.scan.plan.along_y
        rows = images.rows
        bands = self._bands(blocks, prepared)
        for strip in tiles.strips(bands, along_y, rows[images.strips :], self._row):
            started = time.perf_counter()
            images.add(strip)
            is_last = images.strips == len(rows)
            mean = self._survey_sum / (max(1, self._survey_rows) * self._scan.shape[1])
            result = so_far(prepared, images, mean)
            seconds = time.perf_counter() - started
            next_row = 0 if is_last else tiles.source_rows(along_y, rows[images.strips]).start
            arrays = {**image_arrays(images), "pattern": pattern, "survey_sum": self._survey_sum}
            arrays |= {"digests": self._digests.copy()}
            state = LiveState(images.strips, self._rows_read, next_row, self._survey_rows, arrays)
            yield LiveUpdate(self._rows_read, images.rows_done, seconds, result, is_last), state

    def _prepare(self, pattern: Array) -> Prepared:
        """Fits the scan by the mean pattern of the first rows and loads the network."""
        sy, sx, dy, dx = self._scan.shape
        self._note(
            f"{without_folders(self._name)}: {sy}×{sx} patterns of {dy}×{dx} pixels, "
            f"{self._scan.data.dtype}, as "
            "they come"
        )
        described = self._name, self._origin, self._beam_intensity
        scan = fit_scan(
            self._scan, self._model, pattern, *described, self._note, estimated=MEASURED
        )
        check_unchanged(self._model, self._weights_digest, scan.weights_digest)
        prepared = prepare(scan, self._specimen, self._options)
        if self._scan.centre_pixels is None or not (self._beam_intensity or self._scan.normalised):
            self._note(
                f"the mean pattern of the above is that of the first {min(FIRST_ROWS, sy)} rows"
            )
        return prepared

    def _bands(self, blocks: Iterator[Array], prepared: Prepared) -> Iterator[Array]:
        """Yields row by row on the network's detector; adds up the rows of the mean pattern on the
        way.
        """
        binning = reading.scaled_binning(prepared.scan.plan, prepared.scan.scale)
        for block in blocks:
            for patterns in block:
                row = self._row
                self._row = self._row + 1
                self._check_row(row, patterns)
                # others were added before the interruption
                if row in self._survey and row >= self._rows_read:
                    total, recorded = reading.recorded_sum(patterns[None], self._positions)
                    self._survey_sum = self._survey_sum + total * (len(patterns) / max(1, recorded))
                    self._survey_rows += bool(recorded)
                self._rows_read = max(self._rows_read, self._row)
                together = max(1, reading.PIECE_BYTES // max(1, patterns[0].nbytes))
                binned = []
                for start in range(0, len(patterns), together):
                    columns = slice(start, min(start + together, len(patterns)))
                    place = slice(row, row + 1), columns
                    part, losses = reading.bin_recorded(
                        patterns[None, columns], binning, place, self._positions
                    )
                    binned.append(part)
                    prepared.scan.losses.add(losses)
                yield reading.resampled_band(
                    np.concatenate(binned, axis=1), prepared.scan.plan, row
                )

    def _check_rows(self, source: RowSource, stop: int) -> None:
        """Compares the rows before `stop` with those that the kept state was made of."""
        row = 0
        for block in source.rows(0):
            for patterns in block:
                if row == stop:
                    return
                self._check_row(row, patterns)
                row += 1

    def _check_row(self, row: int, patterns: Array) -> None:
        """Keeps the digest of a row, and compares it when it is read again. Raises InputError if it
        is another one.
        """
        digest = np.uint64(xxhash.xxh3_64_intdigest(np.ascontiguousarray(patterns).data))
        if row >= self._rows_read:
            self._digests[row] = digest
        elif self._digests[row] != digest:
            raise InputError(
                f"row {row} of {self._name} is another one than when this reconstruction began: "
                "another scan has taken its place: remove the kept state to begin again"
            )


def _scan_identity(scan: FourDData) -> dict[str, object]:
    """Returns what is known of a scan beside its patterns, as text by name."""
    identity: dict[str, object] = {"shape": list(scan.shape), "dtype": str(scan.data.dtype)}
    for name, value in vars(scan).items():
        is_whole_scan = name == "window" and value is None  # as states of earlier versions
        if name not in _NOT_IDENTITY and not is_whole_scan:
            identity[name] = repr(value)
    return identity


def first_rows(blocks: Iterator[Array], count: int) -> tuple[Array, Iterator[Array]]:
    """Takes the first rows `(count, sx, dy, dx)` of blocks, and returns them with all blocks from
    the first on.
    """
    taken: list[Array] = []
    while sum(map(len, taken)) < count:
        taken.append(next(blocks))
    return np.concatenate(taken)[:count], chain(taken, blocks)


def live(options: argparse.Namespace) -> None:
    """Follows a file, and writes the density after each strip of windows."""
    inputs = (options.data, Path(options.checkpoint))
    console = output_console()
    picture = picture_beside(options.out, inputs)
    state = options.out.with_suffix(".live.npz")
    check_output(state, inputs, f"--out {options.out}: the state to continue from")
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
