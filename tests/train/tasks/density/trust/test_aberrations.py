"""Aberrations of a scan beside those that a network has learnt, and the orientation of the
detector.
"""

from dataclasses import replace

import ase.build
import numpy as np
import pytest
import small_network
from amorphous_scan import glass
from small_network import experiment, write_run

import namsa
from namsa.base.pixels import PixelGrid
from namsa.config.instrument import Detector
from namsa.inspection.aberrations import AberrationLimits, measure_aberrations
from namsa.inspection.disk_overlaps import DiskOverlaps
from train.apply.models import load_model
from train.experiment.experiment import Experiment
from train.tasks.density.scan.application import reconstruct
from train.tasks.density.scan.live import next_row, reconstruct_live
from train.tasks.density.trust.aberrations import LearntAberrations, is_beyond
from train.tasks.density.trust.orientation import (
    is_contradicted,
    orientation_facts,
    orientation_line,
)

# atoms of an amorphous film
pytestmark = [
    pytest.mark.filterwarnings("ignore:.* Å apart:namsa.SimulationWarning"),
    pytest.mark.filterwarnings("ignore:.* lie outside the cell:namsa.SimulationWarning"),
]

SCAN = (32, 40)
DETECTOR = (12, 12)
PIXEL_MRAD = 4.0
BEAM = replace(small_network.BEAM, pixel_mrad=(PIXEL_MRAD, PIXEL_MRAD), centre_pixels=(5.5, 5.5))


def trained_with(**changes):
    given = experiment().model_dump(mode="json", exclude_unset=True)
    given["detector"] = {"shape": DETECTOR, "pixel_mrad": PIXEL_MRAD}
    given["network"]["input_shape"] = (144, 24, 24)
    return Experiment.model_validate(given | changes)


def test_what_was_learnt_is_the_range_of_focus_about_the_middle_and_the_largest_magnitudes():
    learnt = LearntAberrations.of(experiment())
    assert learnt.limits == ((10, 10), 0, 0)  # 20 Å, in focus
    fixed = LearntAberrations.of(
        experiment(
            aberrations={
                "C10": -40,
                "C12": 12,
                "phi12": 0.3,
                "C21": 300,
                "C30": 2e4,
                "C23": 50,
                "phi23": 1,
            }
        )
    )
    assert fixed.limits == ((-30, -30), 12, 300)
    assert fixed.known == {"C30": 2e4, "C23": 50, "phi23": 1}
    ranges = {"defocus_angstrom": [-50, 80], "thickness_angstrom": [10, 30], "C12_angstrom": [0, 9]}
    drawn = {
        "rule": "random",
        "configurations": 4,
        **ranges,
        "C21_angstrom": [0, 700],
        "C30_angstrom": [-2e4, 4e4],
    }
    specimen = {"thickness_angstrom": [30]}
    config = trained_with(
        variation=drawn,
        specimen=specimen,
        simulation={"method": "scatter", "sampling_angstrom": 0.2},
    )
    random = LearntAberrations.of(config)
    assert random.limits == ((5 - 80, 15 + 50), 9, 700)
    assert LearntAberrations.of(config, 24.0).limits == (
        (12 - 80, 12 + 50),
        9,
        700,
    )  # of a thickness that is known
    assert random.known == {"C30": 1e4}
    grid = {"rule": "grid", "defocus_angstrom": [-50, 0, 20], "C21_angstrom": [[0, 0], [400, 1.0]]}
    assert LearntAberrations.of(trained_with(variation=grid)).limits == ((10 - 20, 10 + 50), 0, 400)
    assert str(random) == "C10 −75 … 65 Å, C12 up to 9 Å, C21 up to 700 Å"


@pytest.fixture(scope="module")
def scattering():
    return namsa.scatter(
        glass((20.0, 18.0, 20.0), seed=7),
        energy_ev=200e3,
        max_angle_mrad=20,
        max_detected_mrad=35,
        grid_shape=(90, 100),
        slice_thickness_angstrom=4.0,
    )


def patterns(scattering, **lens):
    y, x = (np.arange(n) * 0.4 + 1 for n in SCAN)
    sample = scattering.simulate(
        semiangle_mrad=20,
        positions_angstrom=np.stack(np.meshgrid(y, x, indexing="ij"), axis=-1).reshape(-1, 2),
        scan_shape=SCAN,
        aberrations=lens,
        detector=Detector(shape=DETECTOR, pixel_mrad=PIXEL_MRAD),
    )
    return sample.cbed.reshape(*SCAN, *DETECTOR)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return load_model(write_run(tmp_path_factory.mktemp("aberrations"), trained_with()))


@pytest.fixture(scope="module")
def underfocused(tmp_path_factory):
    """A network that learnt an underfocus of 30 Å."""
    microscope = {"energy_ev": 200e3, "semiangle_mrad": 20.0, "aberrations": {"C10": -30.0}}
    return load_model(
        write_run(tmp_path_factory.mktemp("underfocused"), trained_with(microscope=microscope))
    )


def test_a_scan_with_coma_lies_outside_and_one_without_does_not(scattering, model):
    plain, coma = (
        reconstruct(patterns(scattering, **lens), model, BEAM, beam_intensity=1.0)
        for lens in ({}, {"C21": 4000.0})
    )
    assert not is_beyond(
        plain.provenance["aberrations"]
    )  # by its error, a network of random weights says so anyway
    assert "outside of what the network learnt" not in [
        text.get_text() for text in plain.show().texts
    ]
    assert plain.provenance["aberrations"]["within"] > 0.98
    assert any(
        line.endswith("; the network learnt C10 10 … 10 Å, C12 up to 0 Å, C21 up to 0 Å")
        for line in plain.notes
    )
    assert is_beyond(coma.provenance["aberrations"])
    assert coma.outside
    assert coma.provenance["aberrations"]["C21"] == pytest.approx(4000, rel=0.15)
    assert any("Do not rely on the density: correct the lens" in line for line in coma.notes)
    assert "outside of what the network learnt" in [text.get_text() for text in coma.show().texts]


