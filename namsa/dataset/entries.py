"""The entries of a dataset: every material along every zone axis at every thickness, split by
material.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
from threadpoolctl import threadpool_limits

from namsa.base.errors import InputError
from namsa.base.names import check_name, is_name
from namsa.config.simulation import SimulationConfig
from namsa.config.specimen import Specimen
from namsa.config.variation import OF_SPECIMEN, RandomVariation, VariedValues, draw_values
from namsa.crystals.material import Material
from namsa.crystals.orient import CellFit, RectangularCells, find_rectangular_cells
from namsa.crystals.symmetry import ZoneAxis, simplest_zone_axes
from namsa.dataset.entry import SPLITS, Entry, SplitName, assign, seed_of
from namsa.dataset.sample_grid import (
    equal_thickness,
    largest_angle_mrad,
    simulation_grid,
    slices_of_sample,
)
from namsa.dataset.sample_setup import thickest_supercell
from namsa.dataset.specimens import PlannedSpecimen, plan_specimen
from namsa.physics.optics import wavelength_angstrom
from namsa.physics.slice_plan import slice_count

_RENAME = "rename the crystal, that is its file or its info['name']"

MOST_ENTRIES = 10_000_000
_CELLS_KEPT = 2000  # materials whose rectangles are kept, a few kB each
_SLICES_PER_SUM = 3  # a probe is added up in the time in which a wave passes some slices


class CellFinder:
    """Finds the right-angled cells of materials, of which it keeps the last ones."""

    def __init__(self, specimen: Specimen) -> None:
        self._specimen = specimen
        self._found: dict[tuple[str, ZoneAxis], RectangularCells | InputError] = {}

    def __call__(self, material: Material, zone_axis: ZoneAxis) -> RectangularCells | InputError:
        """Returns the cells of a material along an axis, or why there are none."""
        key = material.name, zone_axis
        if key not in self._found:
            if len(self._found) >= _CELLS_KEPT:
                self._found.clear()
            self._found[key] = _find_cells(self._specimen, material, zone_axis, None)
        return self._found[key]


# matrices of a few hundred rows: more threads only wait
@threadpool_limits.wrap(limits=1, user_api="blas")
def build_entries(config: SimulationConfig, materials: Sequence[Material]) -> tuple[Entry, ...]:
    """Returns every material along every zone axis at every thickness, with every configuration of
    the microscope.

    An entry for which no supercell can be built has the reason in `skipped`.

    Raises:
        InputError: If two entries would have the same id, or one has an id that may not be the name
            of a file.
    """
    _check_count(config, len(materials))
    by_structure: dict[str, list[int]] = defaultdict(list)
    for index, material in enumerate(materials):
        by_structure[material.prototype or material.name].append(index)
    splits = assign(materials, config.split)
    of_split: dict[str, list[Material]] = {name: [] for name in SPLITS}
    for material, split in zip(materials, splits, strict=True):
        of_split[split].append(material)
    of_material: list[list[Entry]] = [[] for _ in materials]
    find_cells = CellFinder(config.specimen)

    # What depends on the shape of the cell alone is found once for all crystals of a structure.
    for indices in by_structure.values():
        for zone_axis in zone_axes_of(config.specimen, materials[indices[0]]):
            cells: RectangularCells | InputError | None = None
            for index in indices:
                material = materials[index]
                cells = _find_cells(config.specimen, material, zone_axis, cells)
                split = splits[index]
                for name in _specimen_names(config.specimen, material, zone_axis):
                    specimen = plan_specimen(
                        config.seed,
                        name,
                        config.specimen,
                        material,
                        zone_axis,
                        cells,
                        of_split[split],
                        find_cells,
                    )
                    of_material[index] += entries_of_specimen(
                        config, material, split, zone_axis, specimen
                    )
    entries = list(chain.from_iterable(of_material))
    for entry in entries:
        if not (is_name(entry.material) and is_name(entry.id)):
            check_name(entry.material, "a crystal", _RENAME)
            check_name(entry.id, "a sample", _RENAME)
    repeated, count = Counter(entry.id for entry in entries).most_common(1)[0]
    if count > 1:
        raise InputError(
            f"{count} samples would be named {repeated}: give each material, zone axis, thickness "
            "once"
        )
    return tuple(entries)


def zone_axes_of(specimen: Specimen, material: Material) -> tuple[ZoneAxis, ...]:
    """Returns the zone axes of a material and of all crystals of its structure."""
    if specimen.simplest_zone_axes is None:
        return specimen.zone_axes
    return simplest_zone_axes(material.atoms, specimen.simplest_zone_axes)


def specimen_base(material: str, zone_axis: ZoneAxis) -> str:
    """Returns what the names of a material's specimens along a zone axis begin with."""
    return f"{material}-{''.join(map(str, zone_axis))}"


