"""The list of all samples of a dataset with their splits, fixed before the first is simulated.

`manifest.jsonl` holds a header line, then one line an entry. The header carries a digest of all the rest, so that a
list that was cut short or edited is an error rather than another dataset; and a hash of all that decides the list, so
that a directory belongs to one configuration.
"""

import hashlib
import json
import math
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from threadpoolctl import threadpool_limits

from namsa.checks import SimulationWarning
from namsa.config.instrument import Specimen
from namsa.config.materials import Split
from namsa.config.simulation import SimulationConfig
from namsa.config.variation import Varied, draw
from namsa.crystals.material import Material
from namsa.crystals.orient import Fit, Rectangles, fit, rectangles
from namsa.dataset.splits import SPLITS, SplitName, assign
from namsa.errors import InputError
from namsa.files import write_text_atomic
from namsa.physics.grid import fast_shape
from namsa.physics.potential import slice_count

FILE_NAME = "manifest.jsonl"
FORMAT, VERSION = "namsa-manifest", 1


@dataclass(frozen=True)
class Entry:
    """One sample to simulate.

    id: readable, unique and stable; the key of its record
    zone_axis: (u, v, w) along the beam
    thickness_angstrom: the wanted one; a supercell has a whole number of repeats
    seed: of all that is random in the sample
    skipped: why no supercell can be built; such an entry is never simulated
    source: the kind of source of its material, as in `crystal.Material`; "" in manifests that do not say
    varied: the microscope's values of this sample alone, by name, with units in the names (`variation`)
    cost: slices × pixels of the grid × probes, by which ranks share the work; 0 where it is not known
    """

    id: str
    material: str
    formula: str
    space_group: str
    zone_axis: tuple[int, int, int]
    thickness_angstrom: float
    seed: int
    split: SplitName
    skipped: str | None = None
    source: str = ""
    varied: Varied = field(default_factory=dict)
    cost: int = 0


@threadpool_limits.wrap(limits=1, user_api="blas")  # matrices of a few hundred rows: more threads only wait
def build(config: SimulationConfig, materials: Sequence[Material]) -> tuple[Entry, ...]:
    """Every material along every zone axis at every thickness, with every configuration of the microscope.

    What cannot be built has its reason in `skipped`. Raises InputError where two entries would have the same id.
    """
    entries = []
    for material, split in zip(materials, assign(materials, config.split), strict=True):
        for zone_axis in config.specimen.zone_axes:
            for thickness, reason, cost in _specimens(config, material, zone_axis):
                specimen = f"{material.name}-{''.join(map(str, zone_axis))}-{thickness:g}A"
                for suffix, varied in _microscopes(config, specimen):
                    entry = Entry(
                        specimen + suffix,
                        material.name,
                        material.formula,
                        material.space_group,
                        zone_axis,
                        thickness,
                        _seed(config, specimen + suffix),
                        split,
                        reason,
                        material.kind,
                        varied,
                        cost,
                    )
                    entries.append(entry)
    repeated, times = Counter(entry.id for entry in entries).most_common(1)[0]
    if times > 1:
        raise InputError(f"{times} samples would be named {repeated}: give each material, zone axis, thickness once")
    return tuple(entries)


def _microscopes(config: SimulationConfig, specimen: str) -> list[tuple[str, Varied]]:
    """The ending of the id and the microscope's own values, of each sample of a specimen."""
    if not config.variation:
        return [("", {})]
    return [(f"-v{i}", varied) for i, varied in enumerate(draw(config.variation, _seed(config, specimen)))]


def _seed(config: SimulationConfig, name: str) -> int:
    return int.from_bytes(_sha256(f"{config.seed} {name}")[:6], "big")


def ensure(directory: Path, config: SimulationConfig, materials: Sequence[Material]) -> tuple[Entry, ...]:
    """The entries of the manifest in `directory`; where there is none, it is built and written first.

    Any number of ranks may call this at once: all build the same list, and the first to finish it provides the file.
    Raises InputError where the manifest there is of another configuration, and as `build` and `read` do.
    """
    path, wanted = directory / FILE_NAME, config_hash(config, materials)
    if not path.exists():
        write_text_atomic(path, _text(config, wanted, build(config, materials), materials), replace=False)
    header, entries = _read(path)
    if header["config_hash"] != wanted:
        doubt = " (does materials.generator give the same every time?)" if config.materials.generator else ""
        raise InputError(
            f"{directory} holds the dataset of configuration {header['config_hash']} ({header['name']}), and this is "
            f"{wanted} ({config.name}): give it a directory of its own, or delete {directory} to start anew{doubt}"
        )
    return entries


