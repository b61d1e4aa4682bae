"""The cases of `inspect_cases.py`, simulated with the public functions of namsa.

A case is a specimen at a thickness under a condition; its file holds the patterns of 48 × 48
positions and what a microscope's file says about them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from reality_specimens import SPECIMENS

import namsa
from namsa.config.instrument import Detector
from namsa.config.specimen import FrozenPhonons

ENERGY_EV = 200e3
SEMIANGLE_MRAD = 20.0
STEP = 0.4
SCAN = (48, 48)
PIXELS = 33  # of the detector, along each axis
PIXEL_MRAD = 3.0
DETECTOR = {"shape": (PIXELS, PIXELS), "pixel_mrad": PIXEL_MRAD}
MAX_Q = 1.25  # 1/Å, of the target
ORIGIN = 2.0  # Å, of the scan in the cell
MAX_DETECTED_MRAD = PIXELS / 2 * PIXEL_MRAD + 0.7  # and half a pixel of the reciprocal grid


@dataclass(frozen=True)
class Condition:
    """Conditions of a scan; the defaults are those of a perfect microscope.

    Attributes:
        defocus: Underfocus of the entrance, Å.
        astigmatism: C12, Å, at 0.4 rad.
        coma: C21, Å, at 1.1 rad.
        source: Full width at half maximum of the source, Å.
        tilt: Tilt of the specimen, (y, x), mrad.
        vibration: Root mean square displacement along an axis, Å.
        dose: Electrons per Å² of the scan's steps. `None` is noiseless.
        energy_ev: Electron energy, eV.
        semiangle_mrad: Convergence semiangle, mrad.
    """

    defocus: float = 0.0
    astigmatism: float = 0.0
    coma: float = 0.0
    source: float = 0.0
    tilt: tuple[float, float] = (0.0, 0.0)
    vibration: float = 0.0
    dose: float | None = None
    energy_ev: float = ENERGY_EV
    semiangle_mrad: float = SEMIANGLE_MRAD


@dataclass(frozen=True)
class Case:
    """One file of patterns.

    Attributes:
        name: Its name, of letters, digits and hyphens.
        specimen: Key of `reality_specimens.SPECIMENS`.
        thickness: Å.
        condition: How it is looked at.
    """

    name: str
    specimen: str
    thickness: float
    condition: Condition = Condition()


VIBRATION = 0.08  # Å
TILT = (3.0, 4.0)  # 5 mrad
NOISY = Condition(vibration=VIBRATION, source=0.8, dose=1e4)
CASES = (
    Case("srtio3-50", "SrTiO3", 50),
    Case("srtio3-35", "SrTiO3", 35),
    Case("srtio3-75", "SrTiO3", 75),
    Case("interface", "SrTiO3/BaTiO3", 50),
    Case("vacancies", "SrTiO3, vacancies and La", 50),
    Case("gaas-100", "GaAs", 100),
    Case("gold", "Au", 50),
    Case("boundary", "Au, Σ5 boundary", 50),
    Case("amorphous-carbon", "amorphous carbon", 50),
    Case("carbon-on-silicon", "amorphous carbon on Si", 60),
    Case("underfocus", "SrTiO3", 50, Condition(defocus=50)),
    Case("overfocus", "SrTiO3", 50, Condition(defocus=-50)),
    Case("astigmatism", "SrTiO3", 50, Condition(astigmatism=20)),
    Case("source", "SrTiO3", 50, Condition(source=0.8)),
    Case("vibration", "SrTiO3", 50, Condition(vibration=VIBRATION)),
    Case("tilt", "SrTiO3", 50, Condition(tilt=TILT)),
    Case("tilt-gold", "Au", 50, Condition(tilt=TILT)),
    Case("noisy", "SrTiO3", 50, NOISY),
    Case("noisy-tilt", "SrTiO3", 50, replace(NOISY, tilt=TILT)),
    Case("noisy-focus", "SrTiO3", 50, replace(NOISY, defocus=30)),
    Case("noisy-gaas", "GaAs", 100, replace(NOISY, source=0.7, defocus=-40, astigmatism=10)),
    Case("check-caf2", "CaF2", 45),
    Case("check-caf2-underfocus", "CaF2", 45, Condition(defocus=70)),
    Case("check-caf2-noisy", "CaF2", 45, Condition(source=1.0, dose=5e4, astigmatism=10)),
    Case("check-copper", "Cu", 40),
    Case("check-copper-overfocus", "Cu", 40, Condition(defocus=-60, astigmatism=20)),
    Case("check-copper-tilt", "Cu", 40, Condition(tilt=(-5.0, 5.0))),
    Case("check-rutile", "TiO2", 70),
    Case("check-rutile-coma", "TiO2", 70, Condition(coma=400)),
    Case("check-inas", "InAs", 90),
    Case("check-inas-noisy", "InAs", 90, Condition(defocus=25, source=0.5, dose=2e4)),
    Case("check-amorphous-silicon", "amorphous Si", 40),
    Case("last-mgo", "MgO", 60),
    Case("last-mgo-noisy", "MgO", 60, Condition(source=0.6, dose=2e4, coma=300)),
    Case("last-mgo-tilt", "MgO", 60, Condition(tilt=(4.0, -3.0))),
    Case("last-germanium", "Ge [110]", 55),
    Case("last-germanium-overfocus", "Ge [110]", 55, Condition(defocus=-70)),
    Case("last-germanium-astigmatism", "Ge [110]", 55, Condition(astigmatism=25, defocus=20)),
    Case("last-iron", "Fe", 45),
    Case("last-iron-underfocus", "Fe", 45, Condition(defocus=60, coma=450)),
    Case("last-iron-vibration", "Fe", 45, Condition(vibration=0.07, source=0.5)),
    Case("last-halide", "CsPbBr3", 70),
    Case("last-halide-noisy", "CsPbBr3", 70, Condition(source=0.7, dose=3e4, defocus=-30)),
    Case("last-halide-tilt", "CsPbBr3", 70, Condition(tilt=(-2.0, 6.0))),
    Case("fresh-aluminate", "LaAlO3", 60),
    Case("fresh-aluminate-noisy", "LaAlO3", 60, replace(NOISY, source=0.7, dose=2e4, defocus=40)),
    Case("fresh-aluminate-tilt", "LaAlO3", 60, Condition(tilt=(-4.0, 3.0))),
    Case("fresh-edge", "LaAlO3, edge", 40),
    Case("fresh-telluride", "PbTe", 80),
    Case("fresh-telluride-lens", "PbTe", 80, Condition(defocus=-50, astigmatism=15)),
    Case("fresh-tungsten", "W", 40),
    Case("fresh-tungsten-tilt", "W", 40, Condition(tilt=(3.0, 5.0))),
    Case("fresh-nitride", "AlN", 55),
    Case("fresh-nitride-overfocus", "AlN", 55, Condition(defocus=-40, source=0.5)),
    Case("fresh-carbide", "SiC", 50),
    Case("fresh-carbide-noisy", "SiC", 50, Condition(dose=1e4)),
    Case("fresh-salt-coma", "NaCl", 70, Condition(coma=350, source=0.4)),
    Case("fresh-silicon-vacancies", "Si [110], vacancies", 65),
)


class _Waves(NamedTuple):
    """What the scattering of plane waves depends on."""

    specimen: str
    thickness: float
    tilt: tuple[float, float]
    vibration: float
    energy_ev: float


def write_cases(cases: Iterable[Case], folder: Path, on_case: Callable[[str], None]) -> None:
    """Simulates the cases whose files do not exist yet; one scattering serves all conditions that
    share its waves.
    """
    groups: dict[_Waves, list[Case]] = {}
    for case in cases:
        if not (folder / f"{case.name}.h5").exists():
            condition = case.condition
            waves = _Waves(
                case.specimen,
                case.thickness,
                condition.tilt,
                condition.vibration,
                condition.energy_ev,
            )
            groups.setdefault(waves, []).append(case)
    for waves, members in groups.items():
        vibrations = None
        if waves.vibration:
            vibrations = FrozenPhonons(rms_angstrom=waves.vibration, configurations=4)
        scattering = namsa.scatter(  # at the pixels and slices of the default accuracy
            SPECIMENS[waves.specimen](waves.thickness),
            energy_ev=waves.energy_ev,
            max_angle_mrad=max(case.condition.semiangle_mrad for case in members),
            max_detected_mrad=MAX_DETECTED_MRAD,
            specimen_tilt_mrad=waves.tilt,
            frozen_phonons=vibrations,
        )
        for case in members:
            expose(scattering, case).save(folder / f"{case.name}.h5")
            on_case(case.name)


def expose(scattering: namsa.Scattering, case: Case) -> namsa.Sample:
    """Returns the patterns of a case. A file says nothing about its defocus and aberrations.

    A raster over the whole cell with half the step resolves how patterns change, so that namsa
    averages it over the source exactly and at once; every second of its positions is taken.
    """
    condition = case.condition
    origin = ORIGIN
    raster = np.array(SCAN)
    step = np.full(2, STEP)
    if condition.source:
        extent = np.array(scattering.grid.extent_angstrom)
        origin = 0.0
        raster = 2 * np.round(extent / STEP).astype(int)
        step = extent / raster
    y = origin + step[0] * np.arange(raster[0])
    x = origin + step[1] * np.arange(raster[1])
    aberrations = {"C10": -condition.defocus, "C12": condition.astigmatism, "phi12": 0.4}
    aberrations |= {"C21": condition.coma, "phi21": 1.1}
    dose = {"electrons_per_pattern": condition.dose * STEP**2} if condition.dose else {}
    sample = scattering.simulate(
        semiangle_mrad=condition.semiangle_mrad,
        positions_angstrom=np.stack(np.meshgrid(y, x, indexing="ij"), axis=-1).reshape(-1, 2),
        aberrations=aberrations,
        source_size_angstrom=condition.source,
        detector=Detector(**DETECTOR, **dose),
        scan_shape=tuple(raster.tolist()),
        seed=5,
    )
    if condition.source:
        first_index = round(ORIGIN / step.max())
        taken = np.ix_(first_index + 2 * np.arange(SCAN[0]), first_index + 2 * np.arange(SCAN[1]))
        detector = sample.cbed.shape[1:]
        patterns = sample.cbed.reshape(*raster, *detector)[taken].reshape(-1, *detector)
        positions = np.array(sample.provenance["positions_angstrom"]).reshape(*raster, 2)[taken]
        taken_from = {
            "positions_angstrom": positions.reshape(-1, 2).tolist(),
            "scan_shape": list(SCAN),
        }
        sample = replace(sample, cbed=patterns, provenance=sample.provenance | taken_from)
    return replace(sample, provenance=sample.provenance | {"id": case.name})
