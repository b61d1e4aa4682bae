"""The task embed: a few latent numbers of a pattern, learnt without labels, from which it is made again.

Yoginath et al. (2019) train a convolutional variational autoencoder (`train.networks.cvae`). The target of a pattern is
the pattern itself. The loss is the root mean square error of the decoded pattern and the divergence of the latent
distributions from the standard normal one. Scores are of the patterns that are decoded from the mean latent numbers.
The trivial baseline is `train.tasks.principal_components`.

Composite scans (`train.tasks.embed_scores`) tell whether the latent numbers order patterns by what they are of: the
clusters of the latent numbers are compared with the materials.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from rich.table import Table

from namsa.dataset.entry import Entry
from namsa.dataset.shards import Dataset
from namsa.errors import WorkError

from ..experiment.experiment import Experiment
from ..input.batches import Readable, Target
from ..measure.results import RunFacts
from ..networks import cvae
from ..networks.cvae import CVAEConfig
from ..ranks.protocol import Ranks
from ..reports.figures import write_figure
from ..reports.latent_figure import latent_space_figure
from ..reports.results import write_json
from . import principal_components
from .embed_report import PICTURE, embed_table
from .embed_scores import EmbedEvaluation, EmbedRow, choose_composites, means, score_composites, summarise
from .patterns import PATTERNS_AT_ONCE, intensities, patterns
from .principal_components import PrincipalComponents
from .task import Answers, Array, Row, Score

Tensor = Any
Images = npt.NDArray[np.float32]

COMPOSITE_PATTERNS = 256  # of a sample that are part of a composite scan, at most


@dataclass(frozen=True)
class Autoencoding:
    """The loss of an autoencoder, a `train.optimization.objective.Objective`.

    Attributes:
        divergence_weight: Factor of the divergence.
    """

    divergence_weight: float
    terms = ("rmse", "divergence")

    def setting(self, epoch: int) -> dict[str, float]:
        return {}

    def __call__(self, output: Tensor, target: Tensor, setting: Tensor) -> tuple[Tensor, ...]:
        """Returns the terms of decoded images, means and logarithms of variances, and of the images themselves."""
        root, divergence = cvae.losses(target, *output)
        return root, self.divergence_weight * divergence


@dataclass(frozen=True)
class Embedding:
    """A `train.tasks.task.Task`, which documents the methods."""

    experiment: Experiment
    error = "rmse"

    @property
    def objective(self) -> Autoencoding:
        return Autoencoding(self.experiment.training.embed.divergence_weight)

    @property
    def target(self) -> Target:
        return lambda entries, x, density: x

    def check_listed(self, entries: Sequence[Entry]) -> None:
        pass

    def resolve(self, entries: Sequence[Entry], dataset: Readable) -> Experiment:
        return self.experiment

    def readable(self, dataset: Readable) -> Readable:
        return dataset

    def usable(self, entries: Sequence[Entry]) -> list[Entry]:
        return list(entries)

    def held_out(self, training: Sequence[Entry], others: Sequence[Entry]) -> list[Entry]:
        return [*(training if self.experiment.training.inputs.held_out_positions else ()), *others]

    def statistic(self, dataset: Readable, entries: Sequence[Entry]) -> Array:
        probes, total = self._probes(), np.zeros(())
        for entry in entries:
            with dataset.view(entry.id) as record:
                x = patterns(self.experiment, entry, record, training=True)
                total = total + principal_components.moments(x, probes)
        return np.asarray(total / len(entries))

    def composer(self, dataset: Dataset) -> None:
        return None

    def random_target(self, batch: tuple[Any, Any]) -> Any:
        return batch[0]

    def scorer(self, model: Any, dataset: Dataset) -> Score:
        autoencode = autoencoder(model)

        def score(entries: Sequence[Entry]) -> list[Row]:
            rows: list[Row] = []
            for entry in entries:
                x = patterns(self.experiment, entry, dataset.read(entry.id), training=False)
                rows.append({"id": entry.id, **_errors(entry, x, *autoencode(x))})
            return rows

        return score

    def numbers(self, rows: Sequence[Row]) -> dict[str, float | None]:
        return means(rows, ("rmse", "divergence"))

    def evaluate(self, answers: Answers, run_dir: Path, *, ranks: Ranks, run: RunFacts) -> EmbedEvaluation:
        coordinates: dict[str, dict[str, list[list[float]]]] = {}
        with ranks.together():
            autoencode = autoencoder(answers.model)
            rival = principal_components.fit(answers.baseline, self._probes(), self._latent)
            own = [self._row(entry, answers.dataset, autoencode, rival, coordinates) for entry in answers.entries]
        rows = sorted((row for gathered in ranks.gather_json(own) for row in gathered), key=lambda row: row["id"])
        composites = choose_composites(rows, self.experiment.training.embed.materials)
        chosen = {id for composite in composites for id in composite}
        gathered = ranks.gather_json({id: found for id, found in coordinates.items() if id in chosen})
        coordinates_of = {id: found for part in gathered for id, found in part.items()}
        evaluation = summarise(rows, score_composites(rows, composites, coordinates_of), self._latent, run)
        with ranks.together():
            if ranks.rank() == 0:
                write_json(run_dir / "evaluation.json", evaluation)
                (run_dir / PICTURE).unlink(missing_ok=True)
                if composites:
                    self._draw(answers.model, rows, composites[-1], coordinates_of, run_dir / PICTURE)
        return evaluation

    def table(self, evaluation: Mapping[str, Any], run_dir: Path, report: Path | None) -> Table:
        return embed_table(evaluation, run_dir, report)

    def _probes(self) -> Array:
        return principal_components.vectors(math.prod(self.experiment.network.input_shape))

    @property
    def _latent(self) -> int:
        network = self.experiment.network
        assert isinstance(network, CVAEConfig)
        return network.latent

    def _row(
        self,
        entry: Entry,
        dataset: Dataset,
        autoencode: Any,
        rival: PrincipalComponents,
        coordinates: dict[str, dict[str, list[list[float]]]],
    ) -> EmbedRow:
        """Scores the patterns of a sample beside the baseline's, and adds some of them to `coordinates`."""
        x = patterns(self.experiment, entry, dataset.read(entry.id), training=False)
        decoded, mean, log_variance = autoencode(x)
        errors, scored, flat = _errors(entry, x, decoded, mean, log_variance), rival.encode(x), x.reshape(len(x), -1)
        chosen = np.unique(np.linspace(0, len(x) - 1, COMPOSITE_PATTERNS).round().astype(int))
        coordinates[entry.id] = {"network": mean[chosen].tolist(), "baseline": scored[chosen].tolist()}
        return {
            "id": entry.id,
            "material": entry.material,
            "formula": entry.formula,
            "space_group": entry.space_group,
            "split": "images" if entry.split == "train" else entry.split,
            "patterns": len(x),
            "rmse": errors["rmse"],
            "divergence": errors["divergence"],
            "baseline_rmse": float(rmse_of_each(flat, rival.decode(scored)).mean()),
            "mean_rmse": float(rmse_of_each(flat, rival.mean[None]).mean()),
        }

    def _draw(
        self,
        model: Any,
        rows: Sequence[EmbedRow],
        composite: Sequence[str],
        coordinates_of: Mapping[str, Mapping[str, Any]],
        path: Path,
    ) -> None:
        """Draws the latent space of a composite scan, with decoded patterns."""
        formulas = {row["id"]: row["formula"] for row in rows}
        latents = [np.array(coordinates_of[id]["network"]) for id in composite]
        groups = np.repeat(np.arange(len(composite)), [len(points) for points in latents])
        decode = decoder(model, self.experiment)
        names = [formulas[id] for id in composite]
        write_figure(latent_space_figure(np.concatenate(latents), groups, names, decode), path)


