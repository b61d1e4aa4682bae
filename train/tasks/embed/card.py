"""The model card of a network of the task embed."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Array
from namsa.base.text import plural
from namsa.dataset.entry import Entry
from namsa.dataset.shards import Dataset
from namsa.figures.document import DocumentSection, Paragraph, Text, strong

from ...apply.models import Model
from ...apply.weights import build_loaded
from ...experiment.experiment import Experiment
from ...networks.cvae import CVAEConfig
from ...reports.card_sections import Usage, undrawn
from ..card import CardFacts, Evaluation, Rounding, TaskCard
from ..pattern_images import patterns
from ..splits import dev, last
from .report import score_table
from .task import autoencoder


class EmbedCard(TaskCard):
    """The model card of a network of the task embed; `TaskCard` documents the methods."""

    def usage(self, experiment: Experiment) -> Usage:
        network = experiment.network
        assert isinstance(network, CVAEConfig)
        numbers = plural(network.latent, "latent number")
        return Usage(
            f"From each pattern of a 4D-STEM scan to {numbers}, learnt without labels, and from "
            "these to the pattern again. Clusters of the numbers divide the scan into kinds of "
            "patterns.",
            "embed",
            "LATENTS.h5",
            by_pattern=True,
        )

    def scores(self, facts: CardFacts) -> DocumentSection:
        """Errors of the decoded patterns, and agreements of clusters with materials, by split."""
        evaluation = facts.evaluation
        text = (
            "Root mean square error of the decoded patterns, in units of the network's "
            f"input{undrawn(facts.experiment)}; and the normalised mutual information (NMI) of "
            "clusters of the latent numbers with the materials of composite scans. The baseline "
            "is as many principal components of the training patterns."
        )
        title = f"Scores: {plural(evaluation['latent'], 'latent number')}"
        return DocumentSection(title, (Paragraph(text), score_table(evaluation).of_card()))

    def limits(self, facts: CardFacts) -> Sequence[Text]:
        row = last(facts.evaluation["by_split"])[1]
        limits: list[Text] = []
        if row["rmse"] >= row["baseline_rmse"]:
            limits.append(
                (
                    strong(
                        "As many principal components describe patterns of held-out materials "
                        "better"
                    ),
                    f": rms error {row['baseline_rmse']:.4g}, the network's {row['rmse']:.4g}.",
                )
            )
        if row["nmi"] is not None and row["nmi"] <= row["baseline_nmi"]:
            limits.append(
                (
                    strong("Clusters of the components agree with the materials as well or better"),
                    f": NMI {row['baseline_nmi']:.3f}, the network's {row['nmi']:.3f}.",
                )
            )
        limits.append(
            "Clusters have no names, and their number is chosen by the user. Neighbouring "
            "patterns of one crystal can be in different clusters, since a pattern depends on the "
            "position in the cell where the probe is small."
        )
        return limits

    def dev_error(self, evaluation: Evaluation) -> float | None:
        return dev(evaluation, "rmse")

    def answers(
        self, model: Model, dataset: Dataset, entries: Sequence[Entry]
    ) -> npt.NDArray[np.float32]:
        """Returns the decoded patterns of some samples."""
        experiment = model.experiment
        autoencode = autoencoder(build_loaded(model, experiment.network))
        images = []
        for entry in entries:
            record = dataset.read(entry.id)
            decoded, _, _ = autoencode(patterns(experiment, entry, record, training=False))
            images.append(decoded)
        return np.concatenate(images)

    def rounding(self, before: Array, after: Array, evaluation: Evaluation) -> Rounding:
        """Returns the rms change of the decoded patterns, beside their error."""
        change = float(np.sqrt(np.mean((after.astype(np.float64) - before) ** 2)))
        error = last(evaluation["by_split"])[1]["rmse"]
        words = (
            f"the decoded patterns change by {change:.2g} (rms), in units of the input; the rms "
            f"error is {error:.3g}"
        )
        return Rounding(change, error, words)


CARD = EmbedCard()
