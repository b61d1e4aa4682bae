"""Writes the HDF5 files of STEMDL's classification (doi:10.13139/OLCF/1510313), groups `sample_<i>_<j>`.

Number i is a specimen of which the dataset has three zone axes, and j a position of its scan. `cbed_stack` (3, dy, dx),
float32, has the patterns at that position along the three, as fractions of the beam. Attributes are `space_group` (its
number), `material`, `formula`, `energy` (keV), `semi_angles` (mrad), `aberrations` (C10, C30 and C50, Å) and
`zone_axes` (3, 3). A dataset does not hold the crystal's cell, so that `abc`, `angles` and `d_hkl` are not written.
"""

import json
from pathlib import Path

import numpy as np

from namsa.dataset import manifest
from namsa.dataset.entry import Entry
from namsa.dataset.shards import Dataset
from namsa.dataset.strata import space_group_numbers
from namsa.errors import InputError
from namsa.io.hdf5 import write_file
from namsa.provenance_values import value
from namsa.text import plural

STACKED = 3  # zone axes of a sample


def write_stacks(data: Path, out: Path, split: str) -> tuple[int, list[str]]:
    """Writes the samples of one split of a dataset; see `namsa.exchange.stemdl_export.write_stemdl`."""
    numbers = space_group_numbers()
    with Dataset(data) as dataset:
        specimens: dict[str, list[Entry]] = {}
        for entry in manifest.present(data, dataset.ids):
            if entry.split == split:
                same = [entry.material, entry.partner, entry.thickness_angstrom, entry.kind, entry.varied]
                specimens.setdefault(json.dumps(same), []).append(entry)
        stacks = [entries[:STACKED] for entries in specimens.values() if len(entries) >= STACKED]
        if not stacks:
            raise InputError(
                f"{data} has no specimen along {STACKED} zone axes in the split {split}, which {out.name} stands for"
            )
        left_out = sum(map(len, specimens.values())) - STACKED * len(stacks)
        count = 0
        with write_file(out, {}) as (file, _):
            for i, entries in enumerate(stacks):
                samples = [dataset.read_sample(entry.id) for entry in entries]
                if len({sample.cbed.shape for sample in samples}) > 1:
                    raise InputError(f"{entries[0].id} and its other zone axes have patterns of several shapes")
                if entries[0].space_group not in numbers:
                    raise InputError(f"{entries[0].id} has space group {entries[0].space_group}, which has no number")
                provenance = samples[0].provenance
                aberrations = value(provenance, "aberrations", {})
                attributes = {
                    "space_group": numbers[entries[0].space_group],
                    "material": entries[0].material,
                    "formula": entries[0].formula,
                    "energy": value(provenance, "energy_ev") / 1e3,
                    "semi_angles": value(provenance, "semiangle_mrad"),
                    "aberrations": [aberrations.get(name, 0.0) for name in ("C10", "C30", "C50")],
                    "zone_axes": [entry.zone_axis for entry in entries],
                }
                for j, patterns in enumerate(zip(*(sample.cbed for sample in samples), strict=True)):
                    group = file.create_group(f"sample_{i}_{j}")
                    group["cbed_stack"] = np.stack(patterns).astype(np.float32)
                    group.attrs.update(attributes)
                    count += 1
    lines = [f"{plural(left_out, 'sample')} left out, which are not of three zone axes of a specimen"] * bool(left_out)
    return count, lines
