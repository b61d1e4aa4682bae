"""The error of a dataset's pixels and slices: a few of its samples, compared with twice the resolution.

The result is `convergence.json` in the dataset's folder. Records do not depend on it.
"""

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from namsa.config.simulation import SimulationConfig
from namsa.convergence import Convergence, check_convergence
from namsa.crystals.material import Material
from namsa.dataset.entry import Entry, material_of, seed_of
from namsa.dataset.sample_setup import make_sample_setup, numerical_settings
from namsa.errors import InputError, SimulationWarning
from namsa.files import write_text_atomic
from namsa.io.charge_density import ChargeDensity
from namsa.json_files import read_json

FILE = "convergence.json"
_FEWEST = 10  # samples of a dataset that is checked: of fewer, the check would cost as much as they do
_CHECKED = 3


def check_entry(
    config: SimulationConfig, material: Material, entry: Entry, charge_density: ChargeDensity | None = None
) -> Convergence:
    """Compares the simulation of a sample's specimen, as thick as it is made, with twice the resolution.

    Args:
        charge_density: That of the crystal, as `namsa.simulate` takes it.

    Raises:
        InputError: If the simulation of the sample would raise it.
        OutOfMemoryError: If the reference does not fit into memory.
    """
    setup = make_sample_setup(config, material, entry)
    seed, microscope = seed_of(config.seed, entry.specimen), setup.config.microscope
    return check_convergence(
        setup.snapshots(setup.supercell(), seed),
        energy_ev=microscope.energy_ev,
        semiangle_mrad=microscope.semiangle_mrad,
        detector=config.detector,
        frozen_phonons=setup.config.specimen.frozen_phonons,
        specimen_tilt_mrad=microscope.specimen_tilt_mrad,
        seed=seed,
        charge_density=charge_density,
        **numerical_settings(setup, judged=True),
    )


def samples_to_check(entries: Sequence[Entry], materials: Mapping[str, Material], count: int = _CHECKED) -> list[Entry]:
    """Returns the samples of the lightest elements, of the heaviest ones, and of elements between.

    Args:
        count: The largest number of samples; one is of the heaviest elements.
    """
    by_weight = sorted(entries, key=lambda entry: (int(material_of(entry, materials).atoms.numbers.max()), entry.id))
    last = len(by_weight) - 1
    chosen = [by_weight[last - last * part // max(1, count - 1)] for part in reversed(range(count))]
    return list({entry.id: entry for entry in chosen}.values())


def check_dataset(
    directory: Path, config: SimulationConfig, entries: Sequence[Entry], materials: Mapping[str, Material]
) -> None:
    """Checks a few samples of a dataset, unless they were, and writes what was found to its folder.

    They are those of the heaviest elements, of the lightest ones, and of elements between.

    Args:
        entries: Its samples that can be built.

    Warns:
        SimulationWarning: If a sample exceeds the accuracy.
    """
    path, samples_hash = directory / FILE, config.samples_hash()
    if len(entries) < _FEWEST or (path.exists() and _hash_of(path) == samples_hash):
        return
    found: dict[str, Any] = {}
    for entry in samples_to_check(entries, materials):
        try:
            result = check_entry(config, material_of(entry, materials), entry)
        except (InputError, MemoryError) as error:
            found[entry.id] = {"not_checked": str(error)}
            continue
        found[entry.id] = result.as_dict()
        if result.fault:
            warnings.warn(f"{entry.id}: {result.fault}", SimulationWarning, stacklevel=2)
    report = {"samples_hash": samples_hash, "samples": found}
    write_text_atomic(path, json.dumps(report, indent=1, ensure_ascii=False) + "\n")


def _hash_of(path: Path) -> str | None:
    """Returns the hash of the samples that a file is about; `None` if it cannot be read."""
    try:
        report = read_json(path)
    except InputError:
        return None
    return report.get("samples_hash") if isinstance(report, dict) else None
