"""The entries of a dataset: every material along every zone axis at every thickness, split by material."""

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from threadpoolctl import threadpool_limits

from namsa.config.instrument import Specimen
from namsa.config.simulation import SimulationConfig
from namsa.config.variation import VariedValues, draw_values
from namsa.crystals.material import Material
from namsa.crystals.orient import CellFit, RectangularCells, find_rectangular_cells, fit_to_size
from namsa.crystals.zone_axes import ZoneAxis, simplest_zone_axes
from namsa.dataset.entry import Entry
from namsa.dataset.sample_setup import simulation_grid
from namsa.dataset.splits import SplitName, assign
from namsa.errors import InputError
from namsa.names import check_name, is_name
from namsa.physics.potential import slice_count

_RENAME = "rename the crystal, that is its file or its info['name']"

MOST_ENTRIES = 10_000_000


@threadpool_limits.wrap(limits=1, user_api="blas")  # matrices of a few hundred rows: more threads only wait
def build_entries(config: SimulationConfig, materials: Sequence[Material]) -> tuple[Entry, ...]:
    """Returns every material along every zone axis at every thickness, with every configuration of the microscope.

    An entry for which no supercell can be built has the reason in `skipped`.

    Args:
        config: The configuration of the dataset.
        materials: Its materials.

    Raises:
        InputError: If two entries would have the same id, or one has an id that may not be the name of a file.
    """
    _check_count(config, len(materials))
    by_structure: dict[str, list[int]] = defaultdict(list)
    for index, material in enumerate(materials):
        by_structure[material.prototype or material.name].append(index)
    splits = assign(materials, config.split)
    of_material: list[list[Entry]] = [[] for _ in materials]
    # What depends on the shape of the cell alone is found once for all crystals of a structure.
    for indices in by_structure.values():
        for zone_axis in _zone_axes(config.specimen, materials[indices[0]]):
            found: RectangularCells | InputError | None = None
            for index in indices:
                material = materials[index]
                found = _find_cells(config.specimen, material, zone_axis, found)
                of_material[index] += _entries(config, material, splits[index], zone_axis, found)
    entries = [entry for group in of_material for entry in group]
    for entry in entries:
        if not (is_name(entry.material) and is_name(entry.id)):
            check_name(entry.material, "a crystal", _RENAME)
            check_name(entry.id, "a sample", _RENAME)
    repeated, count = Counter(entry.id for entry in entries).most_common(1)[0]
    if count > 1:
        raise InputError(f"{count} samples would be named {repeated}: give each material, zone axis, thickness once")
    return tuple(entries)


def _zone_axes(specimen: Specimen, material: Material) -> tuple[ZoneAxis, ...]:
    """Returns the zone axes of a material and of all crystals of its structure."""
    if specimen.simplest_zone_axes is None:
        return specimen.zone_axes
    return simplest_zone_axes(material.atoms, specimen.simplest_zone_axes)


def _find_cells(
    specimen: Specimen, material: Material, zone_axis: ZoneAxis, found: RectangularCells | InputError | None
) -> RectangularCells | InputError:
    """Returns the right-angled cells of a material, or why there are none.

    Args:
        specimen: The specimens of the configuration.
        material: The crystal.
        zone_axis: The axis along the beam.
        found: What was returned for another crystal of the same structure. `None` if there is none.
    """
    if isinstance(found, RectangularCells):
        return found.resized(material.atoms)
    if found:
        return found
    try:
        return find_rectangular_cells(material.atoms, zone_axis, specimen.max_strain)
    except InputError as error:
        return error


def _entries(
    config: SimulationConfig,
    material: Material,
    split: SplitName,
    zone_axis: ZoneAxis,
    cells: RectangularCells | InputError,
) -> Iterator[Entry]:
    """Yields the entries of a material along a zone axis."""
    for thickness, reason, cost in _thicknesses(config, cells):
        specimen = f"{material.name}-{''.join(map(str, zone_axis))}-{thickness:g}A"
        for suffix, varied in _microscopes(config, specimen):
            yield Entry(
                id=specimen + suffix,
                material=material.name,
                formula=material.formula,
                space_group=material.space_group,
                zone_axis=zone_axis,
                thickness_angstrom=thickness,
                seed=_seed(config, specimen + suffix),
                split=split,
                skipped=reason,
                source=material.kind,
                varied=varied,
                cost=cost,
            )


