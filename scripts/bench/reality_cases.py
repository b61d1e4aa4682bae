"""The specimens and conditions of `reality.py`, made with ase and simulated with the public functions of namsa.

None of the specimens is made by the code that makes training data. A case is a specimen at a thickness under a
condition; its file holds the patterns of 48 × 48 positions, what a microscope's file says about them, and as density
the true one at the positions, band-limited as a network's target is.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ase
import ase.build
import numpy as np
from ase.spacegroup import crystal

import namsa
from namsa.config.instrument import Detector, FrozenPhonons
from namsa.physics import density_target
from namsa.physics.grid import Grid

ENERGY_EV, SEMIANGLE_MRAD, STEP, SCAN = 200e3, 20.0, 0.4, (48, 48)
DETECTOR = {"shape": (33, 33), "pixel_mrad": 3.0}
MAX_Q = 1.25  # 1/Å, of the target
ORIGIN = 2.0  # Å, of the scan in the cell
SAMPLING, SLICE = 0.115, 2.0  # Å
LATERAL = 25.0  # Å, at least; the scan takes 18.8 Å
MAX_DETECTED_MRAD = 33 / 2 * 3 + 0.7  # half a pixel of the reciprocal grid more than the detector
BOND = 1.5  # Å; atoms that a boundary brings closer are one


@dataclass(frozen=True)
class Condition:
    """How a specimen is looked at; the defaults are those of a perfect microscope.

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
        specimen: Key of `SPECIMENS`.
        thickness: Å.
        condition: How it is looked at.
        inside: Whether a network for reality should know such data. The others are to be flagged.
    """

    name: str
    specimen: str
    thickness: float
    condition: Condition = Condition()
    inside: bool = True


VIBRATION = {"vibration": 0.08}
TILT = (3.0, 4.0)  # 5 mrad
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
    Case("vibration", "SrTiO3", 50, Condition(**VIBRATION)),
    Case("tilt", "SrTiO3", 50, Condition(tilt=TILT)),
    Case("tilt-gold", "Au", 50, Condition(tilt=TILT)),
    Case("noisy", "SrTiO3", 50, Condition(**VIBRATION, source=0.8, dose=1e4)),
    Case("noisy-tilt", "SrTiO3", 50, Condition(**VIBRATION, source=0.8, dose=1e4, tilt=TILT)),
    Case("noisy-focus", "SrTiO3", 50, Condition(**VIBRATION, source=0.8, dose=1e4, defocus=30)),
    Case("noisy-gaas", "GaAs", 100, Condition(**VIBRATION, source=0.7, dose=1e4, defocus=-40, astigmatism=10)),
    Case("outside-defocus-300", "SrTiO3", 50, Condition(defocus=300), inside=False),
    Case("outside-defocus-300-gaas", "GaAs", 100, Condition(defocus=-300), inside=False),
    Case("outside-astigmatism-150", "SrTiO3", 50, Condition(astigmatism=150), inside=False),
    Case("outside-coma-3000", "SrTiO3", 50, Condition(coma=3000), inside=False),
    Case("outside-source-3", "SrTiO3", 50, Condition(source=3.0), inside=False),
    Case("outside-energy-80", "SrTiO3", 50, Condition(energy_ev=80e3), inside=False),
    Case("outside-semiangle-28", "SrTiO3", 50, Condition(semiangle_mrad=28), inside=False),
    Case("outside-tilt-40", "Au", 50, Condition(tilt=(24.0, 32.0)), inside=False),
    Case("outside-gold-400", "Au", 400, inside=False),
)
CHECKS = (  # specimens and conditions that are in no table, on which no rule and no setting was chosen
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
    Case("check-outside-defocus-250", "CaF2", 45, Condition(defocus=-250), inside=False),
    Case("check-outside-astigmatism-120", "CaF2", 45, Condition(astigmatism=120), inside=False),
    Case("check-outside-energy-120", "CaF2", 45, Condition(energy_ev=120e3), inside=False),
    Case("check-outside-source-2.5", "Cu", 40, Condition(source=2.5), inside=False),
    Case("check-outside-semiangle-15", "TiO2", 70, Condition(semiangle_mrad=15), inside=False),
    Case("check-outside-coma-4000", "TiO2", 70, Condition(coma=4000), inside=False),
    Case("check-outside-defocus-200", "InAs", 90, Condition(defocus=200), inside=False),
    Case("check-outside-tilt-30", "InAs", 90, Condition(tilt=(18.0, -24.0)), inside=False),
)
LAST_CHECKS = (  # written down after the rule for aberrations had been chosen
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
    Case("last-outside-coma-3500", "MgO", 60, Condition(coma=3500), inside=False),
    Case("last-outside-coma-5000", "Ge [110]", 55, Condition(coma=5000), inside=False),
    Case("last-outside-defocus-220", "Ge [110]", 55, Condition(defocus=220), inside=False),
    Case("last-outside-overfocus-350", "Fe", 45, Condition(defocus=-350), inside=False),
    Case("last-outside-astigmatism-100", "MgO", 60, Condition(astigmatism=100), inside=False),
    Case("last-outside-astigmatism-200", "CsPbBr3", 70, Condition(astigmatism=200), inside=False),
    Case("last-outside-source-2.8", "MgO", 60, Condition(source=2.8), inside=False),
    Case("last-outside-tilt-35", "CsPbBr3", 70, Condition(tilt=(30.0, 18.0)), inside=False),
    Case("last-outside-energy-300", "Fe", 45, Condition(energy_ev=300e3), inside=False),
    Case("last-outside-semiangle-26", "Ge [110]", 55, Condition(semiangle_mrad=26), inside=False),
)


# ---- Specimens ------------------------------------------------------------------------------------------------------


def perovskite(a: str, edge: float = 3.905) -> ase.Atoms:
    """Returns the cubic perovskite of element `a` and TiO3."""
    half = 0.5
    return crystal(
        [a, "Ti", "O"], [(0, 0, 0), (half,) * 3, (half, half, 0)], spacegroup=221, cellpar=[edge] * 3 + [90] * 3
    )


def repeated(cell: ase.Atoms, thickness: float, lateral: float = LATERAL) -> ase.Atoms:
    """Returns a right-angled cell repeated to at least `lateral` and about `thickness`, Å."""
    lx, ly, lz = cell.cell.lengths()
    return cell.repeat((int(np.ceil(lateral / lx)), int(np.ceil(lateral / ly)), max(1, round(thickness / lz))))


def interface(thickness: float) -> ase.Atoms:
    """Returns SrTiO3 beside BaTiO3 on the same lattice, whose titanium is off the centre, in half of the cell each."""
    atoms = repeated(perovskite("Sr"), thickness)
    right = atoms.positions[:, 0] >= atoms.cell.lengths()[0] / 2 - 0.1
    symbols = np.array(atoms.get_chemical_symbols())
    atoms.positions[right & (symbols == "Ti"), 1] += 0.08
    symbols[right & (symbols == "Sr")] = "Ba"
    return ase.Atoms(symbols, atoms.positions, cell=atoms.cell, pbc=True)


def vacancies(thickness: float) -> ase.Atoms:
    """Returns SrTiO3 in which some columns of strontium have vacancies, and some have lanthanum."""
    atoms = repeated(perovskite("Sr"), thickness)
    rng = np.random.default_rng(1)
    symbols = np.array(atoms.get_chemical_symbols())
    columns = np.round(atoms.positions[:, :2] / 3.905).astype(int) @ [1, 100]
    of_sr = rng.permutation(np.unique(columns[symbols == "Sr"]))
    some = rng.random(len(atoms))
    symbols[(symbols == "Sr") & np.isin(columns, of_sr[:8]) & (some < 0.6)] = "La"
    keep = ~((symbols == "Sr") & np.isin(columns, of_sr[8:16]) & (some < 0.4))
    return ase.Atoms(symbols[keep], atoms.positions[keep], cell=atoms.cell, pbc=True)


def zincblende(thickness: float) -> ase.Atoms:
    """Returns GaAs along [001]."""
    return repeated(ase.build.bulk("GaAs", "zincblende", a=5.653, cubic=True), thickness)


def gold(thickness: float) -> ase.Atoms:
    """Returns gold along [001]."""
    return repeated(ase.build.bulk("Au", "fcc", a=4.078, cubic=True), thickness)


def boundary(thickness: float) -> ase.Atoms:
    """Returns two grains of gold with Σ5 (310) tilt boundaries, the beam along the common [001]."""
    unit = ase.build.bulk("Au", "fcc", a=4.078, cubic=True)
    rotated = ase.build.make_supercell(unit, [[3, 1, 0], [-1, 3, 0], [0, 0, 1]])
    rotated.rotate(-np.degrees(np.arctan2(1, 3)), "z", rotate_cell=True)
    rotated.set_cell(rotated.cell.lengths(), scale_atoms=False)
    rotated.wrap()
    atoms = repeated(rotated, thickness, LATERAL)
    length = atoms.cell.lengths()[0]
    left = atoms[(atoms.positions[:, 0] > 0.3) & (atoms.positions[:, 0] < length / 2 - 0.3)]
    right = left.copy()
    right.positions[:, 0] = length - right.positions[:, 0]
    on_planes = atoms[(atoms.positions[:, 0] <= 0.3) | (abs(atoms.positions[:, 0] - length / 2) <= 0.3)]
    return _without_overlaps(left + on_planes + right, BOND)


def amorphous_carbon(thickness: float) -> ase.Atoms:
    """Returns carbon at random places, no two closer than 1.3 Å, 100 per nm³ (2.0 g/cm³)."""
    sides = np.array([LATERAL, LATERAL, thickness])
    return _random_packing("C", sides, round(0.1 * sides.prod()), 1.3, np.random.default_rng(2))


def diamond_110(symbol: str, edge: float) -> ase.Atoms:
    """Returns the right-angled cell of a crystal of diamond's structure along [110]."""
    unit = ase.build.bulk(symbol, "diamond", a=edge, cubic=True)
    turned = ase.build.make_supercell(unit, [[0, 0, 1], [1, -1, 0], [1, 1, 0]])
    sides = turned.cell.lengths()
    return ase.Atoms(turned.numbers, turned.get_scaled_positions() * sides, cell=sides, pbc=True)


