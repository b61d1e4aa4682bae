"""LiberTEM: a UDF that reconstructs a scan while its partitions are read.

Each partition is brought onto the network's detector where LiberTEM processes it. The process that
runs the UDF holds these patterns, and predicts a strip of windows as soon as its rows are complete,
in the steps of `train.tasks.density.scan.application`. Partitions may come in any order. LiberTEM
asks for the density after each partition (`run_udf_iter`, and plots), or once at the end
(`run_udf`).
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Array
from namsa.base.errors import InputError
from namsa.base.memory import available_memory_bytes
from namsa.io.calibration import CalibrationOverrides, calibrate, override
from namsa.io.lost import Losses
from namsa.io.recording import ArrayPatterns, Recording

from ..apply import reading, resampling, tiles
from ..apply.models import Model
from ..apply.scans import Notes, fit_scan
from ..tasks.density.scan.application import checked_network, so_far
from ..tasks.density.scan.preparation import Prepared, ReconstructionOptions, prepare
from ..tasks.density.scan.result import Reconstruction
from ..tasks.density.trust.aberrations import MEASURED
from ..tasks.density.trust.consistency import KnownSpecimen

if TYPE_CHECKING:
    from libertem.api import Context
    from libertem.io.dataset.base import DataSet

try:
    from libertem.udf import UDF
except ImportError:  # what imports all modules, as documentation does, needs no LiberTEM
    UDF = object


class DensityUDF(UDF):
    """The density of a scan. `DensityUDF.of` makes it.

    Results are `density` and `uncertainty`, `(ny, nx)`, e/Å², NaN where nothing is known yet.
    `reconstruction` has the rest, as `train.reconstruct` returns it.
    """

    def __init__(
        self, binning: Any, columns: int, positions: int, density: "GrowingDensity"
    ) -> None:
        super().__init__(binning=binning, columns=columns, positions=positions, density=density)

    @classmethod
    def of(
        cls,
        context: "Context",
        dataset: "DataSet",
        model: Model | str,
        calibration: CalibrationOverrides,
        *,
        beam_intensity: float | None = None,
        specimen: KnownSpecimen | None = None,
        options: ReconstructionOptions = ReconstructionOptions(),  # noqa: B008 - frozen
    ) -> "DensityUDF":
        """Returns the UDF of a scan, after reading the rows that its mean pattern is taken from.

        Args:
            context: LiberTEM's context.
            dataset: The scan, of two axes of navigation and two of signal.
            model: The network, or what `train.load_model` finds it by.
            calibration: Energy, semiangle, scan step and detector pixel, and what else is known of
                the scan.

        Raises:
            InputError: If the scan does not fit the network or into memory, or its calibration is
                not complete.
        """
        model = checked_network(model, beam_intensity, specimen, options, whole_scan=False)
        note = Notes(None)
        if calibration.bad_pixels or calibration.centre_slope is not None:
            raise InputError(
                "bad_pixels and centre_slope are corrected in LiberTEM, as corrections of run_udf"
            )
        shape = (*dataset.shape.nav, *dataset.shape.sig)
        if len(shape) != 4:
            raise InputError(
                f"the dataset has the shape {shape}: give one of (scan y, scan x, detector y, "
                "detector x)"
            )
        unread = ArrayPatterns(np.broadcast_to(np.zeros((), dataset.dtype), shape))
        name = "the dataset of LiberTEM"
        scan = calibrate(override(Recording(unread, format="array", name=name), calibration))
        positions = shape[0] * shape[1]
        pixels = int(np.prod(model.conditions.detector_shape))
        if (needed := 4 * positions * pixels) > available_memory_bytes():
            raise InputError(
                f"{positions} patterns of {pixels} pixels take {needed / 1e9:.1f} GB, more than "
                "there is"
            )
        resampling.check_fit(scan, model.conditions, name)
        surveyed = np.zeros(shape[:2], bool)
        surveyed[reading.survey_rows(scan)] = True
        survey = context.run_udf(dataset=dataset, udf=_SurveyUDF(positions=positions), roi=surveyed)
        pattern = survey["total"].data / max(1, int(survey["recorded"].data[0]))
        reading.check_pattern(pattern, name)
        note(f"{name}: {'×'.join(map(str, shape))}, {scan.data.dtype}")
        fitted = fit_scan(
            scan, model, pattern, name, "LiberTEM", beam_intensity, note, estimated=MEASURED
        )
        density = GrowingDensity(prepare(fitted, specimen, options))
        return cls(reading.scaled_binning(fitted.plan, fitted.scale), shape[1], positions, density)

    @property
    def reconstruction(self) -> Reconstruction:
        """The reconstruction, as far as LiberTEM has asked for its results."""
        reconstruction: Reconstruction = self.params.density.result
        return reconstruction

    def get_preferred_input_dtype(self) -> npt.DTypeLike:
        return self.USE_NATIVE_DTYPE

    def get_result_buffers(self) -> dict[str, object]:
        pixels = self.params.binning.shape[0]
        image = self.params.density.shape
        return {
            "patterns": self.buffer(
                kind="nav", extra_shape=(pixels,), dtype=np.float32, use="private"
            ),
            "read": self.buffer(kind="nav", dtype=bool, use="private"),
            "replaced": self.buffer(kind="single", extra_shape=(2,), dtype=np.int64, use="private"),
            "density": self.buffer(
                kind="single", extra_shape=image, dtype=np.float32, use="result_only"
            ),
            "uncertainty": self.buffer(
                kind="single", extra_shape=image, dtype=np.float32, use="result_only"
            ),
        }

    def process_partition(self, partition: Array) -> None:
        """Brings a partition `(n, dy, dx)` onto the network's detector, row by row of the scan."""
        position = self.meta.slice.origin[0]
        columns = self.params.columns
        at = 0
        while at < len(partition):
            row, column = divmod(position + at, columns)
            frames = partition[at : at + columns - column]
            place = slice(row, row + 1), slice(column, column + len(frames))
            binned, beam = reading.bin_recorded(
                frames[None], self.params.binning, place, self.params.positions
            )
            self.results.patterns[at : at + len(frames)] = binned[0]
            self.results.replaced[:] += beam.values, beam.patterns_with_values
            at += len(frames)
        self.results.read[:] = True

    def merge(self, dest: Any, src: Any) -> None:
        dest.patterns[:], dest.read[:] = src.patterns, src.read
        dest.replaced[:] += src.replaced

    def get_results(self) -> dict[str, Array]:
        """Predicts the strips whose rows are complete and were not before."""
        columns = self.params.columns
        rows = self.results.patterns.reshape(-1, columns, self.params.binning.shape[0])
        incomplete = np.flatnonzero(~self.results.read.reshape(-1, columns).all(axis=1))
        self.params.density.add(
            rows, int(incomplete[0]) if incomplete.size else len(rows), self.results.replaced
        )
        result = self.params.density.result
        nothing = np.full_like(result.density, np.nan)
        return {
            "density": result.density,
            "uncertainty": nothing if result.uncertainty is None else result.uncertainty,
        }