@pytest.mark.parametrize(
    ("rotation_deg", "flip", "otherwise"),
    [(0, True, "mirrored"), (90, False, "turned by a quarter")],
)
def test_the_patterns_contradict_a_wrong_orientation(
    scattering, underfocused, rotation_deg, flip, otherwise
):
    right, wrong = (
        reconstruct(patterns(scattering, C10=-30.0), underfocused, stated, beam_intensity=1.0)
        for stated in (BEAM, replace(BEAM, rotation_deg=rotation_deg, flip=flip))
    )
    assert not is_contradicted(right.provenance["orientation"])
    for line in right.notes:
        assert not line.startswith("orientation")
    facts = wrong.provenance["orientation"]
    assert facts["otherwise"] == otherwise
    assert facts["explained_otherwise"] == pytest.approx(
        right.provenance["orientation"]["explained"], rel=0.02
    )
    assert is_contradicted(facts)
    assert wrong.outside
    assert any("the patterns contradict it" in line and otherwise in line for line in wrong.notes)


def test_half_a_turn_explains_as_much_and_is_not_told_without_familiarity(scattering, underfocused):
    scan = patterns(scattering, C10=-30.0)
    right, turned = (
        reconstruct(
            scan, underfocused, replace(BEAM, rotation_deg=turn), beam_intensity=1.0
        ).provenance["orientation"]
        for turn in (0, 180)
    )
    assert turned["explained_by_any"] == pytest.approx(right["explained_by_any"], rel=1e-3)
    assert right["explained"] == pytest.approx(right["explained_by_any"], rel=1e-3)
    assert "half_turn" not in turned
    assert not is_contradicted(turned)


def test_astigmatism_that_a_focus_would_be_in_the_mirror_contradicts_no_orientation():
    """Of aluminium nitride, overfocused, it explains more than the focus does."""
    nitride = ase.build.bulk(
        "AlN", "wurtzite", a=3.112, c=4.982, u=0.382, orthorhombic=True
    ).repeat((5, 3, 11))
    scan = namsa.scatter(
        nitride,
        energy_ev=200e3,
        max_angle_mrad=20,
        max_detected_mrad=35,
        grid_shape=(112, 108),
        slice_thickness_angstrom=2.5,
    )
    overlaps = DiskOverlaps.of(
        SCAN, (0.4, 0.4), DETECTOR, PixelGrid((PIXEL_MRAD,) * 2, (-22.0, -22.0)), 200e3, 20
    )
    transforms = overlaps.transform(patterns(scan, C10=40.0))[None]
    facts = []
    for c12 in (30, 100):
        learnt = LearntAberrations(AberrationLimits((-60, 100), c12, 500), {})
        measured = measure_aberrations(overlaps, transforms, learnt.known, learnt.limits)
        facts.append(orientation_facts(overlaps, transforms, learnt, measured, np.empty((0, 2))))
    assert [is_contradicted(orientation) for orientation in facts] == [False, True]
    assert facts[0]["explained"] == pytest.approx(facts[1]["explained"], rel=1e-3)
    assert facts[1]["otherwise"] == "mirrored"


def test_where_stronger_aberrations_explain_as_much_the_lens_may_be_wrong():
    facts = {
        "explained": 0.2,
        "explained_by_any": 0.5,
        "explained_otherwise": 0.52,
        "otherwise": "mirrored",
    }
    assert "it or the lens is wrong" in orientation_line(facts)
    assert "other aberrations explain 50 % with the stated one" in orientation_line(facts)
    assert "it or the lens" not in orientation_line(facts | {"explained_by_any": 0.25})


def test_a_focus_outside_of_the_training_contradicts_no_orientation():
    facts = {"explained": 0.5, "explained_otherwise": 0.2, "half_turn": 0.7}
    assert is_contradicted(facts)
    outside = facts | {"lens_outside": True}
    assert not is_contradicted(outside)
    assert "cannot be told from a focus outside" in orientation_line(outside)
    assert is_contradicted(outside | {"explained_otherwise": 0.7, "otherwise": "mirrored"})


def test_small_differences_contradict_no_orientation():
    assert not is_contradicted(None)
    for stated, otherwise in ((0.5, 0.54), (0.1, 0.12)):
        assert not is_contradicted(
            {"explained": stated, "explained_otherwise": otherwise, "half_turn": 0.92}
        )
    assert is_contradicted({"explained": 0.1, "explained_otherwise": 0.14, "otherwise": "mirrored"})
    assert "turned by 180°" in orientation_line(
        {"explained": 0.5, "explained_otherwise": 0.2, "half_turn": 0.9}
    )


def test_a_live_reconstruction_says_the_same_at_the_end(scattering, model, tmp_path):
    scan = patterns(scattering, C21=4000.0)
    expected = reconstruct(scan, model, BEAM, beam_intensity=1.0)
    state = tmp_path / "state.npz"
    options = {"scan_shape": SCAN, "beam_intensity": 1.0, "state": state}
    stream = reconstruct_live(iter(scan), model, BEAM, **options)
    assert not {"aberrations", "orientation"} & next(stream).result.provenance.keys()
    stream.close()  # interrupted after a strip
    row = next_row(state)
    *_, last = reconstruct_live(iter(scan[row:]), model, BEAM, first_row=row, **options)
    for name in ("aberrations", "orientation"):
        assert last.result.provenance[name] == expected.provenance[name]
    assert sum("correct the lens" in line for line in last.result.notes) == 1