def carbon_on_silicon(thickness: float) -> ase.Atoms:
    """Returns silicon along [110] under 20 Å of amorphous carbon on the side of the beam."""
    silicon = repeated(diamond_110("Si", 5.431), thickness - 20)
    lx, ly, lz = silicon.cell.lengths()
    box = np.array([lx, ly, 18.0])  # 1 Å free on both sides
    layer = _random_packing("C", box, round(0.1 * box.prod()), 1.3, np.random.default_rng(3))
    positions = np.concatenate([layer.positions + np.array([0, 0, 1]), silicon.positions + np.array([0, 0, 20])])
    return ase.Atoms([*layer.numbers, *silicon.numbers], positions, cell=[lx, ly, lz + 20], pbc=True)


def rutile(thickness: float) -> ase.Atoms:
    """Returns TiO2 along [001]."""
    cell = [4.594, 4.594, 2.959, 90, 90, 90]
    return repeated(crystal(["Ti", "O"], [(0, 0, 0), (0.305, 0.305, 0)], spacegroup=136, cellpar=cell), thickness)


def halide(thickness: float) -> ase.Atoms:
    """Returns the cubic perovskite CsPbBr3 along [001]."""
    places = [(0, 0, 0), (0.5, 0.5, 0.5), (0.5, 0.5, 0)]
    cell = crystal(["Cs", "Pb", "Br"], places, spacegroup=221, cellpar=[5.87, 5.87, 5.87, 90, 90, 90])
    return repeated(cell, thickness)


