"""Errors and warnings before the work starts, with numbers; thermal motion from
B-factors.
"""

import json
import resource
import threading
import warnings

import ase
import numpy as np
import pytest

import namsa
from namsa import InputError
from namsa.base.errors import stored_warnings
from namsa.base.memory import available_memory_bytes, check_memory_for
from namsa.config.instrument import Microscope
from namsa.config.simulation import load_config
from namsa.config.specimen import FrozenPhonons
from namsa.crystals.displacements import displace_atoms
from namsa.physics import optics, potential, specimen
from namsa.physics.grid import Grid
from namsa.setup import checks

ARGUMENTS = {
    "energy_ev": 200e3,
    "semiangle_mrad": 20.0,
    "grid_shape": (60, 72),
    "positions_angstrom": [[1.0, 2.0]],
    "backend": "cpu",
}


def atom(depth=2.0):
    return ase.Atoms("O", positions=[[2, 3, 1]], cell=[10.5, 9.0, depth], pbc=True)


def warned(atoms, **changes):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sample = namsa.simulate(atoms, **ARGUMENTS | changes)
    texts = []
    for w in caught:
        if w.category is namsa.SimulationWarning:
            texts.append(str(w.message))
    assert sample.provenance["warnings"] == texts
    assert all(w.filename == __file__ for w in caught)  # they point at the caller
    return texts


@pytest.mark.parametrize(
    ("depth", "changes", "texts"),
    [
        (2.0, {}, ()),
        (2.0, {"aberrations": {"C10": -300.0}}, ("spreads to 13.5 Å", "9.0 Å wide")),
        (300.0, {"propagator": "exact"}, ("thinner specimen",)),
        (180.0, {}, ("paraxial propagator is wrong by 0.57 rad at 100 mrad over 180 Å", "'exact'")),
        (12.0, {"slice_thickness_angstrom": 6.0}, ("6.00 Å thick",)),
        (
            2.0,
            {"grid_shape": (300, 360), "slice_thickness_angstrom": 2.0},
            ("Laue zone of their own at 158 mrad",),
        ),
        (
            2.0,
            {"positions_angstrom": [[1, 2], [-0.5, 2]]},
            ("1 of 2 positions are negative, down to -0.50 Å",),
        ),
        (
            2.0,
            {"detector": namsa.Detector(shape=(8, 8), pixel_mrad=2.75)},
            ("pixel_mrad 2.75 is 1.3 % finer", "2.787 mrad", "a cell of 9.1 Å", "(now 9.0 Å)"),
        ),
        (
            2.0,
            {
                "positions_angstrom": None,
                "scan": namsa.Scan(shape=(1, 2), step_angstrom=(0.04, 0.04)),
            },
            ("scan.step_angstrom is 0.04 Å", "steps of 0.31 Å", "is 0.4 Å meant?"),
        ),
    ],
    ids=[
        "well chosen",
        "probe",
        "depth",
        "angles",
        "slices",
        "Laue zone",
        "positions",
        "pixels",
        "steps",
    ],
)
def test_what_is_not_well_chosen_draws_one_warning(depth, changes, texts):
    lines = warned(atom(depth), **changes)
    assert len(lines) == bool(texts)
    for text in texts:
        assert text in lines[0]


def test_the_probes_diameter_is_where_its_intensity_is():
    """All but the outer rings of the intensity lies inside, and half the diameter would not do."""
    grid = Grid((400, 440), (60.0, 66.0))
    y, x = (
        np.fft.fftfreq(n) * extent
        for n, extent in zip(grid.shape, grid.extent_angstrom, strict=True)
    )
    r = np.hypot(y[:, None], x[None, :])
    for aberrations in (
        {"C10": -300.0},
        {"C30": 1.5e6},
        {"C12": 250.0, "phi12": 0.3},
        {"C23": 1e4, "C21": 2e4},
    ):
        wave = np.fft.ifft2(optics.lens(grid, optics.BeamSettings(200e3, 20.0, aberrations)))
        intensity = np.abs(wave) ** 2 / (np.abs(wave) ** 2).sum()
        diameter = optics.probe_diameter_angstrom(
            optics.BeamSettings(200e3, 20.0, aberrations), 0.0
        )
        assert intensity[r < diameter / 2].sum() > 0.93
        assert intensity[r < diameter / 4].sum() < 0.85
    thick = optics.probe_diameter_angstrom(optics.BeamSettings(200e3, 20.0, {"C10": -100.0}), 400.0)
    assert thick == pytest.approx(2 * (300 * 0.02 + 0.61 * 0.0250793 / 0.02), rel=1e-3)


