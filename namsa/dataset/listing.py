"""The list of a dataset's samples and the crystals of a part of it, as a rank that simulates needs them."""

from collections.abc import Callable, Sequence
from pathlib import Path

from namsa.config.simulation import SimulationConfig
from namsa.crystals.material import Material
from namsa.crystals.select import select_materials
from namsa.dataset import manifest
from namsa.dataset.entry import Entry, materials_named


def list_samples(
    directory: Path, config: SimulationConfig, part: Callable[[Sequence[Entry]], Sequence[Entry]]
) -> tuple[Sequence[Entry], Sequence[Entry], dict[str, Material]]:
    """Reads the manifest of a dataset, or builds and writes it.

    Crystals that take long to derive are derived for `part` alone if the manifest shows that it is the configuration's.

    Args:
        config: The configuration of the dataset, given on the command line: its generator may run.
        part: Returns those of the entries whose crystals are needed.

    Returns:
        All entries, `part` of them, and at least the materials of these by name.

    Raises:
        InputError: If the manifest belongs to another configuration or is damaged, or a crystal cannot be read.
    """
    manifest.take_given(directory, config)
    listed = manifest.read_if_current(directory, config)
    if listed is None:
        materials = select_materials(config.materials, run_generator=True)
        listed = manifest.ensure(directory, config, materials)
        entries = part(listed)
    else:
        entries = part(listed)
        materials = select_materials(config.materials, names=materials_named(entries))
    return listed, entries, {material.name: material for material in materials}