def amorphous_silicon(thickness: float) -> ase.Atoms:
    """Returns silicon at random places, no two closer than 2 Å, 50 per nm³ (2.3 g/cm³)."""
    sides = np.array([LATERAL, LATERAL, thickness])
    return _random_packing("Si", sides, round(0.05 * sides.prod()), 2.0, np.random.default_rng(4))


SPECIMENS: dict[str, Callable[[float], ase.Atoms]] = {
    "SrTiO3": lambda thickness: repeated(perovskite("Sr"), thickness),
    "SrTiO3/BaTiO3": interface,
    "SrTiO3, vacancies and La": vacancies,
    "GaAs": zincblende,
    "Au": gold,
    "Au, Σ5 boundary": boundary,
    "amorphous carbon": amorphous_carbon,
    "amorphous carbon on Si": carbon_on_silicon,
    "CaF2": lambda thickness: repeated(ase.build.bulk("CaF2", "fluorite", a=5.463, cubic=True), thickness),
    "Cu": lambda thickness: repeated(ase.build.bulk("Cu", "fcc", a=3.615, cubic=True), thickness),
    "TiO2": rutile,
    "InAs": lambda thickness: repeated(ase.build.bulk("InAs", "zincblende", a=6.058, cubic=True), thickness),
    "amorphous Si": amorphous_silicon,
    "MgO": lambda thickness: repeated(ase.build.bulk("MgO", "rocksalt", a=4.212, cubic=True), thickness),
    "Ge [110]": lambda thickness: repeated(diamond_110("Ge", 5.658), thickness),
    "Fe": lambda thickness: repeated(ase.build.bulk("Fe", "bcc", a=2.866, cubic=True), thickness),
    "CsPbBr3": halide,
}