def test_a_thread_that_only_stores_warnings_silences_no_other():
    """Of a job that simulates while it trains: Python's filters of warnings are those of the whole
    process.
    """
    stored = []
    entered = threading.Event()
    left = threading.Event()

    def simulate():
        with stored_warnings():
            entered.set()
            stored.extend(
                namsa.simulate(
                    atom(), **ARGUMENTS | {"positions_angstrom": [[-1.0, 2.0]]}
                ).provenance["warnings"]
            )
            left.wait(60)

    thread = threading.Thread(target=simulate)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        thread.start()
        entered.wait(60)
        namsa.simulate(atom(), **ARGUMENTS | {"positions_angstrom": [[-2.0, 2.0]]})
        left.set()
        thread.join()
    assert any("down to -1.00 Å" in text for text in stored)
    texts = [str(w.message) for w in caught]
    assert any("down to -2.00 Å" in text for text in texts)
    for text in texts:
        assert "down to -1.00 Å" not in text


def test_patterns_that_do_not_fit_into_memory(monkeypatch):
    checks.check_memory(100, (64, 64), 4, available_bytes=100 * 64 * 64 * 4)
    with pytest.raises(
        InputError, match="1000 patterns of 512×512 pixels: 1.0 GB of memory, and 0.5 GB"
    ):
        checks.check_memory(1000, (512, 512), 4, available_bytes=5 * 10**8)
    monkeypatch.setattr(checks, "available_memory_bytes", lambda: 60 * 72 * 4 - 1)
    with pytest.raises(InputError, match="1 pattern of 60×72 pixels: "):
        namsa.simulate(atom(), **ARGUMENTS)


def test_the_provenance_holds_every_setting():
    settings = {
        "beam_tilt_mrad": (1.0, -2.0),
        "specimen_tilt_mrad": (0.5, 0.25),
        "source_size_angstrom": 0.1,
        "source_points": 2,
        "focal_spread_angstrom": 5.0,
        "focal_points": 2,
        "projection": "finite",
        "scan_shape": (1, 1),
        "frozen_phonons": FrozenPhonons(b_factor_angstrom2={"O": 0.5}),
    }
    provenance = json.loads(json.dumps(namsa.simulate(atom(), **ARGUMENTS, **settings).provenance))
    for name, value in settings.items():
        expected = value.model_dump() if name == "frozen_phonons" else value
        assert provenance[name] == (list(expected) if isinstance(expected, tuple) else expected)


def test_b_is_eight_pi_squared_u_squared():
    assert FrozenPhonons(
        b_factor_angstrom2=8 * np.pi**2 * 0.01
    ).displacement_angstrom() == pytest.approx(0.1)
    by_element = FrozenPhonons(b_factor_angstrom2={"Sr": 0.6214, "O": 0.0}).displacement_angstrom()
    assert by_element == pytest.approx({"Sr": 0.08871, "O": 0.0}, rel=1e-3)
    assert FrozenPhonons(rms_angstrom={"Sr": 0.1}).displacement_angstrom() == {"Sr": 0.1}
    for wrong in (
        {},
        {"rms_angstrom": 0.1, "b_factor_angstrom2": 0.5},
        {"b_factor_angstrom2": -0.1},
    ):
        with pytest.raises(ValueError, match="exactly one|must be at least 0"):
            FrozenPhonons(**wrong)


def test_heated_atoms_scatter_as_debye_and_waller_say():
    """⟨Σ exp(2πi k·r)⟩ falls by exp(−Bk²/4), with k = 2 sin θ/λ."""
    b = 1.2
    side = 12.0
    cold = ase.Atoms("Si400", cell=[side, side, 1200.0], pbc=True)
    cold.positions[:, 2] = 3.0 * np.arange(400)  # apart, so that no two share a site
    hot = displace_atoms(
        cold, FrozenPhonons(b_factor_angstrom2=b).displacement_angstrom(), np.random.default_rng(3)
    )
    grid = Grid((24, 24), (side, side))
    sums = potential.structure_sums(specimen.atom_list(hot), grid, np)[14]
    total = potential.half_plane(sums, grid).real / 400
    k2 = grid.squared_frequency()[:, :13]
    error = total - np.exp(-b * k2 / 4)
    assert np.abs(error).mean() < 0.05
    assert np.abs(error[k2 < 0.1]).max() < 0.05
    assert np.exp(-b * k2.max() / 4) < 0.6


