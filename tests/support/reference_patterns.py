"""Patterns that stand for the physics: their numbers are kept with the revision that they are of.

The hash of a dataset's samples has the revision (`namsa.config.simulation.REVISIONS`), so that
samples of two physics are never mixed. Whoever changes the numbers raises the revision of the group
that the cases belong to, then writes them anew:

    PYTHONPATH=. python tests/support/reference_patterns.py
"""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np

from namsa.config.loading import validate
from namsa.config.simulation import REVISIONS, SimulationConfig
from namsa.crystals.builtin import builtin_materials
from namsa.dataset.entries import build_entries
from namsa.dataset.simulate_entry import prepare_samples

FILE = Path(__file__).parents[1] / "data" / "reference_patterns.json"
_RINGS = 4
_GIVEN = {"sampling_angstrom": 0.2, "slice_thickness_angstrom": 2.0}
_DETECTOR = {"max_angle_mrad": 25.0, "point_spread_pixels": 0.4}
_PHONONS = {"rms_angstrom": 0.1, "configurations": 2}

# Sections of a configuration, by the group whose revision their samples have in their hash.
CASES: dict[str, dict[str, dict[str, Any]]] = {
    "given": {
        "pixels and slices": {"simulation": _GIVEN},
        "finite projection and Kirkland's table": {
            "simulation": _GIVEN | {"projection": "finite", "form_factors": "kirkland"}
        },
        "lens, tilts and coherence": {
            "simulation": _GIVEN,
            "microscope": {
                "aberrations": {"C10": -40.0, "C12": 15.0, "phi12": 0.4, "C30": 1e5},
                "beam_tilt_mrad": (1.0, 2.0),
                "specimen_tilt_mrad": (4.0, -3.0),
                "source_size_angstrom": 0.7,
                "focal_spread_angstrom": 30.0,
                "focal_points": 3,
            },
        },
        "detector and plasmons": {
            "simulation": _GIVEN,
            "specimen": {"plasmons": {"mean_free_path_angstrom": 200.0}},
            "detector": _DETECTOR
            | {
                "electrons_per_pattern": 1e6,
                "response": {"dead_time_ns": 2e4, "dwell_time_us": 1e6, "saturation_counts": 5e4},
            },
        },
        "one scattering for several thicknesses": {
            "simulation": _GIVEN | {"method": "scatter"},
            "specimen": {"thickness_angstrom": (8.0, 16.0)},
            "detector": _DETECTOR,
        },
        "vacancies": {"simulation": _GIVEN, "specimen": {"kinds": {"vacancies": 1.0}}},
    },
    "chosen": {
        "pixels and slices": {"detector": _DETECTOR},
        "number of configurations": {
            "simulation": {"accuracy": 0.1},
            "specimen": {"frozen_phonons": _PHONONS | {"configurations": "auto"}},
            "detector": _DETECTOR,
        },
    },
    "divided": {
        "finite projection": {
            "simulation": {"projection": "finite", "accuracy": 0.1},
            "detector": _DETECTOR,
        },
    },
    "displaced": {
        "given pixels and slices": {
            "simulation": _GIVEN,
            "specimen": {"frozen_phonons": _PHONONS},
        },
    },
}


def configuration(sections: dict) -> SimulationConfig:
    """The configuration of a case: a small cell of gold, and three probes in each direction."""
    tree = {
        "seed": 5,
        "microscope": {},
        "scan": {"shape": (3, 3)},
        "specimen": {"thickness_angstrom": (16.0,), "lateral_angstrom": (8.0, 8.0)},
        "simulation": {"backend": "cpu"},
    }
    for name, values in sections.items():
        tree[name] = tree.get(name, {}) | values
    return validate(SimulationConfig, tree, "the case")


def numbers(sections: dict) -> dict:
    """Summary of a case: its geometry, and moments of its patterns, density and potential."""
    config = configuration(sections)
    gold = next(material for material in builtin_materials() if material.name == "Au-225-cF4")
    entries = build_entries(config, (gold,))
    sample = prepare_samples(config, gold, entries)(entries[0])
    edges = np.linspace(0, 25.0, _RINGS + 1).tolist()
    images = [sample.annular(inner, outer) for inner, outer in itertools.pairwise(edges)]
    return {
        "patterns": list(sample.cbed.shape),
        "slices": sample.provenance["slices"],
        "configurations": (sample.provenance["frozen_phonons"] or {}).get("configurations"),
        "rings": [float(image.mean()) for image in images],
        "contrast": [float(image.std() / image.mean()) for image in images],
        "deflection": np.abs(sample.centre_of_mass()).mean((0, 1)).tolist(),
        "density": [float(sample.density.mean()), float(sample.density.std())],
        "potential": [
            float(sample.projected_potential.mean()),
            float(sample.projected_potential.std()),
        ],
    }


def differences(computed: dict, stored: dict) -> list[str]:
    """The names of the numbers that differ by more than processors do."""
    names = []
    for name in sorted(computed.keys() | stored.keys()):
        one = np.array(computed.get(name, np.nan), float)
        other = np.array(stored.get(name, np.nan), float)
        same_shape = one.shape == other.shape
        if not same_shape or not np.allclose(one, other, 5e-4, 1e-5, equal_nan=True):
            names.append(name)
    return names


def write() -> None:
    """Writes the numbers of all cases with the revisions that they are of.

    Raises:
        SystemExit: If numbers of a case differ, and the revision of its group is the old one.
    """
    earlier = json.loads(FILE.read_text()) if FILE.exists() else {}
    groups: dict = {}
    for group, cases in CASES.items():
        stored = earlier.get(group, {"revision": None, "cases": {}})
        groups[group] = {"revision": REVISIONS[group], "cases": {}}
        for name, sections in cases.items():
            computed = numbers(sections)
            changed = name in stored["cases"] and differences(computed, stored["cases"][name])
            if changed and stored["revision"] == REVISIONS[group]:
                raise SystemExit(
                    f"{name}: {', '.join(changed)} changed: first raise REVISIONS[{group!r}] in "
                    "namsa/config/simulation.py"
                )
            groups[group]["cases"][name] = computed
    FILE.write_text(json.dumps(groups, indent=1) + "\n")


if __name__ == "__main__":
    write()