def _random_packing(symbol: str, sides: np.ndarray, count: int, closest: float, rng: np.random.Generator) -> ase.Atoms:
    """Returns `count` atoms at random places in a periodic box, no two closer than `closest`, Å."""
    cells = np.floor(sides / closest).astype(int)  # an atom's neighbours lie in its own and the next cells
    grid: dict[tuple[int, ...], list[np.ndarray]] = {}
    placed: list[np.ndarray] = []
    offsets = np.stack(np.meshgrid(*[[-1, 0, 1]] * 3, indexing="ij"), -1).reshape(-1, 3)
    while len(placed) < count:
        position = rng.random(3) * sides
        home = np.minimum((position / sides * cells).astype(int), cells - 1)
        near = [other for offset in offsets for other in grid.get(tuple((home + offset) % cells), ())]
        apart = np.array(near).reshape(-1, 3) - position
        apart -= sides * np.round(apart / sides)
        if not near or (apart**2).sum(axis=1).min() >= closest**2:
            grid.setdefault(tuple(home), []).append(position)
            placed.append(position)
    return ase.Atoms([symbol] * count, np.array(placed), cell=sides, pbc=True)


def _without_overlaps(atoms: ase.Atoms, closest: float) -> ase.Atoms:
    """Returns the atoms without the second of each pair that is closer than `closest`, Å."""
    from ase.neighborlist import neighbor_list

    first, second = neighbor_list("ij", atoms, closest)
    dropped: set[int] = set()
    for i, j in sorted(zip(first.tolist(), second.tolist(), strict=True)):
        if i < j and i not in dropped:
            dropped.add(j)
    return atoms[[index for index in range(len(atoms)) if index not in dropped]]


# ---- Simulation -----------------------------------------------------------------------------------------------------


