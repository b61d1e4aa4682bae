"""Windows outside of what a network has learnt, from which familiarity learns to tell them from
those inside.

In each sample one quantity is beyond the range that the network was trained for, by a factor of 1.5
to 4:

- an aberration or a tilt of `variation`: specimens of the dataset are scattered again. One
  scattering serves all aberrations of a specimen. Without `simulation.method: scatter`, or of
  crystals from a generator, none are made.
- an imperfection that training draws, or the dose, which is too low: samples of the dataset as
  training sees them.

In others the detector is turned or mirrored, most often by half a turn, which patterns tell least.
Thickness, displacements and doses of the simulation stay as they are.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from namsa.base.errors import InputError
from namsa.config.variation import RandomVariation, has_direction
from namsa.crystals.material import Material
from namsa.crystals.select import select_materials
from namsa.dataset.entry import Entry, material_of, materials_named
from namsa.dataset.records import Record, decode, encode
from namsa.dataset.sharing import by_specimen
from namsa.dataset.simulate_entry import prepare_samples

from ....apply.known_windows import KnownWindow, known_windows
from ....experiment.experiment import Experiment
from ....experiment.imperfections import Imperfections
from ....experiment.inputs import Inputs
from ....input.views import Readable
from ..scan.mirrors import mirrored_images
from .orientation import HALF_TURN

BEYOND = (1.5, 4.0)  # times the largest magnitude that was learnt
LEAST_DOSE = (1 / 30, 1 / 3)  # times the smallest dose that was learnt
SAMPLES = 16  # of each imperfection
# samples of which the detector is turned by 180 degrees, and as many in all other orientations
ORIENTED = 48
TILTED = 4  # of so many specimens one is tilted, and the others have aberrations
_LENS = ("defocus_angstrom", "beam_tilt_mrad", "C12_angstrom", "C21_angstrom", "C30_angstrom")
_FRACTIONS = (
    *("missing_rows", "ellipticity", "pixel_scale", "beam_gain", "background_fraction"),
    *("hot_pixels", "dead_pixels", "counting_loss"),
)
_LARGEST_FRACTION = 0.2  # that is multiplied, so that fractions stay below 1
_VALUES = 8  # stream of random numbers, beside those of `train.input`


@dataclass(frozen=True)
class OutsideSamples:
    """Samples that lie outside in one way."""

    entries: Sequence[Entry]  # the samples: of the dataset, or to be simulated
    # the configuration, with the range of an imperfection or of the dose beyond what was learnt
    experiment: Experiment
    # The crystal of the specimen that is simulated. `None`: the samples are those of the dataset.
    material: Material | None = None
    # Number of the symmetry (`train.experiment.symmetries`) under which the detector is, and not
    # the scan. 0 leaves it as it is.
    orientation: int = 0


def plan_outside(
    entries: Sequence[Entry], experiment: Experiment, specimens: int
) -> list[OutsideSamples]:
    """Returns samples that lie outside of what a network has learnt, made from some of the dataset,
    or none.

    Nothing is simulated yet. So many specimens will be scattered again; with 0 there are no samples
    of any kind.
    """
    if not specimens:
        return []
    return [
        *_imperfect(entries, experiment),
        *_misoriented(entries, experiment),
        *_scattered_again(entries, experiment, specimens),
    ]


def outside_windows(dataset: Readable, planned: Iterable[OutsideSamples]) -> Iterator[KnownWindow]:
    """Yields windows that lie outside.

    A sample of the dataset gives one, with imperfections and dose if training has them. One that is
    simulated gives two where training has imperfections or a dose: as it is, and as training would
    see it.

    Args:
        dataset: The samples that are not simulated.
    """
    for samples in planned:
        experiment = samples.experiment
        if samples.material is None:
            windows = known_windows(dataset, samples.entries, experiment)
            for window in windows:
                if window.is_last:
                    yield window._replace(
                        patterns=mirrored_images(window.patterns, samples.orientation)
                    )
            continue
        simulate = prepare_samples(experiment, samples.material, samples.entries)
        for entry in samples.entries:
            # rounded as those of the dataset
            record = decode(encode(simulate(entry), experiment.data.dtype))
            yield from known_windows(_InMemory({entry.id: record}), [entry], experiment)


@dataclass(frozen=True)
class _InMemory:
    """Records by id, read as those of a dataset."""

    records: Mapping[str, Record]

    @contextmanager
    def view(self, sample_id: str, check: bool = False) -> Iterator[Record]:
        yield self.records[sample_id]


# ---- Imperfections and dose
# -----------------------------------------------------------------------------------------


def _imperfect(entries: Sequence[Entry], experiment: Experiment) -> Iterator[OutsideSamples]:
    """Yields samples of the dataset, each with an imperfection or a dose that was not learnt."""
    changed = list(_inputs_beyond(experiment.training.inputs))
    for index, inputs in enumerate(changed):
        chosen = entries[index :: len(changed)][:SAMPLES]
        if chosen:
            training = experiment.training.model_copy(update={"inputs": inputs})
            yield OutsideSamples(chosen, experiment.model_copy(update={"training": training}))


def _inputs_beyond(inputs: Inputs) -> Iterator[Inputs]:
    """Yields the inputs with the range of each imperfection beyond what was learnt, and then the
    dose.
    """
    if inputs.imperfections:
        for name, (_, most) in inputs.imperfections.given().items():
            if most > 0:
                limits = _limits_beyond(name, most)
                imperfections = Imperfections(probability=1.0).model_copy(update={name: limits})
                yield inputs.model_copy(update={"imperfections": imperfections})
    dose = inputs.dose_electrons_per_pattern
    if not dose:
        return
    least = dose[0] if isinstance(dose, tuple) else dose
    doses = tuple(fraction * least for fraction in LEAST_DOSE)
    yield inputs.model_copy(update={"dose_electrons_per_pattern": doses})


def _limits_beyond(name: str, most: float) -> tuple[float, ...]:
    """Returns the range of an imperfection beyond the most that was learnt of it."""
    if name in _FRACTIONS:
        most = min(most, _LARGEST_FRACTION)
    return tuple(factor * most for factor in BEYOND)


# ---- Orientations of the detector
# -----------------------------------------------------------------------------------


def _misoriented(entries: Sequence[Entry], experiment: Experiment) -> Iterator[OutsideSamples]:
    conditions = experiment.conditions()
    rows, columns = conditions.detector_shape
    height_mrad, width_mrad = conditions.pixel_mrad
    is_square = rows == columns and np.isclose(height_mrad, width_mrad)
    numbers = range(1, 8 if is_square else 4)
    for orientation in numbers:
        count = ORIENTED if orientation == HALF_TURN else ORIENTED // (len(numbers) - 1)
        if chosen := entries[orientation :: len(numbers) + 1][:count]:
            yield OutsideSamples(chosen, experiment, orientation=orientation)


# ---- Aberrations and tilts
# ------------------------------------------------------------------------------------------


def _scattered_again(
    entries: Sequence[Entry], experiment: Experiment, count: int
) -> Iterator[OutsideSamples]:
    variation = experiment.variation
    if experiment.simulation.method != "scatter" or not isinstance(variation, RandomVariation):
        return
    # code, which runs only from a configuration on the command line
    if experiment.materials.generator:
        return
    ranges = variation.quantities()
    groups: list[list[Entry]] = []
    for index, specimen_entries in enumerate(by_specimen(entries)):
        if len(groups) == count:
            break
        moved = _moved(specimen_entries, ranges, index)
        if moved:
            groups.append(moved)
    names = materials_named(chain.from_iterable(groups))
    try:
        chosen = select_materials(experiment.materials, names=names) if groups else ()
    except InputError as error:
        raise InputError(f"{error}; without --outside no crystals are needed") from None
    materials = {material.name: material for material in chosen}
    for group in groups:
        yield OutsideSamples(group, experiment, material_of(group[0], materials))


def _moved(
    group: Sequence[Entry], ranges: Mapping[str, tuple[Any, ...]], index_of_group: int
) -> list[Entry]:
    """Returns samples of a specimen: one with each aberration out of its range, or all with the
    specimen tilted.
    """
    rng = np.random.default_rng([group[0].seed, _VALUES])
    names = [name for name in _LENS if name in ranges]
    if "specimen_tilt_mrad" in ranges and (index_of_group % TILTED == TILTED - 1 or not names):
        tilt = {"specimen_tilt_mrad": beyond(ranges["specimen_tilt_mrad"], rng, direction=True)}
        return [
            replace(entry, id=f"{entry.id}-tilted", varied=entry.varied | tilt)
            for entry in group[:TILTED]
        ]
    moved = []
    for index, name in enumerate(names):
        entry = group[index % len(group)]
        value: object = beyond(ranges[name], rng, direction=name.endswith("tilt_mrad"))
        if has_direction(name) and not name.endswith("tilt_mrad"):
            value = [value, entry.varied[name][1]]
        moved.append(replace(entry, id=f"{entry.id}-{name}", varied=entry.varied | {name: value}))
    return moved


def beyond(
    limits: tuple[float, float], rng: np.random.Generator, direction: bool = False
) -> float | list[float]:
    """Returns a value out of a range: a larger magnitude, or farther from the middle of a range
    with both signs.

    Args:
        limits: Least and most.
        rng: Draws the factor, and the side or the direction.
        direction: Whether to return a vector (y, x) of that length, in any direction.
    """
    least, most = limits
    factor = rng.uniform(*BEYOND)
    angle = 2 * np.pi * rng.random()
    if direction:
        return [float(factor * most * np.sin(angle)), float(factor * most * np.cos(angle))]
    if least >= 0:
        return float(factor * most)
    side = 1 if angle < np.pi else -1
    return float((least + most) / 2 + side * factor * (most - least) / 2)