def read(directory: Path) -> tuple[Entry, ...]:
    """The entries of the manifest in `directory`.

    Raises InputError where there is none, or it was cut short, edited, or written by a newer version.
    """
    return _read(directory / FILE_NAME)[1]


def present(directory: Path, ids: Collection[str]) -> list[Entry]:
    """Those entries of `read` whose samples are there, by their `ids`."""
    there = frozenset(ids)
    return [entry for entry in read(directory) if entry.id in there]


def spread(entries: Sequence[Entry], most: int) -> list[Entry]:
    """About `most` of `entries`, as many of each thickness and one at least, from their first to their last."""
    thicknesses = sorted({entry.thickness_angstrom for entry in entries})
    share = -(-most // max(1, len(thicknesses)))
    chosen: list[Entry] = []
    for thickness in thicknesses:
        alike = [entry for entry in entries if entry.thickness_angstrom == thickness]
        places = np.linspace(0, len(alike) - 1, min(share, len(alike))).round().astype(int)
        chosen += [alike[place] for place in places]
    return chosen


def config_hash(config: SimulationConfig, materials: Sequence[Material]) -> str:
    """16 hex digits that change with any value that decides the list or a sample, a crystal's atoms among them."""
    decisive = [
        config.samples_hash(),
        config.seed,
        config.split.model_dump(exclude={"by"} if config.split.by == "formula" else None),
        config.specimen.zone_axes,
        config.specimen.thickness_angstrom,
        [[material.name, material.formula, _atoms_hash(material)] for material in materials],
    ]
    return _sha256(json.dumps(decisive)).hex()[:16]


def _atoms_hash(material: Material) -> str:
    atoms = material.atoms
    lengths = np.concatenate([np.asarray(atoms.cell), atoms.positions])
    occupancies = np.asarray(atoms.arrays.get("occupancy", np.ones(len(atoms))))
    # Rounded: the last digits of a position may depend on the machine that worked it out.
    rounded = [(np.round(values, 5) + 0.0).tolist() for values in (lengths, occupancies)]
    return _sha256(json.dumps([atoms.numbers.tolist(), rounded])).hex()


def _text(config: SimulationConfig, wanted: str, entries: tuple[Entry, ...], materials: Sequence[Material]) -> str:
    feasible = [entry for entry in entries if not entry.skipped]
    if not feasible:
        raise InputError(f"none of the {len(entries)} samples can be built; {entries[0].id}: {entries[0].skipped}")
    splits = {name: sum(entry.split == name for entry in feasible) for name in SPLITS}
    if config.split.train > 0 and not splits["train"]:
        raise InputError(
            f"all {len(feasible)} samples are held out (splits are by formula): add materials, or raise split.train"
        )
    if said := empty_splits(feasible, config.split):
        warnings.warn(said, SimulationWarning, stacklevel=3)
    body = "".join(json.dumps(_written(entry), ensure_ascii=False) + "\n" for entry in entries)
    header = {
        "format": FORMAT,
        "version": VERSION,
        "name": config.name,
        "config_hash": wanted,
        "samples_hash": config.samples_hash(),
        "entries": len(entries),
        "samples": len(feasible),
        "skipped": len(entries) - len(feasible),
        "materials": len({entry.material for entry in feasible}),
        "splits": splits,
    }
    if merged := {material.name: material.merged for material in materials if material.merged}:
        header["merged"] = merged
    return json.dumps(header | {"digest": _digest(header, body)}, ensure_ascii=False) + "\n" + body


def empty_splits(entries: Sequence[Entry], split: Split) -> str | None:
    """What to say where a split that should have some of `entries` has none."""
    empty = [name for name in SPLITS if getattr(split, name) > 0 and not any(entry.split == name for entry in entries)]
    if not empty:
        return None
    shares = " and ".join(f"{name} ({getattr(split, name):.0%})" for name in empty)
    raised = " and ".join(f"split.{name}" for name in empty)
    by = f"{split.by}, and there are {len({entry.formula for entry in entries})} formulas"
    return f"no sample is in {shares}: splits are by {by}: add some, or raise {raised}"


def read_header(directory: Path) -> dict[str, Any]:
    """The manifest's first line: counts, hashes, and samples by split. Raises as `read` does."""
    return _read(directory / FILE_NAME)[0]


def _read(path: Path) -> tuple[dict[str, Any], tuple[Entry, ...]]:
    try:
        first, _, body = path.read_text(encoding="utf-8").partition("\n")
    except FileNotFoundError:
        raise InputError(
            f"there is no {path}: make the dataset with namsa dataset CONFIG --out {path.parent}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}") from None
    try:
        header = json.loads(first)
        known, version, digest = header["format"] == FORMAT, int(header["version"]), header.pop("digest")
    except (ValueError, TypeError, KeyError):
        known = False
    if not known:
        raise InputError(f"{path} is not a manifest: its first line is not a manifest's header")
    if version > VERSION:
        raise InputError(f"{path} is of format version {version}, this namsa reads up to {VERSION}: update it")
    lines = body.split("\n")[:-1]
    if digest != _digest(header, body):
        raise InputError(
            f"{path} was cut short or edited since it was written ({len(lines)} entries of {header.get('entries')}): "
            "delete it, and the next run writes it again"
        )
    return header, tuple(_entry(line) for line in lines)


def _digest(header: dict[str, Any], body: str) -> str:
    return xxhash.xxh3_128_hexdigest((json.dumps(header, ensure_ascii=False) + body).encode())


def _written(entry: Entry) -> dict[str, Any]:
    values = asdict(entry)
    return values if entry.varied else {key: value for key, value in values.items() if key != "varied"}


def _entry(line: str) -> Entry:
    values = json.loads(line)
    return Entry(**values | {"zone_axis": tuple(values["zone_axis"])})


def _specimens(
    config: SimulationConfig, material: Material, zone_axis: tuple[int, int, int]
) -> Iterator[tuple[float, str | None, int]]:
    """Each thickness with its cost, or why there is none: it cannot be built, or it would be one of those before."""
    specimen = config.specimen
    try:
        found = rectangles(material.atoms, zone_axis, specimen.max_strain)
    except InputError as error:
        yield from ((thickness, str(error), 0) for thickness in specimen.thickness_angstrom)
        return
    thickest, too_thick, reason = _thickest(found, specimen)
    first: dict[int, float] = {}
    for thickness in specimen.thickness_angstrom:
        repeats = found.repeats(thickness)
        same = first.setdefault(repeats, thickness)
        if thickest is None or thickness >= too_thick:
            yield thickness, reason, 0
        elif same != thickness:
            period = f"{repeats} × the crystal's period of {found.repeat_angstrom:.2f} Å"
            yield thickness, f"{thickness:g} Å is {period}, and so is {same:g} Å", 0
        else:
            yield thickness, None, _cost(config, thickest, repeats * found.repeat_angstrom)


def _thickest(found: Rectangles, specimen: Specimen) -> tuple[Fit | None, float, str | None]:
    """The thickest supercell, the smallest thickness with too many atoms, infinite where none has, and what is said.

    What can be built at one thickness can be at every smaller one, so that mostly only the largest is tried.
    """
    too_thick, reason = math.inf, None
    for thickness in sorted(set(specimen.thickness_angstrom), reverse=True):
        try:
            return fit(found, specimen.lateral_angstrom, thickness, specimen.max_atoms), too_thick, reason
        except InputError as error:
            too_thick, reason = thickness, str(error)
    return None, too_thick, reason


def _cost(config: SimulationConfig, like: Fit, depth_angstrom: float) -> int:
    """The cost of a specimen like `like`, of another depth; which supercell fits best may change with it.

    It leaves out what is the same for all samples, and the number of atoms, which says less about the time than the
    pixels do: on configs/summit.yaml, the busiest of 16 ranks has 4 to 10% more than the mean, by atoms × slices 17%.
    """
    lx, ly, _ = like.lengths_angstrom
    settings = config.simulation
    ny, nx = settings.grid_shape or fast_shape((ly, lx), settings.sampling_angstrom or 0.0)
    probes = math.prod(config.scan.shape or (1, 1))
    return slice_count(depth_angstrom, settings.slice_thickness_angstrom) * ny * nx * probes


def _sha256(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
