"""Identity of a dataset, compared before it is continued.

The manifest's header has the hash of all that decides the list and the samples, files and atoms by
their contents. `config.yaml` beside it has the settings, by which a message names what differs.
"""

from pathlib import Path

from namsa.base import identity
from namsa.base.errors import InputError
from namsa.base.files import write_text_atomic
from namsa.config.loading import dump_yaml
from namsa.config.simulation import SimulationConfig, load_config

CONFIG_FILE = "config.yaml"
# Settings that decide neither the list nor a sample: names, places, and what is trained on.
_NOT_DECISIVE = ("name", "data", "target.kind")


def write_settings(directory: Path, config: SimulationConfig) -> None:
    """Writes the settings of a dataset to its folder, after `check_same_list`."""
    write_text_atomic(directory / CONFIG_FILE, dump_yaml(config))


def check_same_list(
    directory: Path, config: SimulationConfig, stored_hash: str, requested_hash: str
) -> None:
    """Compares a configuration with the one whose samples the manifest in `directory` lists.

    Args:
        stored_hash: That of the manifest.
        requested_hash: That of `config` and its crystals.

    Raises:
        DifferentError: If the hashes differ. The message names the settings that differ, as far as
            `config.yaml` has them.
    """
    if stored_hash == requested_hash:
        return
    before, now = _settings(directory, config)
    doubt = ""
    if config.materials.generator:
        doubt = " (does materials.generator give the same every time?)"
    identity.check_same(
        f"the dataset in {directory}",
        before | {"config_hash": stored_hash},
        now | {"config_hash": requested_hash},
        changes_nothing=_changes_nothing,
        remedy=f"give this one a directory of its own, or delete {directory} to start anew{doubt}",
    )


def check_same_samples(directory: Path, stored_hash: str | None, requested_hash: str) -> None:
    """Compares the samples of a configuration with those in `directory`, whose list is the same.

    Args:
        stored_hash: The hash of the samples in `directory`; `None` if there are none.

    Raises:
        DifferentError: If samples of the same list would have other values.
    """
    if stored_hash is None:
        return
    identity.check_same(
        f"the dataset in {directory}",
        {"samples_hash": stored_hash},
        {"samples_hash": requested_hash},
        changes_nothing=lambda key: False,
        remedy=(
            "it is of another version of namsa, which gives its samples other values: continue it "
            f"with that version, give this one a directory of its own, or delete {directory} to "
            "start anew"
        ),
    )


def _settings(
    directory: Path, config: SimulationConfig
) -> tuple[dict[str, object], dict[str, object]]:
    """Returns the settings of a dataset and those of a configuration; none of both if the dataset's
    cannot be read.
    """
    try:
        stored = load_config(directory / CONFIG_FILE)
    except InputError:
        return {}, {}
    names = set(SimulationConfig.model_fields)
    return (
        stored.model_dump(mode="json", include=names),
        config.model_dump(mode="json", include=names),
    )


def _changes_nothing(key: str) -> bool:
    return any(key == name or key.startswith(f"{name}.") for name in _NOT_DECISIVE)