def test_the_focal_spread_is_given_once():
    Microscope(chromatic_aberration_mm=1.2, energy_spread_ev=0.8)
    with pytest.raises(ValueError, match="goes together with energy_spread_ev"):
        Microscope(energy_spread_ev=0.8)
    with pytest.raises(ValueError, match="not both"):
        Microscope(chromatic_aberration_mm=1.2, energy_spread_ev=0.8, focal_spread_angstrom=10.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"grid_shape": (2**15 + 2, 60)}, "32768 pixels or fewer"),
        (
            {"slice_thickness_angstrom": 1e-9},
            "slice_thickness_angstrom is 1e-09; it must lie within 0.01 to 100000",
        ),
        ({"energy_ev": 200.0}, "energy_ev is 200"),
        ({"energy_ev": 1.1e6}, "energy_ev is 1.1e"),
        ({"energy_ev": float("nan")}, "energy_ev is nan"),
        ({"semiangle_mrad": 1e30}, "semiangle_mrad is 1e.30; it must lie within 0 to 200"),
        ({"semiangle_mrad": -5e-324}, "semiangle_mrad is -5e-324; it must lie within 0 to 200"),
        (
            {"beam_tilt_mrad": (0.0, float("nan"))},
            "beam_tilt_mrad is .*; it must lie within -200 to 200",
        ),
        ({"specimen_tilt_mrad": (80.0, 60.0)}, "specimen_tilt_mrad.*turn the atoms"),
        ({"specimen_tilt_mrad": (float("nan"), 0.0)}, "specimen_tilt_mrad"),
        ({"projection": "finate"}, "'finate'"),
        ({"source_size_angstrom": 1e9}, "source_size_angstrom"),
        ({"aberrations": {"C11": 1.0}}, "unknown aberration 'C11'; did you mean"),
        ({"aberrations": {"C30": float("nan")}}, "finite"),
        (
            {"aberrations": {"C10": 1e300}},
            r"aberration C10 is 1e\+300 Å; it must be within ±1e\+06 Å",
        ),
        (
            {"aberrations": {"phi12": 1e300}},
            r"aberration phi12 is 1e\+300 rad; it must be within ±6.2832 rad",
        ),
        ({"positions_angstrom": [[0.0, 0.0], [1e30, 0.0]]}, r"positions_angstrom\[1\]"),
    ],
    ids=range(17),
)
def test_values_out_of_range_are_refused_before_any_work(settings, message):
    def on_progress(stage, done, total):
        raise AssertionError(f"{stage} began")

    with pytest.raises(InputError, match=message):
        namsa.simulate(atom(), **ARGUMENTS | settings, on_progress=on_progress)


@pytest.mark.parametrize("key", ["specimen.lateral_angstrom", "specimen.thickness_angstrom"])
def test_lengths_that_would_round_to_zero_are_refused(tmp_path, key):
    path = tmp_path / "c.yaml"
    path.write_text("simulation: {grid_shape: [36, 50]}\n")
    value = {"lateral_angstrom": "[5e-324, 10]", "thickness_angstrom": "[5e-324]"}[
        key.split(".")[1]
    ]
    with pytest.raises(InputError, match=f"{key}.*at least 0.001"):
        load_config(path, [f"{key}={value}"])


# ---- Memory


def test_work_that_does_not_fit_is_refused_with_the_numbers():
    check_memory_for(10**9, "a grid", "use a smaller one", available_bytes=10**9)
    with pytest.raises(
        InputError, match=r"a grid: 2\.0 GB of memory, and 1\.0 GB are available: use a smaller one"
    ):
        check_memory_for(2 * 10**9, "a grid", "use a smaller one", available_bytes=10**9)
    with pytest.raises(MemoryError):  # on a machine with more memory it can be done
        check_memory_for(1e18, "a grid", "use a smaller one")


def test_the_limit_on_the_address_space_counts(monkeypatch):
    free = available_memory_bytes()
    assert 10**8 < free < 10**14
    monkeypatch.setattr(resource, "getrlimit", lambda _: (10**6, 10**6))
    assert available_memory_bytes() == 0
