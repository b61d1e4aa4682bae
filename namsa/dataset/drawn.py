"""Specimens that are drawn without end by the rules of a dataset's list, and their samples.

The list of a dataset has every material along every zone axis, a fixed number of specimens of each,
and the samples of each specimen. A draw has a number in place of a place in the list: it is one
more specimen of a material along a zone axis of the training split, with a name of its own, from
which kind, partner, thicknesses, microscope and displacements follow as those of a listed specimen
follow from its name. The draws of a configuration therefore follow from its seed and their numbers
alone, and no draw has a material that the list holds out.

Where the configuration limits the crystals that it takes of its sources, `further_materials` are
others of the same sources.

A sample that cannot be simulated is yielded as a failure, and a further specimen is drawn in its
place: the next attempt of the same number.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from threadpoolctl import threadpool_limits

from namsa.base.errors import InputError, WorkError
from namsa.config.simulation import SimulationConfig
from namsa.crystals.material import Material
from namsa.crystals.select import select_materials
from namsa.crystals.symmetry import ZoneAxis
from namsa.dataset import records
from namsa.dataset.entries import CellFinder, entries_of_specimen, specimen_base, zone_axes_of
from namsa.dataset.entry import Entry, assign_more, feasible_entries, material_of, materials_named
from namsa.dataset.simulate_entry import prepare_samples
from namsa.dataset.specimens import plan_specimen
from namsa.engines.interface import ProgressCallback

MOST_ATTEMPTS = 20  # specimens that are drawn for one number
# streams of random numbers
_ORDER = 11
_AGAIN = 12


@dataclass(frozen=True)
class DrawnSample:
    """A sample of a draw, with its record as `namsa.dataset.records` has it."""

    entry: Entry
    record: bytearray


@dataclass(frozen=True)
class DrawFailure:
    """A sample of a draw that could not be made, and why. One that no supercell can be built for is
    `skipped`.
    """

    id: str
    reason: str
    skipped: bool


@dataclass(frozen=True)
class SpecimenDraws:
    """The draws of a configuration."""

    config: SimulationConfig  # the configuration of the dataset
    materials: Mapping[str, Material]  # the crystals to draw from, by name
    # the materials' names and zone axes to draw from, sorted
    axes: tuple[tuple[str, ZoneAxis], ...]

    @classmethod
    def of_list(
        cls,
        config: SimulationConfig,
        listed: Sequence[Entry],
        materials: Mapping[str, Material],
        more: Sequence[Material] = (),
    ) -> "SpecimenDraws":
        """Returns the draws from the training split of a list, whose samples show which materials
        can be built.

        Args:
            materials: The crystals of the training split by name, as `train_entries` names them.
            more: Crystals that the list lacks, of `further_materials`.

        Raises:
            InputError: If the training split has no sample that can be built.
        """
        entries = train_entries(listed)
        if not entries:
            raise InputError(
                "no specimen can be drawn: the training split has no sample that can be built"
            )
        kept = {name: materials[name] for name in materials_named(entries)}
        axes = {(entry.material, entry.zone_axis) for entry in entries}
        for material in more:
            kept[material.name] = material
            for zone_axis in zone_axes_of(config.specimen, material):
                axes.add((material.name, zone_axis))
        return cls(config, kept, tuple(sorted(axes)))

    @property
    def samples_per_specimen(self) -> int:
        """Samples of a specimen that can be built at all thicknesses."""
        variation = self.config.variation
        configurations = variation.configurations_per_specimen() if variation else 1
        return len(self.config.specimen.thickness_angstrom) * configurations

    @cached_property
    def _find_cells(self) -> CellFinder:
        return CellFinder(self.config.specimen)

    @threadpool_limits.wrap(limits=1, user_api="blas")  # as `namsa.dataset.entries.build_entries`
    def entries(self, draw: int, attempt: int = 0) -> list[Entry]:
        """Returns the samples of a draw; one for which no supercell can be built has the reason in
        `skipped`.

        As many draws as there are axes take each of them once.

        Args:
            attempt: Specimens that were drawn before for this number.
        """
        name, zone_axis = self.axes[self._place(draw, attempt)]
        material = self.materials[name]
        others = list(self.materials.values())
        find_cells = self._find_cells
        drawn = f"{specimen_base(name, zone_axis)}-d{draw}" + (f"r{attempt}" if attempt else "")
        specimen = self.config.specimen
        cells = find_cells(material, zone_axis)
        planned = plan_specimen(
            self.config.seed, drawn, specimen, material, zone_axis, cells, others, find_cells
        )
        return list(entries_of_specimen(self.config, material, "train", zone_axis, planned))

    def _place(self, draw: int, attempt: int) -> int:
        """Returns the place of a draw's axis."""
        seed = self.config.seed
        count = len(self.axes)
        if attempt:
            return int(np.random.default_rng([seed, _AGAIN, draw, attempt]).integers(count))
        turn, place = divmod(draw, count)
        return int(np.random.default_rng([seed, _ORDER, turn]).permutation(count)[place])

    def samples(
        self, draw: int, on_progress: ProgressCallback = lambda stage, done, total: None
    ) -> Iterator[DrawnSample | DrawFailure]:
        """Simulates a draw: yields `samples_per_specimen` samples, and those that could not be
        made.

        Args:
            on_progress: Called as `on_progress(stage, done, total)`.

        Raises:
            MemoryError: If a sample needs more memory than there is: what follows would depend on
                the machine.
            WorkError: If no attempt gives enough samples.
        """
        wanted = self.samples_per_specimen
        reason = ""
        for attempt in range(MOST_ATTEMPTS):
            for made in self._attempt(self.entries(draw, attempt), wanted, on_progress):
                wanted -= isinstance(made, DrawnSample)
                reason = made.reason if isinstance(made, DrawFailure) else reason
                yield made
            if not wanted:
                return
        raise WorkError(
            f"{MOST_ATTEMPTS} specimens drawn for number {draw} lack {wanted} samples; the last: "
            f"{reason}"
        )

    def _attempt(
        self, entries: Sequence[Entry], wanted: int, on_progress: ProgressCallback
    ) -> Iterator[DrawnSample | DrawFailure]:
        """Simulates at most so many samples of a specimen."""
        yield from (
            DrawFailure(entry.id, entry.skipped, True) for entry in entries if entry.skipped
        )
        feasible = feasible_entries(entries)
        if not feasible:
            return
        data = self.config.data
        try:
            simulate = prepare_samples(
                self.config, material_of(feasible[0], self.materials), feasible, on_progress
            )
        except (InputError, WorkError) as error:
            yield from (_failure(entry, error) for entry in feasible)
            return
        for entry in feasible:
            if not wanted:
                return
            try:
                record = records.encode(simulate(entry), data.dtype, data.tiles)
            except (InputError, WorkError) as error:
                yield _failure(entry, error)
            else:
                wanted -= 1
                yield DrawnSample(entry, record)


