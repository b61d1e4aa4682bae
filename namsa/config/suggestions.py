"""Suggestions in place of a key that a section lacks: the nearest by spelling or place."""

import difflib
from collections.abc import Iterator, Mapping, Sequence

from pydantic import BaseModel

# What keys are called elsewhere, in Keras, PyTorch, JAX and microscopy.
OTHER_NAMES: Mapping[str, str] = {
    "lr": "learning_rate",
    "rate": "learning_rate",
    "base_lr": "learning_rate",
    "initial_learning_rate": "learning_rate",
    "batch": "batch_size",
    "batchsize": "batch_size",
    "micro_batch_size": "batch_size",
    "num_epochs": "epochs",
    "max_epochs": "epochs",
    "n_epochs": "epochs",
    "max_steps": "steps",
    "num_steps": "steps",
    "iterations": "steps",
    "optim": "optimizer",
    "scheduler": "schedule",
    "lr_schedule": "schedule",
    "lr_scheduler": "schedule",
    "criterion": "loss",
    "warmup": "warmup_epochs",
    "gamma": "decay",
    "step_size": "decay_every_epochs",
    "b1": "beta_1",
    "beta1": "beta_1",
    "b2": "beta_2",
    "beta2": "beta_2",
    "eps": "epsilon",
    "wd": "weight_decay",
    "clip": "clip_norm",
    "clipnorm": "clip_norm",
    "global_clipnorm": "clip_norm",
    "grad_clip": "clip_norm",
    "max_grad_norm": "clip_norm",
    "gradient_clip_val": "clip_norm",
    "gradient_clipping": "clip_norm",
    "grad_accumulation": "accumulate",
    "gradient_accumulation_steps": "accumulate",
    "accumulation_steps": "accumulate",
    "amp": "precision",
    "fp16": "precision",
    "bf16": "precision",
    "mixed_precision": "precision",
    "dtype_policy": "precision",
    "early_stopping": "stop_at",
    "path": "directory",
    "folder": "directory",
    "pretrained": "start_from",
    "init_from": "start_from",
    "weights": "start_from",
    "random_seed": "seed",
    "rng": "seed",
    "voltage": "energy_ev",
    "kv": "energy_ev",
    "energy": "energy_ev",
    "convergence": "semiangle_mrad",
    "convergence_angle": "semiangle_mrad",
    "convergence_semiangle": "semiangle_mrad",
    "semiangle": "semiangle_mrad",
    "alpha": "semiangle_mrad",
    "thickness": "thickness_angstrom",
    "crystals": "materials",
    "dropout_rate": "dropout",
    "growth_rate": "growth",
}
# of difflib, from which words are alike
_LIKE = 0.65
_VERY_LIKE = 0.75
_MOST_KEYS = 12  # of a section that a message lists
_DEEPEST = 6  # sections within sections


def suggestion(
    key: str, section: type[BaseModel], place: Sequence[str], root: type[BaseModel]
) -> str:
    """Returns what to write in place of a key, as a question; or the keys of the section.

    A key of the same section of the same meaning, nearly the same spelling or the same beginning
    comes first, then one of the same name or meaning of another section, the nearest to this one,
    then a similar spelling in the same section.

    Args:
        key: The key that the section does not have.
        section: The section.
        place: The keys of the sections that it is in, and its own.
        root: The whole configuration.
    """
    plain = key.lower().replace("-", "_")
    meant = OTHER_NAMES.get(plain, plain)
    here = list(section.model_fields)
    if meant in here:
        return f"did you mean {meant}?"
    very_alike = difflib.get_close_matches(plain, here, n=1, cutoff=_VERY_LIKE)
    if very_alike:
        return f"did you mean {very_alike[0]}?"
    longer = [name for name in here if name.startswith(f"{plain}_")]
    if longer:
        return f"did you mean {longer[0]}?"
    elsewhere = _nearest(meant, place, root)
    if elsewhere:
        return f"did you mean {elsewhere}?"
    alike = difflib.get_close_matches(plain, here, n=1, cutoff=_LIKE)
    if alike:
        return f"did you mean {alike[0]}?"
    begins = [name for name in here if name.startswith(plain) or plain.startswith(name)]
    if begins:
        return f"did you mean {begins[0]}?"
    if not here:
        return "the section has no keys"
    listed = ", ".join(here[:_MOST_KEYS])
    more = f" and {len(here) - _MOST_KEYS} more" if len(here) > _MOST_KEYS else ""
    return f"the keys here are {listed}{more}"


def _nearest(name: str, place: Sequence[str], root: type[BaseModel]) -> str | None:
    """Returns the dotted key of a name whose section is the nearest to a place; `None` without."""
    best: tuple[int, str] | None = None
    for keys in _keys(root, ()):
        if keys[-1] != name:
            continue
        common = 0
        for ours, theirs in zip(place, keys[:-1], strict=False):
            if ours != theirs:
                break
            common += 1
        distance = len(place) + len(keys) - 2 * common
        if best is None or distance < best[0]:
            best = (distance, ".".join(keys))
    return best[1] if best else None


def _keys(section: type[BaseModel], prefix: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yields the keys of a section and of those in it, each with the sections that it is in."""
    for name, field in section.model_fields.items():
        keys = (*prefix, name)
        yield keys
        if len(keys) < _DEEPEST:
            for inner in sections_of(field.annotation):
                yield from _keys(inner, keys)


def sections_of(annotation: object) -> list[type[BaseModel]]:
    """Returns the sections that a field may be, by its annotation."""
    sections = []
    for member in (annotation, *getattr(annotation, "__args__", ())):
        kind = getattr(member, "__origin__", member)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            sections.append(kind)
    return sections
