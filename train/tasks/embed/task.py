"""The task embed: a few latent numbers of a pattern, learnt without labels, from which it is made
again.

Yoginath et al. (2019) train a convolutional variational autoencoder (`train.networks.cvae`). The
target of a pattern is the pattern itself. The loss is the root mean square error of the decoded
pattern and the divergence of the latent distributions from the standard normal one. Scores are of
the patterns that are decoded from the mean latent numbers. The trivial baseline is
`train.tasks.embed.principal_components`.

Composite scans (`train.tasks.embed.scores`) tell whether the latent numbers order patterns by what
they are of: the clusters of the latent numbers are compared with the materials.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Array, Floats, Tensor
from namsa.dataset.entry import Entry
from namsa.dataset.shards import Dataset
from namsa.figures.panels import write_figure

from ...experiment.experiment import Experiment
from ...input.batches import Target
from ...input.views import Readable
from ...measure.results import RunFacts
from ...networks import cvae
from ...networks.cvae import CVAEConfig
from ...ranks.interface import Ranks
from ...reports.results import write_json
from ..pattern_images import PATTERNS_AT_ONCE, intensities, patterns
from ..splits import held_out_row
from ..task import Answers, FixedLoss, Row, Task, check_finite, gathered, in_parts
from . import principal_components
from .figure import latent_space_figure
from .principal_components import PrincipalComponents
from .report import PICTURE
from .scores import EmbedEvaluation, EmbedRow, choose_composites, means, score_composites, summarise

if TYPE_CHECKING:
    import keras

Images = npt.NDArray[np.float32]
Autoencode = Callable[[Images], tuple[Images, Floats, Floats]]

COMPOSITE_PATTERNS = 256  # of a sample that are part of a composite scan, at most


class Embedding(Task):
    """See `train.tasks.task.Task`, which documents the methods."""

    error = "rmse"

    @property
    def objective(self) -> FixedLoss:
        weight = self.experiment.training.embed.divergence_weight

        def losses(output: Tensor, target: Tensor) -> tuple[Tensor, ...]:
            """Returns the terms of decoded images, means and logarithms of variances, and of the
            images themselves.
            """
            root, divergence = cvae.losses(target, *output)
            return root, weight * divergence

        return FixedLoss(("rmse", "divergence"), losses)

    @property
    def target(self) -> Target:
        return lambda entries, x, density: x

    def statistic(self, dataset: Readable, entries: Sequence[Entry]) -> Floats:
        probes = self._probes()
        total = np.zeros(())
        for entry in entries:
            with dataset.view(entry.id) as record:
                x = patterns(self.experiment, entry, record, training=True)
                total = total + principal_components.moments(x, probes)
        return np.asarray(total / len(entries))

    def random_target(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        return batch[0]

    def row_scorer(
        self, model: "keras.Model", dataset: Dataset, baseline: Floats | None = None
    ) -> Callable[[Entry], Row]:
        autoencode = autoencoder(model)

        def score(entry: Entry) -> Row:
            x = patterns(self.experiment, entry, dataset.read(entry.id), training=False)
            return {"id": entry.id, **_errors(entry, x, *autoencode(x))}

        return score

    def numbers(self, rows: Sequence[Row]) -> dict[str, float | None]:
        return means(rows, ("rmse", "divergence"))

    def evaluate(
        self, answers: Answers, run_dir: Path, *, ranks: Ranks, run: RunFacts
    ) -> EmbedEvaluation:
        coordinates: dict[str, dict[str, list[list[float]]]] = {}
        with ranks.local_work():
            autoencode = autoencoder(answers.model)
            rival = principal_components.fit(answers.baseline, self._probes(), self._latent)
            rows_of_rank = []
            for entry in answers.entries:
                row = self._row(entry, answers.dataset, autoencode, rival, coordinates)
                rows_of_rank.append(row)
        rows = gathered(ranks, rows_of_rank)
        composites = choose_composites(rows, self.experiment.training.embed.materials)
        chosen = set(chain.from_iterable(composites))
        shown = {id: points for id, points in coordinates.items() if id in chosen}
        coordinates_of: dict[str, Mapping[str, Floats]] = {}
        for coordinates_of_rank in ranks.gather_json(shown):
            coordinates_of |= coordinates_of_rank
        evaluation = summarise(
            rows, score_composites(rows, composites, coordinates_of), self._latent, run
        )
        with ranks.local_work():
            if ranks.rank() == 0:
                write_json(run_dir / "evaluation.json", evaluation)
                (run_dir / PICTURE).unlink(missing_ok=True)
                if composites:
                    self._draw(
                        answers.model, rows, composites[-1], coordinates_of, run_dir / PICTURE
                    )
        return evaluation

    def _probes(self) -> Floats:
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
        autoencode: Autoencode,
        rival: PrincipalComponents,
        coordinates: dict[str, dict[str, list[list[float]]]],
    ) -> EmbedRow:
        """Scores the patterns of a sample beside the baseline's, and adds some of them to
        `coordinates`.
        """
        x = patterns(self.experiment, entry, dataset.read(entry.id), training=False)
        decoded, mean, log_variance = autoencode(x)
        errors = _errors(entry, x, decoded, mean, log_variance)
        scored = rival.encode(x)
        flat = x.reshape(len(x), -1)
        chosen = np.unique(np.linspace(0, len(x) - 1, COMPOSITE_PATTERNS).round().astype(int))
        coordinates[entry.id] = {
            "network": mean[chosen].tolist(),
            "baseline": scored[chosen].tolist(),
        }
        return {
            **held_out_row(entry),
            "space_group": entry.space_group,
            "patterns": len(x),
            "rmse": errors["rmse"],
            "divergence": errors["divergence"],
            "baseline_rmse": float(rmse_of_each(flat, rival.decode(scored)).mean()),
            "mean_rmse": float(rmse_of_each(flat, rival.mean[None]).mean()),
        }

    def _draw(
        self,
        model: "keras.Model",
        rows: Sequence[EmbedRow],
        composite: Sequence[str],
        coordinates_of: Mapping[str, Mapping[str, Floats]],
        path: Path,
    ) -> None:
        """Draws the latent space of a composite scan, with decoded patterns."""
        formulas = {row["id"]: row["formula"] for row in rows}
        latents = []
        groups = []
        names = []
        for group, id in enumerate(composite):
            points = np.array(coordinates_of[id]["network"])
            latents.append(points)
            groups.append(np.full(len(points), group))
            names.append(formulas[id])
        decode = decoder(model, self.experiment)
        figure = latent_space_figure(np.concatenate(latents), np.concatenate(groups), names, decode)
        write_figure(figure, path)


def autoencoder(model: "keras.Model") -> Autoencode:
    """Returns a function from images to decoded images, and means and logarithms of the variances
    of latent numbers.

    All are NumPy arrays; latent numbers are `(n, latent)` in float64.
    """
    compute = in_parts(lambda x: model(x, training=False), model, PATTERNS_AT_ONCE)

    def autoencode(images: Images) -> tuple[Images, Floats, Floats]:
        decoded, mean, log_variance = compute(images)
        return decoded, mean.astype(np.float64), log_variance.astype(np.float64)

    return autoencode


def decoder(model: "keras.Model", experiment: Experiment) -> Callable[[Floats], Images]:
    """Returns a function from latent numbers `(n, latent)` to patterns `(n, dy, dx)`, fractions of
    the beam.
    """
    network = cvae.decoder(model)
    compute = in_parts(lambda z: network(z, training=False), network, PATTERNS_AT_ONCE)
    return lambda latents: intensities(experiment, compute(latents.astype(np.float32)))


def _errors(
    entry: Entry, x: Images, decoded: Images, mean: Floats, log_variance: Floats
) -> dict[str, float]:
    """Returns the mean over the patterns of the error and of the divergence."""
    divergence = (np.exp(log_variance) + mean**2 - 1 - log_variance).sum(axis=1) / 2
    errors = {
        "rmse": float(rmse_of_each(x, decoded).mean()),
        "divergence": float(divergence.mean()),
    }
    check_finite(entry, np.array(list(errors.values())))
    return errors


def rmse_of_each(patterns: Array, others: Array) -> Floats:
    """Returns the rms difference of patterns `(n, ...)` from others of a shape that fits,
    `(n,)`.
    """
    squares = (patterns.astype(np.float64) - others) ** 2
    return np.asarray(np.sqrt(squares.mean(axis=tuple(range(1, squares.ndim)))))


TASK = Embedding