def _specimen_names(specimen: Specimen, material: Material, zone_axis: ZoneAxis) -> list[str]:
    """Returns the names of the specimens of a material along a zone axis, without kinds and
    partners.
    """
    base = specimen_base(material.name, zone_axis)
    if not specimen.kinds and specimen.per_zone_axis == 1:
        return [base]
    return [f"{base}-s{index}" for index in range(specimen.per_zone_axis)]


def _find_cells(
    specimen: Specimen,
    material: Material,
    zone_axis: ZoneAxis,
    known_cells: RectangularCells | InputError | None,
) -> RectangularCells | InputError:
    """Returns the right-angled cells of a material, or why there are none.

    Args:
        known_cells: The cells of another crystal of the same structure; `None` if there is none.
    """
    if isinstance(known_cells, RectangularCells):
        return known_cells.resized(material.atoms)
    if known_cells:
        return known_cells
    try:
        return find_rectangular_cells(material.atoms, zone_axis, specimen.max_strain)
    except InputError as error:
        return error


def entries_of_specimen(
    config: SimulationConfig,
    material: Material,
    split: SplitName,
    zone_axis: ZoneAxis,
    specimen: PlannedSpecimen,
) -> Iterator[Entry]:
    """Yields the entries of a specimen."""
    scatters = config.simulation.method == "scatter"
    samples = list(_samples(config, specimen.name))
    thicknesses = _by_thickness(config, specimen.cells, samples)
    for sample, thickness, varied in samples:
        reason, cost = thicknesses[thickness]
        yield Entry(
            id=sample,
            material=material.name,
            formula=material.formula,
            space_group=material.space_group,
            zone_axis=zone_axis,
            thickness_angstrom=thickness,
            seed=seed_of(config.seed, sample),
            split=split,
            skipped=reason,
            source=material.kind,
            varied=varied,
            cost=cost,
            specimen=specimen.name
            if scatters or config.specimen.kinds or config.specimen.per_zone_axis > 1
            else "",
            kind=specimen.kind,
            partner=specimen.partner,
        )


def _check_count(config: SimulationConfig, materials: int) -> None:
    """Raises InputError for more entries than a manifest can hold."""
    zone_axes = config.specimen.simplest_zone_axes or len(config.specimen.zone_axes)
    thicknesses = len(config.specimen.thickness_angstrom)
    varied = config.variation.configurations_per_specimen() if config.variation else 1
    specimens = zone_axes * config.specimen.per_zone_axis
    count = materials * specimens * thicknesses * varied
    if count > MOST_ENTRIES:
        raise InputError(
            f"{materials} materials × {specimens} specimens × {thicknesses} thicknesses × {varied} "
            f"configurations of the microscope are {count} samples; a dataset has {MOST_ENTRIES} "
            "or fewer"
        )


