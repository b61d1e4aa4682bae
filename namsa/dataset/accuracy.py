"""The error of a dataset's pixels and slices: a few of its samples, compared with three times
the resolution.

The result is `convergence.json` in the dataset's folder. Records do not depend on it.
"""

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from namsa.base.errors import InputError, SimulationWarning
from namsa.base.files import write_text_atomic
from namsa.base.json_files import read_json
from namsa.base.text import shorten
from namsa.config.instrument import Microscope
from namsa.config.simulation import SimulationConfig
from namsa.crystals.material import Material
from namsa.dataset.entry import Entry, material_of, seed_of
from namsa.dataset.sample_setup import make_sample_setup, settings_of_sample
from namsa.io.charge_density import ChargeDensity
from namsa.sampling.convergence import Convergence, compare_with_reference

FILE = "convergence.json"
# samples of a dataset that is checked: of fewer, the check would cost as much as they do
_FEWEST = 10
_CHECKED = 3


def check_entry(
    config: SimulationConfig,
    material: Material,
    entry: Entry,
    charge_density: ChargeDensity | None = None,
) -> Convergence:
    """Compares the simulation of a sample's specimen, as thick as it is made, with three
    times the resolution.

    Args:
        charge_density: That of the crystal, as `namsa.simulate` takes it.

    Raises:
        InputError: If the simulation of the sample would raise it.
        OutOfMemoryError: If the reference does not fit into memory.
    """
    setup = make_sample_setup(config, material, entry)
    seed = seed_of(config.seed, entry.specimen)
    settings = settings_of_sample(setup, seed, charge_density=charge_density, judged=True)
    # A few probes of its own, and elastic patterns of a whole beam without aberrations.
    microscope = Microscope.model_construct(
        energy_ev=settings.microscope.energy_ev,
        semiangle_mrad=settings.microscope.semiangle_mrad,
        beam_tilt_mrad=settings.microscope.beam_tilt_mrad,
        specimen_tilt_mrad=settings.microscope.specimen_tilt_mrad,
    )
    compared = replace(
        settings,
        microscope=microscope,
        simulation=settings.simulation.model_copy(update={"method": "auto"}),
        plasmons=None,
        positions_angstrom=None,
        scan_shape=None,
        depth_bins=1,
    )
    return compare_with_reference(setup.snapshots(setup.supercell(), seed), compared)


def samples_to_check(
    entries: Sequence[Entry], materials: Mapping[str, Material], count: int = _CHECKED
) -> list[Entry]:
    """Returns the samples of the lightest elements, of the heaviest ones, and of elements between.

    Args:
        count: The largest number of samples; one is of the heaviest elements.
    """
    by_weight = sorted(
        entries,
        key=lambda entry: (int(material_of(entry, materials).atoms.numbers.max()), entry.id),
    )
    last = len(by_weight) - 1
    chosen = [by_weight[last - last * step // max(1, count - 1)] for step in reversed(range(count))]
    return list({entry.id: entry for entry in chosen}.values())


def check_dataset(
    directory: Path,
    config: SimulationConfig,
    entries: Sequence[Entry],
    materials: Mapping[str, Material],
) -> None:
    """Checks a few samples of a dataset, unless they were, and writes the errors to its folder.

    They are those of the heaviest elements, of the lightest ones, and of elements between.

    Args:
        entries: Its samples that can be built.

    Warns:
        SimulationWarning: If a sample exceeds the accuracy.
    """
    if len(entries) < _FEWEST:
        return
    path = directory / FILE
    samples_hash = config.samples_hash()
    results = _read_results(path, samples_hash)
    if results is None:
        results = {}
        for entry in samples_to_check(entries, materials):
            try:
                convergence = check_entry(config, material_of(entry, materials), entry)
            except (InputError, MemoryError) as error:
                results[entry.id] = {"not_checked": str(error)}
            else:
                results[entry.id] = convergence.as_dict()
        report = {
            "samples_hash": samples_hash,
            "checked": len(results),
            "of": len(entries),
            "samples": results,
        }
        write_text_atomic(path, json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    _warn_of(results)


def warn_again(directory: Path, config: SimulationConfig) -> None:
    """Repeats the warnings of `check_dataset` of a dataset that lacks no samples, if there are any.

    Warns:
        SimulationWarning: If a sample exceeds the accuracy.
    """
    _warn_of(_read_results(directory / FILE, config.samples_hash()) or {})


def _warn_of(results: Mapping[str, Mapping[str, object]]) -> None:
    for sample_id, result in results.items():
        problem = result.get("problem", result.get("fault"))  # the key of older files
        if problem:
            text = f"{shorten(sample_id)}: {shorten(problem, 1000)}"
            warnings.warn(text, SimulationWarning, stacklevel=3)


def _read_results(path: Path, samples_hash: str) -> dict[str, dict[str, object]] | None:
    """Returns the results in a file by sample; `None` if it has none of this configuration."""
    if not path.exists():
        return None
    try:
        report = read_json(path)
    except InputError:
        return None
    if not isinstance(report, dict) or report.get("samples_hash") != samples_hash:
        return None
    results = report.get("samples")
    if not isinstance(results, dict):
        return None
    return {name: result for name, result in results.items() if isinstance(result, dict)}
