"""The identity of a run: the keys of its configuration, and the effect of a change of each.

A run that is continued is compared with what would continue it (`namsa.base.identity`). `EFFECTS`
has an entry for every key: for a whole section, or for a key of it. What is not compared by its
value counts by what it leads to: a folder of samples by the hash of its list, a file by the
weights in it.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path

from namsa.base import identity
from namsa.base.errors import InputError
from namsa.base.identity import ABSENT, Difference

from .experiment import Experiment, load

START = "training.start_from"
SAMPLES = "samples"  # the key of an identity under which the samples are
REMEDY = (
    "continue with the former values, or give this training another --run-dir; "
    "training.start_from begins it with the weights of this one"
)


class Effect(Enum):
    """The effect of a changed key on a run that is continued."""

    REFUSED = "refused"  # the run would be neither the former training nor the new one
    REPORTED = "reported"  # the run goes on, and the change is one line
    NONE = "none"  # the change has no effect on what is learnt
    BY_CONTENTS = "by contents"  # the value is a place, and what is there is compared


EFFECTS: Mapping[str, Effect] = {
    "name": Effect.NONE,
    "seed": Effect.REFUSED,
    # The samples. Their list and their values are compared as `SAMPLES`, too.
    "materials": Effect.REFUSED,
    "materials.cif": Effect.BY_CONTENTS,
    "materials.files": Effect.BY_CONTENTS,
    "materials.materials_project.file": Effect.BY_CONTENTS,
    "materials.generator.function": Effect.BY_CONTENTS,
    "split": Effect.REFUSED,
    "specimen": Effect.REFUSED,
    "microscope": Effect.REFUSED,
    "variation": Effect.REFUSED,
    "scan": Effect.REFUSED,
    "scan.file": Effect.BY_CONTENTS,
    "simulation": Effect.REFUSED,
    "detector": Effect.REFUSED,
    "detector.response.mtf_file": Effect.BY_CONTENTS,
    "target": Effect.REFUSED,
    "data.directory": Effect.BY_CONTENTS,
    "data.manifest_from": Effect.BY_CONTENTS,
    "data.dtype": Effect.REFUSED,
    "data.tiles": Effect.NONE,
    "data.samples_per_commit": Effect.NONE,
    # As far as it decides which samples are learnt in which order: `SourceSection.decides`.
    "data.source": Effect.REFUSED,
    "data.source.node_local": Effect.REPORTED,
    "network": Effect.REFUSED,
    # The training.
    "training.task": Effect.REFUSED,
    "training.classify": Effect.REFUSED,
    "training.segment": Effect.REFUSED,
    "training.embed": Effect.REFUSED,
    "training.estimate": Effect.REFUSED,
    "training.arguments": Effect.REFUSED,
    "training.backend": Effect.REPORTED,
    "training.validation.every_epochs": Effect.REPORTED,
    "training.validation.samples": Effect.REFUSED,  # errors of different samples do not compare
    "training.validation.stop_at": Effect.REPORTED,
    "training.validation.keep_best": Effect.REPORTED,
    "training.epochs": Effect.REPORTED,
    "training.steps": Effect.REPORTED,
    "training.batch_size": Effect.REPORTED,
    "training.accumulate": Effect.REPORTED,
    "training.samples": Effect.REFUSED,
    START: Effect.BY_CONTENTS,
    "training.inputs": Effect.REFUSED,
    "training.inputs.read_ahead_gib": Effect.NONE,
    "training.loss": Effect.REFUSED,
    "training.optimizer": Effect.REFUSED,
    "training.schedule": Effect.REFUSED,
    "training.precision": Effect.REFUSED,
    "training.exchange": Effect.REFUSED,
    "training.exchange.groups": Effect.REPORTED,
    "training.exchange.grouping": Effect.REPORTED,
    "training.exchange.group_list": Effect.REPORTED,
    "training.exchange.fuse_groups": Effect.REPORTED,
    "training.exchange.contiguous": Effect.REPORTED,
    "training.exchange.hierarchical": Effect.REPORTED,
    "training.ranks": Effect.NONE,
    "training.split": Effect.REPORTED,
    "training.checkpoints": Effect.NONE,
    "training.recompute": Effect.REPORTED,
    "training.simulate_seconds": Effect.NONE,
    # What follows the training.
    "stages": Effect.NONE,
    "finish": Effect.NONE,
    # The samples as they lie in data.directory.
    "samples.list": Effect.REFUSED,
    "samples.values": Effect.REFUSED,
    "samples.trained_on": Effect.REPORTED,
}

# Keys that the job sets from its samples, where the configuration does not.
FROM_SAMPLES = (
    "training.classify.classes",
    "training.classify.potential_centres",
    "training.classify.potential_spreads",
)


def effect_of(key: str) -> Effect:
    """Returns what a change of a key does, by the longest entry of `EFFECTS` that covers it.

    A key that no entry covers is refused.
    """
    while key:
        if key in EFFECTS:
            return EFFECTS[key]
        key = key.rpartition(".")[0]
    return Effect.REFUSED


def configuration_of(experiment: Experiment) -> dict[str, object]:
    """Returns the values of a configuration that are compared, as nested mappings.

    Places are left out, and of `data.source` all that does not decide what is learnt.
    """
    tree = experiment.model_dump(mode="json")
    tree["data"]["source"] = experiment.data.source.decides()
    return _without_places(tree)


def compare(
    before: Mapping[str, object], experiment: Experiment, samples: Mapping[str, object] | None
) -> list[Difference]:
    """Returns how a run differs from what would continue it.

    A key that an earlier version did not have counts as its default.

    Args:
        before: The run's identity, as of `configuration_of`, with the samples under `SAMPLES`.
        experiment: The configuration that would continue it.
        samples: Its samples: hashes of their list and values, and how many are trained on; `None`
            where they are not known yet.
    """
    now = configuration_of(experiment)
    before = {key: value for key, value in before.items() if key != SAMPLES or samples is not None}
    if samples is not None and SAMPLES in before:
        now[SAMPLES] = dict(samples)
    changed = dict(_flat(experiment.model_dump(mode="json", exclude_defaults=True)))
    differences = []
    for difference in identity.compare(before, now):
        is_default = difference.key not in changed
        is_new_key = difference.before == ABSENT
        follows_later = samples is None and difference.key in FROM_SAMPLES
        if is_default and (is_new_key or follows_later):
            continue
        differences.append(difference)
    return differences


def check(
    run: Path, differences: list[Difference], remedy: str = REMEDY
) -> tuple[list[Difference], list[Difference]]:
    """Returns the differences to report, and those that change nothing.

    Raises:
        DifferentError: If there are others. The message has a line for each.
    """
    of_effect: dict[Effect, list[Difference]] = {effect: [] for effect in Effect}
    for difference in differences:
        of_effect[effect_of(difference.key)].append(difference)
    # a difference of contents is one of what was learnt
    if refused := of_effect[Effect.REFUSED] + of_effect[Effect.BY_CONTENTS]:
        raise identity.refusal(f"the run in {run}", refused, remedy)
    return of_effect[Effect.REPORTED], of_effect[Effect.NONE]


def earlier_configuration(folder: Path) -> dict[str, object] | None:
    """Returns the identity of a run whose checkpoints hold none, from its config.yaml.

    Returns `None` if that is missing or not valid in this version.
    """
    path = folder / "config.yaml"
    if not path.is_file():
        return None
    try:
        return configuration_of(load(path))
    except InputError:
        return None


def _without_places(tree: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Returns nested mappings without the keys that count by contents."""
    kept: dict[str, object] = {}
    for name, value in tree.items():
        key = f"{prefix}{name}"
        if EFFECTS.get(key) is Effect.BY_CONTENTS:
            continue
        if isinstance(value, Mapping):
            kept[name] = _without_places(value, f"{key}.")
        else:
            kept[name] = value
    return kept


def _flat(tree: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