def spread_over_thicknesses(entries: Sequence[Entry], count: int) -> list[Entry]:
    """Returns about `count` of `entries`, thin ones first: equally many per thickness, evenly over
    the list.

    Of more thicknesses than `count`, these are evenly spread over the sorted thicknesses.
    """
    ranked = sorted(entries, key=lambda entry: entry.thickness_angstrom)
    by_thickness: dict[float, list[Entry]] = {}
    for entry in ranked:
        by_thickness.setdefault(entry.thickness_angstrom, []).append(entry)
    if len(by_thickness) > count:
        return _evenly(ranked, count)
    per_thickness = -(-count // max(1, len(by_thickness)))
    chosen: list[Entry] = []
    for of_thickness in by_thickness.values():
        chosen += _evenly(of_thickness, per_thickness)
    return chosen


def _evenly(entries: Sequence[Entry], count: int) -> list[Entry]:
    """Returns at most `count` of the entries, evenly spaced."""
    last = len(entries) - 1
    indices = np.linspace(0, last, min(count, len(entries))).round().astype(int)
    return [entries[index] for index in indices.tolist()]


def _samples(config: SimulationConfig, specimen: str) -> Iterator[tuple[str, float, VariedValues]]:
    """Yields the id, the thickness and the microscope's own values of each sample of a material
    along a zone axis.
    """
    variation = config.variation
    specimen_values = {}
    if variation and config.simulation.method == "scatter":
        drawn = draw_values(variation, seed_of(config.seed, specimen))[0]
        specimen_values = {name: drawn[name] for name in OF_SPECIMEN if name in drawn}
    for listed in config.specimen.thickness_angstrom:
        if not variation:
            yield f"{specimen}-{listed:g}A", listed, {}
            continue
        for index, varied in enumerate(
            draw_values(variation, seed_of(config.seed, f"{specimen}-{listed:g}A"))
        ):
            thickness = varied.pop("thickness_angstrom", listed)
            yield f"{specimen}-{thickness:g}A-v{index}", thickness, varied | specimen_values


def _by_thickness(
    config: SimulationConfig,
    cells: RectangularCells | InputError,
    samples: Sequence[tuple[str, float, VariedValues]],
) -> dict[float, tuple[str | None, int]]:
    """Returns, for each thickness of a specimen's samples, the reason why it is skipped, if it is,
    and its cost.

    A thickness is skipped if no supercell can be built, or if its supercell is that of an earlier
    thickness. Of samples that are cut from one specimen, it is skipped if it has as many slices as
    an earlier one and no other microscope.
    """
    thicknesses = dict.fromkeys(thickness for _, thickness, _ in samples)
    if isinstance(cells, InputError):
        return dict.fromkeys(thicknesses, (str(cells), 0))
    fit, too_thick, reason = thickest_supercell(cells, config.specimen)
    scatters = config.simulation.method == "scatter"
    microscopes_differ = scatters and isinstance(config.variation, RandomVariation)
    outcomes: dict[float, tuple[str | None, int]] = {}
    thickness_of_count: dict[int, float] = {}  # the first with so many slices or periods
    for thickness in thicknesses:
        if fit is None or thickness >= too_thick:
            outcomes[thickness] = reason, 0
            continue
        if scatters:
            count = slices_of_sample(config, fit, thickness)[0]
            counted = f"{count} slices of the specimen"
            depth_angstrom = fit.lengths_angstrom[2]
            scattered = len(samples)
        else:
            count = cells.repeats(thickness)
            counted = f"{count} × the crystal's period of {cells.repeat_angstrom:.2f} Å"
            depth_angstrom = count * cells.repeat_angstrom
            scattered = 0
        earlier = thickness_of_count.setdefault(count, thickness)
        if earlier == thickness or microscopes_differ:
            outcomes[thickness] = None, _cost(config, fit, depth_angstrom, scattered)
        else:
            text = f"{thickness:g} Å is {counted}, and so is {earlier:g} Å"
            outcomes[thickness] = text, 0
    return outcomes


def _cost(config: SimulationConfig, fit: CellFit, depth_angstrom: float, cuts: int) -> int:
    """Returns slices × pixels × probes of the supercell `fit` with another depth.

    Of a specimen from which `cuts` samples are cut, above 0, each costs its share of the plane
    waves, and adding its probes up. The sides of the best supercell may change with the depth; the
    cost ignores that. It also leaves out what is the same for all samples, and the number of atoms,
    which predicts the time less well than the pixels do: on configs/summit.yaml, the busiest of 16
    ranks has 4 to 10% more than the mean, by atoms × slices 17%.
    """
    lengths = fit.lengths_angstrom
    probes = math.prod(config.scan.shape or (1, 1))
    ny, nx = simulation_grid(config, lengths).shape
    slices = slice_count(depth_angstrom, equal_thickness(config, lengths))
    if not cuts:
        return slices * ny * nx * probes
    radius = 1e-3 * largest_angle_mrad(config) / wavelength_angstrom(config.microscope.energy_ev)
    beams = math.pi * radius**2 * lengths[0] * lengths[1]
    return round(ny * nx * (slices * beams / cuts + _SLICES_PER_SUM * probes))