class GrowingDensity:
    """A reconstruction whose rows come one after the other. It stays in the process that made it:
    its copies are empty.

    Attributes:
        result: The reconstruction so far; its images are NaN where nothing is known yet.
        shape: Shape (ny, nx) of the density.
    """

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._images = prepared.images()
        self.result = so_far(prepared, self._images, prepared.scan.pattern)
        self._rows: Array = np.zeros((0, 0, 0), np.float32)
        self._strips = tiles.strips(self._bands(), prepared.scan.plan.along_y, self._images.rows)
        self.shape: tuple[int, ...] = self.result.density.shape

    def __getstate__(self) -> dict[str, object]:
        return {"shape": self.shape}

    def add(self, rows: Array, complete: int, replaced: Array) -> None:
        """Predicts the strips that the first rows complete.

        Args:
            rows: The scan on the network's detector, `(sy, sx, network's pixels)`; NaN where a
                pattern is lost.
            complete: Number of its first rows that are there.
            replaced: Values that were not finite, and patterns that had some, as far as the scan
                was read.
        """
        images = self._images
        plan = self._prepared.scan.plan
        self._rows = rows
        added = images.strips
        while images.strips < len(images.rows):
            if tiles.source_rows(plan.along_y, images.rows[images.strips]).stop > complete:
                break
            images.add(next(self._strips))
        if images.strips == added:
            return
        if images.strips == len(images.rows):
            lost = [(int(y), int(x)) for y, x in np.argwhere(np.isnan(rows[..., 0]))]
            self._prepared.scan.losses.add(Losses(lost, *map(int, replaced)))
        self.result = so_far(self._prepared, images, self._prepared.scan.pattern)

    def _bands(self) -> Iterator[Array]:
        """Yields row after row, at the network's positions along x."""
        for index in range(self._prepared.scan.data.shape[0]):
            yield reading.resampled_band(
                self._rows[index : index + 1], self._prepared.scan.plan, index
            )


class _SurveyUDF(UDF):
    """The sum of the patterns that were recorded, and their number."""

    def get_preferred_input_dtype(self) -> npt.DTypeLike:
        return self.USE_NATIVE_DTYPE

    def get_result_buffers(self) -> dict[str, object]:
        return {
            "total": self.buffer(kind="sig", dtype=np.float64),
            "recorded": self.buffer(kind="single", dtype=np.int64),
        }

    def process_partition(self, partition: Array) -> None:
        total, recorded = reading.recorded_sum(partition[None], self.params.positions)
        self.results.total[:] += total
        self.results.recorded[:] += recorded

    def merge(self, dest: Any, src: Any) -> None:
        dest.total[:] += src.total
        dest.recorded[:] += src.recorded
