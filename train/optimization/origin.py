"""The origin of weights: the configuration and samples that made them, and all that they learnt.

It is part of a checkpoint's header, so that it goes where the weights go: into a run's copy at
home, into `best.npz`, into a packed model and into the training that starts from them. Checkpoints
of earlier versions have none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from namsa.base.text import shorten
from namsa.dataset.entry import UNKNOWN, Entry

ORIGIN = "origin"  # the key of a checkpoint's header


@dataclass(frozen=True)
class LearntMaterials:
    """The materials that weights have learnt, in this training and in those that it started from.

    A sample counts as learnt if a sample of its formula was: the splits of a dataset keep all
    materials of a formula together. Where a file states no formula, the name of the material
    counts.
    """

    formulas: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    complete: bool = True  # whether the materials of all trainings are known

    def include(self, entry: Entry) -> bool:
        """Returns whether a sample is of a material that was learnt."""
        if entry.partner in self.names:
            return True
        if entry.formula == UNKNOWN:
            return entry.material != UNKNOWN and entry.material in self.names
        return entry.formula in self.formulas

    def unseen(self, held_out: Sequence[Entry]) -> list[Entry]:
        """Returns the held-out samples of materials that were not learnt.

        A job that starts from other weights, or from samples with another split, may hold out what
        was learnt before. Training samples, of which positions are held out, stay.
        """
        return [entry for entry in held_out if entry.split == "train" or not self.include(entry)]

    def joined(self, other: "LearntMaterials") -> "LearntMaterials":
        """Returns the materials of both."""
        return LearntMaterials(
            self.formulas | other.formulas,
            self.names | other.names,
            self.complete and other.complete,
        )

    @classmethod
    def of(cls, formulas: Mapping[str, str]) -> "LearntMaterials":
        """Returns the materials of one training, from their formulas by their names."""
        unknown = {UNKNOWN}
        return cls(frozenset(formulas.values()) - unknown, frozenset(formulas) - unknown)

    @classmethod
    def from_json(cls, values: object) -> "LearntMaterials":
        """Returns the materials of a checkpoint's header. Raises ValueError if it is malformed."""
        if not isinstance(values, dict):
            raise ValueError(f"its header has the learnt materials {shorten(values)}")
        lists = []
        for key in ("formulas", "names"):
            texts = values.get(key)
            if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
                raise ValueError(f"its header has the learnt {key} {shorten(texts)}, not a list")
            lists.append(frozenset(texts))
        formulas, names = lists
        return cls(formulas, names, values.get("complete") is True)

    def to_json(self) -> dict[str, object]:
        """Returns the JSON object of a checkpoint's header."""
        return {
            "formulas": sorted(self.formulas),
            "names": sorted(self.names),
            "complete": self.complete,
        }


NOT_KNOWN = LearntMaterials(complete=False)


@dataclass(frozen=True)
class Origin:
    """The origin of a checkpoint's weights."""

    # The configuration and the samples, as `train.experiment.continuation` compares them.
    identity: Mapping[str, object]
    # Digest of the arrays of the checkpoint from which the training started; `None` for random
    # weights.
    start: str | None = None
    learnt: LearntMaterials = NOT_KNOWN

    def having_learnt(self, more: LearntMaterials) -> "Origin":
        """Returns the origin of weights that learn further materials."""
        return replace(self, learnt=self.learnt.joined(more))

    def to_json(self) -> dict[str, object]:
        """Returns the JSON object of a checkpoint's header."""
        return {
            "identity": dict(self.identity),
            "start": self.start,
            "learnt": self.learnt.to_json(),
        }


def origin_of(header: Mapping[str, object]) -> Origin | None:
    """Returns the origin that a checkpoint's header holds; `None` if it holds none.

    Raises:
        ValueError: If it holds something else.
    """
    if ORIGIN not in header:
        return None
    values = header[ORIGIN]
    if not isinstance(values, dict) or not isinstance(values.get("identity"), dict):
        raise ValueError(f"its header has the origin {shorten(values)}")
    start = values.get("start")
    if not isinstance(start, str | None):
        raise ValueError(f"its header has the start {shorten(start)}, not a digest")
    return Origin(values["identity"], start, LearntMaterials.from_json(values.get("learnt")))


def learnt_of(header: Mapping[str, object]) -> LearntMaterials:
    """Returns the materials that the weights of a checkpoint have learnt, as far as it names them.

    Raises:
        ValueError: If the header is malformed.
    """
    origin = origin_of(header)
    return origin.learnt if origin else NOT_KNOWN