def autoencoder(model: Any) -> Any:
    """Returns a function from images to decoded images, and means and logarithms of the variances of latent numbers.

    All are NumPy arrays; latent numbers are `(n, latent)` in float64.
    """
    forward = tf.function(lambda x: model(x, training=False), autograph=False, reduce_retracing=True)

    def autoencode(images: Images) -> tuple[Images, Array, Array]:
        parts = [
            [np.asarray(output) for output in forward(tf.constant(images[at : at + PATTERNS_AT_ONCE]))]
            for at in range(0, len(images), PATTERNS_AT_ONCE)
        ]
        decoded, mean, log_variance = (np.concatenate(outputs) for outputs in zip(*parts, strict=True))
        return decoded, mean.astype(np.float64), log_variance.astype(np.float64)

    return autoencode


def decoder(model: Any, experiment: Experiment) -> Any:
    """Returns a function from latent numbers `(n, latent)` to patterns `(n, dy, dx)`, fractions of the beam."""
    part = cvae.decoder(model)
    forward = tf.function(lambda z: part(z, training=False), autograph=False, reduce_retracing=True)

    def decode(latents: Array) -> Images:
        z = latents.astype(np.float32)
        parts = [forward(tf.constant(z[at : at + PATTERNS_AT_ONCE])) for at in range(0, len(z), PATTERNS_AT_ONCE)]
        return np.concatenate([intensities(experiment, np.asarray(images)) for images in parts])

    return decode


def _errors(entry: Entry, x: Images, decoded: Images, mean: Array, log_variance: Array) -> dict[str, float]:
    """Returns the mean over the patterns of the error and of the divergence."""
    divergence = (np.exp(log_variance) + mean**2 - 1 - log_variance).sum(axis=1) / 2
    found = {
        "rmse": float(rmse_of_each(x, decoded).mean()),
        "divergence": float(divergence.mean()),
    }
    if not np.isfinite(list(found.values())).all():
        raise WorkError(f"the network's answer to {entry.id} is not finite: nothing can be measured")
    return found


def rmse_of_each(patterns: npt.NDArray[Any], others: npt.NDArray[Any]) -> Array:
    """Returns the root of the mean square difference of each pattern, `(n,)`.

    Args:
        patterns: `(n, ...)`.
        others: What they are compared with, of a shape that fits.
    """
    squares = (patterns.astype(np.float64) - others) ** 2
    return np.asarray(np.sqrt(squares.mean(axis=tuple(range(1, squares.ndim)))))
