"""Writes samples in the layout of STEMDL's classification (doi:10.13139/OLCF/1510313).

Its HDF5 files have groups `sample_<i>_<j>`. Number i is a specimen of which the dataset has three
zone axes, and j a position of its scan. `cbed_stack` (3, dy, dx), float32, has the patterns at that
position along the three, as fractions of the beam. Attributes are `space_group` (its number),
`material`, `formula`, `energy` (keV), `semi_angles` (mrad), `aberrations` (C10, C30 and C50, Å) and
`zone_axes` (3, 3), and those of the authors' public program (nlaanait/namsa, smc_19_sim.py):
`energy_keV`, `semi_angles_rad` (3), `slab_t` (Å), `z_dirs` and `y_dirs` (1, 3, 3: component,
direction), `abc_angstrom`, `angles_degree` and `d_hkls_angstrom` (3), which is the spacing of the
planes whose indices are those of each zone axis, as that program takes them. Sides, angles,
spacings and `y_dirs` are of the crystal, which is built anew from the dataset's settings.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import h5py
import numpy as np

from namsa.base.arrays import Integers
from namsa.base.errors import InputError
from namsa.base.provenance_values import value
from namsa.base.text import plural
from namsa.crystals.material import Material
from namsa.crystals.orient import fit_cell
from namsa.dataset import manifest
from namsa.dataset.crystals_of import CrystalsOf
from namsa.dataset.empty import check_not_empty
from namsa.dataset.entry import Entry
from namsa.dataset.shards import Dataset
from namsa.dataset.strata import space_group_numbers
from namsa.io.hdf5 import write_file
from namsa.samples.sample import Sample

STACKED = 3  # zone axes of a sample
OF_CRYSTAL = ("abc_angstrom", "angles_degree", "d_hkls_angstrom", "y_dirs")


def write_stacks(data: Path, out: Path, split: str) -> tuple[int, list[str]]:
    """Writes the samples of one split of a dataset; see
    `namsa.exchange.stemdl_export.write_stemdl`.
    """
    with Dataset(data) as dataset:
        check_not_empty(data, dataset)
        specimens = _specimens(manifest.present(data, dataset.ids), split)
        stacks = [entries[:STACKED] for entries in specimens if len(entries) >= STACKED]
        if not stacks:
            raise InputError(
                f"{data} has no specimen along {STACKED} zone axes in the split {split}, which "
                f"{out.name} stands for"
            )
        lines: list[str] = []
        crystals = _crystals(data, stacks, lines)
        count = 0
        with write_file(out, {}) as (file, _):
            for index, entries in enumerate(stacks):
                samples = [dataset.read_sample(entry.id) for entry in entries]
                attributes = _attributes(entries, samples[0].provenance)
                if crystals is not None:
                    attributes |= _cell_attributes(crystals, entries, samples)
                count += _write_stack(file, f"sample_{index}", attributes, samples)
    left_out = sum(map(len, specimens)) - STACKED * len(stacks)
    if left_out:
        samples_text = plural(left_out, "sample")
        lines.append(f"{samples_text} left out, which are not of three zone axes of a specimen")
    return count, lines


def _crystals(data: Path, stacks: Sequence[Sequence[Entry]], lines: list[str]) -> CrystalsOf | None:
    """Returns the crystals of stacks, or adds a line that they cannot be built."""
    try:
        return CrystalsOf(data, {entries[0].material for entries in stacks})
    except InputError as error:
        lines.append(f"{', '.join(OF_CRYSTAL)} are not written: {error}")
        return None


def _specimens(entries: Sequence[Entry], split: str) -> list[list[Entry]]:
    """Returns the entries of each specimen of a split, which differ by their zone axes alone."""
    specimens: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.split == split:
            specimen = [
                entry.material,
                entry.partner,
                entry.thickness_angstrom,
                entry.kind,
                entry.varied,
            ]
            specimens.setdefault(json.dumps(specimen), []).append(entry)
    return list(specimens.values())


def _write_stack(
    file: h5py.File, name: str, attributes: Mapping[str, object], samples: Sequence[Sample]
) -> int:
    """Writes the patterns of a specimen along its zone axes, a group for each position. Returns the
    number of groups.
    """
    if len({sample.cbed.shape for sample in samples}) > 1:
        named = attributes["material"]
        raise InputError(f"{named}: its zone axes have patterns of several shapes")
    positions = len(samples[0].cbed)
    for position in range(positions):
        group = file.create_group(f"{name}_{position}")
        patterns = np.stack([sample.cbed[position] for sample in samples])
        group["cbed_stack"] = patterns.astype(np.float32)
        group.attrs.update(attributes)
    return positions


def _attributes(entries: Sequence[Entry], provenance: Mapping[str, object]) -> dict[str, object]:
    """Returns the attributes of a stack."""
    numbers = space_group_numbers()
    first_entry = entries[0]
    if first_entry.space_group not in numbers:
        raise InputError(
            f"{first_entry.id} has space group {first_entry.space_group}, which has no number"
        )
    aberrations = value(provenance, "aberrations", {})
    return {
        "space_group": numbers[first_entry.space_group],
        "material": first_entry.material,
        "formula": first_entry.formula,
        "energy": value(provenance, "energy_ev") / 1e3,
        "energy_keV": value(provenance, "energy_ev") / 1e3,
        "semi_angles": value(provenance, "semiangle_mrad"),
        "semi_angles_rad": [value(provenance, "semiangle_mrad") / 1e3] * STACKED,
        "slab_t": value(provenance, "thickness_angstrom"),
        "aberrations": [aberrations.get(name, 0.0) for name in ("C10", "C30", "C50")],
        "zone_axes": [entry.zone_axis for entry in entries],
        "z_dirs": np.dstack([entry.zone_axis for entry in entries]),
    }


def _cell_attributes(
    crystals: CrystalsOf, entries: Sequence[Entry], samples: Sequence[Sample]
) -> dict[str, object]:
    """Returns the attributes of a stack's crystal."""
    material = crystals.materials[entries[0].material]
    cell = material.atoms.cell
    reciprocal = np.asarray(cell.reciprocal())
    parameters = cell.cellpar()
    attributes: dict[str, object] = {
        "abc_angstrom": parameters[:3],
        "angles_degree": parameters[3:],
        "d_hkls_angstrom": [
            float(1 / np.linalg.norm(np.array(entry.zone_axis) @ reciprocal)) for entry in entries
        ],
    }
    directions = []
    for entry, sample in zip(entries, samples, strict=True):
        direction = _direction_of_y(crystals, material, entry, sample.provenance)
        if direction is None:
            return attributes
        directions.append(direction)
    return attributes | {"y_dirs": np.dstack(directions)}


def _direction_of_y(
    crystals: CrystalsOf, material: Material, entry: Entry, provenance: Mapping[str, object]
) -> Integers | None:
    """Returns the crystal's direction [uvw] along y of a sample's cell; `None` of a specimen that
    is not the perfect crystal.
    """
    specimen = crystals.config.specimen
    if entry.kind != "crystal":
        return None
    fit = fit_cell(
        material.atoms,
        zone_axis=entry.zone_axis,
        lateral_angstrom=specimen.lateral_angstrom,
        thickness_angstrom=entry.thickness_angstrom,
        max_strain=specimen.max_strain,
        max_atoms=specimen.max_atoms,
    )
    x_angstrom, y_angstrom, _ = fit.lengths_angstrom
    extent = value(provenance, "extent_angstrom")
    if not np.allclose(extent, (y_angstrom, x_angstrom), rtol=1e-3):
        return None
    return np.asarray(fit.matrix[1] // np.gcd.reduce(fit.matrix[1]))