def _check_count(config: SimulationConfig, materials: int) -> None:
    """Raises InputError for more entries than a manifest can hold."""
    zone_axes = config.specimen.simplest_zone_axes or len(config.specimen.zone_axes)
    thicknesses = len(config.specimen.thickness_angstrom)
    varied = config.variation.configurations_per_specimen() if config.variation else 1
    count = materials * zone_axes * thicknesses * varied
    if count > MOST_ENTRIES:
        raise InputError(
            f"{materials} materials × {zone_axes} zone axes × {thicknesses} thicknesses × {varied} configurations of "
            f"the microscope are {count} samples; a dataset has {MOST_ENTRIES} or fewer"
        )


def spread_over_thicknesses(entries: Sequence[Entry], count: int) -> list[Entry]:
    """Returns about `count` of `entries`: equally many and at least one per thickness, evenly over the list."""
    thicknesses = sorted({entry.thickness_angstrom for entry in entries})
    per_thickness = -(-count // max(1, len(thicknesses)))
    chosen: list[Entry] = []
    for thickness in thicknesses:
        of_thickness = [entry for entry in entries if entry.thickness_angstrom == thickness]
        indices = np.linspace(0, len(of_thickness) - 1, min(per_thickness, len(of_thickness))).round().astype(int)
        chosen += [of_thickness[index] for index in indices]
    return chosen


def _microscopes(config: SimulationConfig, specimen: str) -> list[tuple[str, VariedValues]]:
    """Returns the suffix of the id and the microscope's own values, for each sample of a specimen."""
    if not config.variation:
        return [("", {})]
    return [(f"-v{i}", varied) for i, varied in enumerate(draw_values(config.variation, _seed(config, specimen)))]


def _seed(config: SimulationConfig, name: str) -> int:
    """Returns a seed that follows from the configuration's seed and a name alone."""
    return int.from_bytes(hashlib.sha256(f"{config.seed} {name}".encode()).digest()[:6], "big")


def _thicknesses(
    config: SimulationConfig, cells: RectangularCells | InputError
) -> Iterator[tuple[float, str | None, int]]:
    """Yields each thickness with the reason why it is skipped, if it is, and its cost.

    A thickness is skipped if no supercell can be built, or if its supercell is that of an earlier thickness.
    """
    specimen = config.specimen
    if isinstance(cells, InputError):
        yield from ((thickness, str(cells), 0) for thickness in specimen.thickness_angstrom)
        return
    thickest, too_thick, reason = _thickest(cells, specimen)
    first: dict[int, float] = {}
    for thickness in specimen.thickness_angstrom:
        repeats = cells.repeats(thickness)
        same = first.setdefault(repeats, thickness)
        if thickest is None or thickness >= too_thick:
            yield thickness, reason, 0
        elif same != thickness:
            period = f"{repeats} × the crystal's period of {cells.repeat_angstrom:.2f} Å"
            yield thickness, f"{thickness:g} Å is {period}, and so is {same:g} Å", 0
        else:
            yield thickness, None, _cost(config, thickest, repeats * cells.repeat_angstrom)


def _thickest(cells: RectangularCells, specimen: Specimen) -> tuple[CellFit | None, float, str | None]:
    """Returns the thickest supercell, the smallest thickness with too many atoms (or infinity), and the reason.

    A supercell that can be built at one thickness can be built at every smaller one. In most cases only the largest
    is tried.
    """
    too_thick, reason = math.inf, None
    for thickness in sorted(set(specimen.thickness_angstrom), reverse=True):
        try:
            return fit_to_size(cells, specimen.lateral_angstrom, thickness, specimen.max_atoms), too_thick, reason
        except InputError as error:
            too_thick, reason = thickness, str(error)
    return None, too_thick, reason


def _cost(config: SimulationConfig, thickest: CellFit, depth_angstrom: float) -> int:
    """Returns slices × pixels × probes of the supercell `thickest` with another depth.

    The sides of the best supercell may change with the depth; the cost ignores that. It also leaves out what is the
    same for all samples, and the number of atoms, which predicts the time less well than the pixels do: on
    configs/summit.yaml, the busiest of 16 ranks has 4 to 10% more than the mean, by atoms × slices 17%.
    """
    ny, nx = simulation_grid(config.simulation, thickest.lengths_angstrom).shape
    probes = math.prod(config.scan.shape or (1, 1))
    return slice_count(depth_angstrom, config.simulation.slice_thickness_angstrom) * ny * nx * probes
