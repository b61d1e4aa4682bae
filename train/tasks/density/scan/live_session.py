"""A reconstruction of a scan that is recorded meanwhile, strip by strip; see
`train.tasks.density.scan.live`.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
import xxhash
from rich.console import Console
from scipy import sparse

from namsa.base.arrays import Array
from namsa.base.errors import InputError
from namsa.base.text import without_folders
from namsa.io.calibration import FourDData
from namsa.io.lost import Losses

from ....apply import reading, tiles
from ....apply.models import Model
from ....apply.scans import Notes, fit_scan
from ....apply.weights import check_unchanged
from ..trust.aberrations import MEASURED
from ..trust.consistency import KnownSpecimen
from .application import so_far
from .live_state import LiveState, image_arrays
from .options import ReconstructionOptions
from .preparation import Prepared, prepare
from .result import Reconstruction
from .row_sources import GrowingFile, RowSource
from .scan_images import ScanImages

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


class _Begun(NamedTuple):
    """What a session begins with."""

    pattern: Array  # the mean of the first rows
    blocks: Iterator[Array]  # of the rows that are to be read


class Session:
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
        begun = self._begin(source) if kept is None else self._resume(source, kept)
        prepared = self._prepare(begun.pattern)
        images = prepared.images()
        if kept is not None:
            kept.restore(images)
            self._note(
                f"continued after {images.strips} of {len(images.rows)} strips, with row "
                f"{self._row}"
            )
        along_y = prepared.scan.plan.along_y
        bands = self._bands(begun.blocks, prepared)
        for strip in tiles.strips(bands, along_y, images.rows[images.strips :], self._row):
            started = time.perf_counter()
            images.add(strip)
            is_last = images.strips == len(images.rows)
            mean = self._survey_sum / (max(1, self._survey_rows) * self._scan.shape[1])
            result = so_far(prepared, images, mean)
            seconds = time.perf_counter() - started
            update = LiveUpdate(self._rows_read, images.rows_done, seconds, result, is_last)
            yield update, self._state(images, along_y, begun.pattern)

    def _begin(self, source: RowSource) -> _Begun:
        """Returns the mean pattern of the first rows, and all rows."""
        first, blocks = first_rows(source.rows(0), min(FIRST_ROWS, self._scan.shape[0]))
        total, recorded = reading.recorded_sum(first, self._positions)
        pattern = total / max(1, recorded)
        reading.check_pattern(pattern, self._name)
        return _Begun(pattern, blocks)

    def _resume(self, source: RowSource, kept: LiveState) -> _Begun:
        """Returns the mean pattern of the first rows, and the rows after those of a kept state."""
        self._digests = kept.arrays["digests"].copy()
        self._rows_read = kept.rows_read
        if isinstance(source, GrowingFile):
            self._check_rows(source, kept.next_row)
        blocks = source.rows(kept.next_row)
        self._survey_sum = kept.arrays["survey_sum"]
        self._row = kept.next_row
        self._survey_rows = kept.survey_rows
        return _Begun(kept.arrays["pattern"], blocks)

    def _state(self, images: ScanImages, along_y: sparse.csr_array, pattern: Array) -> LiveState:
        """Returns the state after a strip."""
        next_row = 0
        if images.strips < len(images.rows):
            next_row = tiles.source_rows(along_y, images.rows[images.strips]).start
        arrays = {
            **image_arrays(images),
            "pattern": pattern,
            "survey_sum": self._survey_sum,
            "digests": self._digests.copy(),
        }
        return LiveState(images.strips, self._rows_read, next_row, self._survey_rows, arrays)

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
                binned = self._binned_row(row, patterns, binning, prepared.scan.losses)
                yield reading.resampled_band(binned, prepared.scan.plan, row)

    def _binned_row(
        self, row: int, patterns: Array, binning: sparse.csr_array, losses: Losses
    ) -> Array:
        """Returns the patterns of a row on the network's detector; adds to `losses`."""
        patterns_per_piece = max(1, reading.PIECE_BYTES // max(1, patterns[0].nbytes))
        pieces = []
        for start in range(0, len(patterns), patterns_per_piece):
            columns = slice(start, min(start + patterns_per_piece, len(patterns)))
            place = slice(row, row + 1), columns
            piece, lost = reading.bin_recorded(
                patterns[None, columns], binning, place, self._positions
            )
            pieces.append(piece)
            losses.add(lost)
        return np.concatenate(pieces, axis=1)

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


def first_rows(blocks: Iterator[Array], count: int) -> tuple[Array, Iterator[Array]]:
    """Takes the first rows `(count, sx, dy, dx)` of blocks, and returns them with all blocks from
    the first on.
    """
    taken: list[Array] = []
    while sum(map(len, taken)) < count:
        taken.append(next(blocks))
    return np.concatenate(taken)[:count], chain(taken, blocks)
