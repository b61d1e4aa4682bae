"""The list of a dataset's samples and the crystals of a part of it, as a rank that simulates needs
them.

`plan_list` reads or builds the list and writes nothing, so that what refuses it leaves no manifest
behind. `Listing.write` writes it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from namsa.base.files import write_text_atomic
from namsa.config.simulation import SimulationConfig
from namsa.crystals.material import Material
from namsa.crystals.select import select_materials
from namsa.dataset import manifest
from namsa.dataset.entry import Entry, materials_named

Select = Callable[[Sequence[Entry]], Sequence[Entry]]


@dataclass(frozen=True)
class Listing:
    """The list of a dataset's samples."""

    directory: Path  # the folder of the dataset
    config: SimulationConfig
    entries: Sequence[Entry]  # all of the list
    selected: Sequence[Entry]  # those whose crystals are needed
    materials: dict[str, Material]  # by name, at least those of `selected`
    text: str | None  # content of a manifest that is still to be written
    requested_hash: str  # of the configuration and its crystals; empty without `text`

    def write(self) -> None:
        """Writes the manifest where there is none.

        Any number of ranks may call this at once: the first to finish writes the file.

        Raises:
            InputError: If another program has written the manifest of another configuration.
        """
        if self.text is None:
            return
        write_text_atomic(self.directory / manifest.FILE_NAME, self.text, replace=False)
        manifest.read_checked(self.directory, self.config, self.requested_hash)


def list_samples(
    directory: Path, config: SimulationConfig, select: Select
) -> tuple[Sequence[Entry], Sequence[Entry], dict[str, Material]]:
    """Reads the manifest of a dataset, or builds and writes it. Arguments and errors are those of
    `plan_list`.

    Returns:
        All entries, those that `select` returns, and at least the materials of these by name.
    """
    listing = plan_list(directory, config, select)
    listing.write()
    return listing.entries, listing.selected, listing.materials


def plan_list(directory: Path, config: SimulationConfig, select: Select) -> Listing:
    """Reads the manifest of a dataset, or builds it without writing it.

    Crystals that take long to derive are derived for the selected entries alone if the manifest
    shows that it is the configuration's.

    Args:
        config: The configuration of the dataset, given on the command line: its generator may run.
        select: Returns those of the entries whose crystals are needed.

    Raises:
        InputError: If the manifest belongs to another configuration or is damaged, or a crystal
            cannot be read.
    """
    text = manifest.given_text(directory, config)
    folder = directory
    if text is not None:
        assert config.data.manifest_from
        folder = config.data.manifest_from
    requested_hash = ""
    entries: Sequence[Entry] | None = manifest.read_if_current(folder, config)
    if entries is not None:
        requested_hash = manifest.read_header(folder)["config_hash"]
        selected = select(entries)
        materials = select_materials(config.materials, names=materials_named(selected))
    else:
        materials = select_materials(config.materials, run_generator=True)
        requested_hash = manifest.config_hash(config, materials)
        if (folder / manifest.FILE_NAME).exists():
            entries = manifest.read_checked(folder, config, requested_hash)
        else:
            entries = manifest.build_and_warn(config, materials)
            text = manifest.text_of(config, requested_hash, entries, materials)
        selected = select(entries)
    by_name = {material.name: material for material in materials}
    return Listing(directory, config, entries, selected, by_name, text, requested_hash)
