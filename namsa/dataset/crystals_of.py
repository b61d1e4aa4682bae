"""The crystals of a dataset, which its folder names in its settings and does not hold."""

from collections.abc import Collection
from pathlib import Path

from namsa.base.errors import InputError
from namsa.config.simulation import SimulationConfig, load_config
from namsa.crystals.material import Material
from namsa.crystals.select import select_materials
from namsa.dataset import manifest
from namsa.dataset.identity import CONFIG_FILE


class CrystalsOf:
    """A dataset's settings, and its crystals by name, built anew.

    Attributes:
        config: The settings.
        materials: The crystals by name.
    """

    config: SimulationConfig
    materials: dict[str, Material]

    def __init__(self, directory: Path, names: Collection[str]) -> None:
        """Builds the crystals.

        Args:
            directory: The dataset's folder.
            names: The crystals that are wanted.

        Raises:
            InputError: If the settings or the crystals' files are missing, or give other crystals
                than those of the manifest.
        """
        self.config = load_config(directory / CONFIG_FILE)
        header = manifest.read_header(directory)
        if "sources_hash" in header:  # of so many crystals that only some are built
            same = header["sources_hash"] == manifest.sources_hash(self.config)
            materials = select_materials(self.config.materials, names=set(names)) if same else ()
        else:
            materials = select_materials(self.config.materials)
            same = header["config_hash"] == manifest.config_hash(self.config, materials)
        if not same:
            raise InputError(
                f"the crystals that {directory / CONFIG_FILE} names are not those of "
                f"{directory / manifest.FILE_NAME}: their files or this version's crystals differ"
            )
        self.materials = {material.name: material for material in materials}