def write_cases(cases: Iterable[Case], folder: Path, on_case: Callable[[str], None]) -> None:
    """Simulates the cases whose files do not exist yet; one scattering serves all conditions that share its waves."""
    groups: dict[tuple[Any, ...], list[Case]] = {}
    for case in cases:
        if not (folder / f"{case.name}.h5").exists():
            condition = case.condition
            waves = (case.specimen, case.thickness, condition.tilt, condition.vibration, condition.energy_ev)
            groups.setdefault(waves, []).append(case)
    for (specimen, thickness, tilt, vibration, energy_ev), members in groups.items():
        atoms = SPECIMENS[specimen](thickness)
        lx, ly, _ = atoms.cell.lengths()
        shape = tuple(int(np.ceil(length / SAMPLING / 4)) * 4 for length in (ly, lx))
        scattering = namsa.scatter(
            atoms,
            energy_ev=energy_ev,
            max_angle_mrad=max(case.condition.semiangle_mrad for case in members),
            max_detected_mrad=MAX_DETECTED_MRAD,
            grid_shape=(shape[0], shape[1]),
            slice_thickness_angstrom=SLICE,
            specimen_tilt_mrad=tilt,
            frozen_phonons=FrozenPhonons(rms_angstrom=vibration, configurations=4) if vibration else None,
        )
        for case in members:
            _with_truth(expose(scattering, case), Grid((shape[0], shape[1]), (ly, lx))).save(folder / f"{case.name}.h5")
            on_case(case.name)


def expose(scattering: namsa.Scattering, case: Case) -> namsa.Sample:
    """Returns the patterns of a case. A file says nothing about its defocus and aberrations.

    A raster over the whole cell with half the step resolves how patterns change, so that namsa averages it over the
    source exactly and at once; every second of its positions is taken.
    """
    condition, extent = case.condition, np.array(scattering.grid.extent_angstrom)
    fine = 2 * np.round(extent / STEP).astype(int) if condition.source else np.array(SCAN)
    step = extent / fine if condition.source else np.full(2, STEP)
    y, x = ((0 if condition.source else ORIGIN) + each * np.arange(n) for each, n in zip(step, fine, strict=True))
    aberrations = {"C10": -condition.defocus, "C12": condition.astigmatism, "phi12": 0.4}
    aberrations |= {"C21": condition.coma, "phi21": 1.1}
    dose = {"electrons_per_pattern": condition.dose * STEP**2} if condition.dose else {}
    sample = scattering.simulate(
        semiangle_mrad=condition.semiangle_mrad,
        positions_angstrom=np.stack(np.meshgrid(y, x, indexing="ij"), axis=-1).reshape(-1, 2),
        aberrations=aberrations,
        source_size_angstrom=condition.source,
        detector=Detector(**DETECTOR, **dose),
        scan_shape=tuple(fine.tolist()),
        seed=5,
    )
    if condition.source:
        first = round(ORIGIN / step.max())
        taken = np.ix_(*(first + 2 * np.arange(n) for n in SCAN))
        of_raster = np.array(sample.provenance["positions_angstrom"]).reshape(*fine, 2)[taken].reshape(-1, 2)
        patterns = sample.cbed.reshape(*fine, *sample.cbed.shape[1:])[taken].reshape(-1, *sample.cbed.shape[1:])
        taken_from = {"positions_angstrom": of_raster.tolist(), "scan_shape": list(SCAN)}
        sample = replace(sample, cbed=patterns, provenance=sample.provenance | taken_from)
    return replace(sample, provenance=sample.provenance | {"id": case.name})


def _with_truth(sample: namsa.Sample, grid: Grid) -> namsa.Sample:
    """Returns the sample with the band-limited density at its positions."""
    coefficients = density_target.band_limited(sample.density.astype(np.float64), grid, MAX_Q)
    positions = np.array(sample.provenance["positions_angstrom"]).reshape(*SCAN, 2)
    y, x = positions[:, 0, 0], positions[0, :, 1]
    density = density_target.at_positions(coefficients, grid, y, x).astype(np.float32)
    added = {
        "density_sampling_angstrom": [float(y[1] - y[0]), float(x[1] - x[0])],
        "density_origin_angstrom": [float(y[0]), float(x[0])],
        "density_max_q_per_angstrom": MAX_Q,
    }
    return replace(sample, density=density, provenance=sample.provenance | added)