def train_entries(listed: Sequence[Entry]) -> list[Entry]:
    """Returns the samples of a list's training split that can be built."""
    return [entry for entry in listed if entry.split == "train" and not entry.skipped]


def further_materials(
    config: SimulationConfig, listed: Sequence[Entry], count: int
) -> list[Material]:
    """Returns crystals of the configuration's sources that its list lacks and that are in the
    training split.

    Args:
        config: The configuration of the dataset, given on the command line: its generator may run.
        count: By how much the limits of the section `materials` are raised.

    Raises:
        InputError: If the section has no limit, or as `select_materials` raises it.
    """
    materials = config.materials
    changed: dict[str, object] = {}
    if materials.limit:
        changed["limit"] = materials.limit + count
    if materials.substitute:
        changed["substitute"] = materials.substitute.model_copy(
            update={"limit": materials.substitute.limit + count}
        )
    if not changed:
        raise InputError(
            "materials.limit and materials.substitute are not given: all crystals are in the list"
        )
    of_list = {entry.material: (entry, entry.split) for entry in listed}
    materials_found = select_materials(materials.model_copy(update=changed), run_generator=True)
    others = [material for material in materials_found if material.name not in of_list]
    splits = assign_more(list(of_list.values()), others, config.split)
    return [material for material, split in zip(others, splits, strict=True) if split == "train"]


def _failure(entry: Entry, error: Exception) -> DrawFailure:
    """Returns the failure of a sample. Raises an error that depends on the machine's memory."""
    if isinstance(error, MemoryError):
        raise error
    return DrawFailure(entry.id, str(error), False)
