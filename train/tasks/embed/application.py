"""Embeds the patterns of a scan: latent numbers, clusters, and the patterns that are decoded from
them.

Patterns are brought onto the network's detector as for a reconstruction. Each is embedded by
itself, so that the scan keeps its positions, whatever its step. Only latent numbers are held of the
whole scan; decoded patterns are made again from them as they are written.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from rich.console import Console

from namsa.base.arrays import Array
from namsa.base.errors import InputError
from namsa.base.notebook_progress import Report
from namsa.base.pixels import ArrayAxis, PixelGrid
from namsa.base.provenance_values import Provenance
from namsa.base.text import plural, shorten
from namsa.io import hdf5
from namsa.io.calibration import CalibrationOverrides

from ...apply.models import Model
from ...apply.scan_result import Maps, ScanResult
from ...apply.scans import Notes, check_answer, network_for, open_scan
from ...apply.weights import build_loaded
from ...networks.cvae import CVAEConfig
from ..pattern_images import images
from .scores import cluster
from .task import autoencoder, decoder, rmse_of_each

if TYPE_CHECKING:
    from matplotlib.figure import Figure


MOST_CLUSTERS = 256
CLUSTERS = 4
BAND_BYTES = 2**26  # of decoded patterns that are written at once


# Arrays have no single truth value, and long representations.
@dataclass(frozen=True, eq=False, repr=False)
class EmbeddedScan(ScanResult):
    """The latent numbers of the patterns of a scan.

    Attributes:
        latents: Mean of each latent number, `(sy, sx, latent)`, float32.
        clusters: Cluster of each pattern, `(sy, sx)`, from 0, the largest.
        centres: Latent numbers of the clusters' centres, `(clusters, latent)`.
        rmse: Root mean square error of the decoded patterns, `(sy, sx)`, in units of the network's
            input.
        decode: Function from latent numbers `(n, latent)` to patterns `(n, dy, dx)`, fractions of
            the beam.
        pixels: Pixels of the scan, Å.
        detector_pixels: Pixels of the decoded patterns, mrad from the optic axis.
        detector_shape: Number of these pixels, (y, x).
        provenance: Data, network, and under "notes" the notes; JSON types only.
    """

    group = "embedding"

    latents: Array
    clusters: Array
    centres: Array
    rmse: Array
    decode: Callable[[Array], Array]
    pixels: PixelGrid
    detector_pixels: PixelGrid
    detector_shape: tuple[int, int]
    provenance: Provenance

    def decoded(self) -> Iterator[Array]:
        """Yields the decoded patterns in bands of rows, `(rows, sx, dy, dx)`, fractions of the
        beam, float32.
        """
        sy, sx, latent = self.latents.shape
        rows = max(1, BAND_BYTES // (4 * sx * self.detector_shape[0] * self.detector_shape[1]))
        for row in range(0, sy, rows):
            band = self.latents[row : row + rows]
            yield self.decode(band.reshape(-1, latent)).reshape(
                *band.shape[:2], *self.detector_shape
            )

    def _maps(self) -> Maps:
        maps: dict[str, tuple[Array, str]] = {}
        for index in range(self.latents.shape[-1]):
            maps[f"latent_{index + 1}"] = (self.latents[..., index], "")
        maps["cluster"] = (self.clusters.astype(np.int32), "")
        maps["rmse"] = (self.rmse, "")
        return maps

    def _large_arrays(self) -> Mapping[str, hdf5.Bands]:
        y, x = self.pixels.coordinates(self.clusters.shape)
        ky, kx = self.detector_pixels.coordinates(self.detector_shape)
        axes = [
            ArrayAxis("y", "Å", y),
            ArrayAxis("x", "Å", x),
            ArrayAxis("ky", "mrad", ky),
            ArrayAxis("kx", "mrad", kx),
        ]
        return {"decoded": hdf5.Bands("fraction of the beam", axes, self.decoded())}

    def _figure(self, title: str) -> "Figure":
        from .figure import embedding_figure

        return embedding_figure(
            self.latents, self.clusters, self.rmse, self.pixels, self.decode, title
        )

    @property
    def _summary(self) -> str:
        sy, sx, latent = self.latents.shape
        clusters = plural(len(self.centres), "cluster")
        return f"{plural(latent, 'latent number')} of {sy} × {sx} patterns, {clusters}"


def embed(
    data: str | Path | npt.ArrayLike,
    model: Model | str | Path,
    calibration: CalibrationOverrides = CalibrationOverrides(),  # noqa: B008 - frozen
    *,
    clusters: int = CLUSTERS,
    beam_intensity: float | None = None,
    layout: Mapping[str, object] | None = None,
    console: Console | None = None,
    on_progress: Report | None = None,
) -> EmbeddedScan:
    """Embeds the patterns of a scan with a trained autoencoder.

    Args:
        data: Path of a file that `namsa.read` opens, or patterns `(sy, sx, dy, dx)`, in any units
            of intensity.
        model: The network, or what `train.load_model` finds it by.
        calibration: What the file does not say, or says wrongly; see `train.reconstruct`.
        clusters: Number of clusters of the patterns.
        beam_intensity: Sum of a pattern without a specimen, in the data's units; see
            `train.reconstruct`.
        layout: How the patterns lie in a file that does not say it, as `namsa.read` takes it.
        console: Where notes and progress are printed. `None` prints nothing; the notes are in the
            result.
        on_progress: Called as `on_progress(stage, done, total)`. Default: a bar in a notebook,
            if the call takes long, and else nothing.

    Raises:
        InputError: If the network is no autoencoder, the data do not fit it, or their calibration
            is not complete.
        WorkError: If the file is damaged.
    """
    note = Notes(console, on_progress)
    model = network_for("embed", model)
    network = model.experiment.network
    assert isinstance(network, CVAEConfig)
    _check_clusters(clusters)
    with open_scan(
        data,
        model,
        calibration,
        note,
        beam_intensity=beam_intensity,
        layout=layout,
        keeps_positions=True,
    ) as scan:
        keras_model = build_loaded(model, network, scan.weights_digest)
        with scan.patterns() as bands:
            latents, rmse = _encode(bands, model, keras_model)
    centres, labels = cluster(latents.reshape(-1, network.latent), clusters)
    if len(centres) < clusters:
        note(
            f"{plural(len(centres), 'cluster')} instead of {clusters}: patterns have the same "
            "latent numbers"
        )
    return EmbeddedScan(
        latents=latents.astype(np.float32),
        clusters=labels.reshape(scan.plan.scan_shape),
        centres=centres,
        rmse=rmse.astype(np.float32),
        decode=decoder(keras_model, model.experiment),
        pixels=scan.pixels,
        detector_pixels=model.conditions.detector_pixels,
        detector_shape=model.conditions.detector_shape,
        provenance={
            **scan.provenance,
            **scan.beam,
            "cluster_centres": centres.tolist(),
            "notes": note.lines,
        },
    )


def _check_clusters(clusters: int) -> None:
    """Raises InputError for a number of clusters that is not taken."""
    if not 1 <= clusters <= MOST_CLUSTERS:
        raise InputError(
            f"clusters is {shorten(clusters)}: give a number from 1 to {MOST_CLUSTERS}"
        )


def _encode(bands: Iterator[Array], model: Model, keras_model: object) -> tuple[Array, Array]:
    """Returns latent numbers `(sy, sx, latent)` and errors `(sy, sx)` of the rows of a scan.

    Bands are `(rows, sx, dy, dx)`, fractions of the beam.
    """
    autoencode = autoencoder(keras_model)
    detector = model.conditions.detector_shape
    latents = []
    errors = []
    for band in bands:
        x = images(model.experiment, band.reshape(-1, *detector))
        decoded, mean, _ = autoencode(x)
        latents.append(mean.reshape(*band.shape[:2], -1))
        errors.append(rmse_of_each(x, decoded).reshape(band.shape[:2]))
    encoded = np.concatenate(latents), np.concatenate(errors)
    check_answer(model, *encoded)
    return encoded
