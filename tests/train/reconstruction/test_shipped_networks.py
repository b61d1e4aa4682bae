"""The networks that come with the package: whole, described, and of use on a crystal of their microscope."""

import hashlib

import pytest
from paths import DATA

from namsa.config.materials import Materials
from namsa.crystals import select as materials
from namsa.dataset import manifest, records
from namsa.dataset.simulate_entry import simulate_entry
from train.measure.metrics import metrics
from train.reconstruction.calibrate import answering
from train.reconstruction.models import MODELS, find
from train.reconstruction.pack import answers_to

CRYSTAL = DATA / "mixed_perovskite.cif"  # in no library
NAMES = sorted(path.parent.name for path in MODELS.glob("*/config.yaml"))


@pytest.mark.parametrize("name", NAMES)
def test_a_card_is_of_the_weights_beside_it(name):
    model = find(name)
    card = (model.folder / "CARD.md").read_text(encoding="utf-8")
    assert hashlib.sha256(model.weights.read_bytes()).hexdigest() in card
    assert model.calibration["uncertainty_factor"] > 0
    assert (model.folder / "transfer.json").is_file()


@pytest.mark.parametrize("name", NAMES)
def test_a_crystal_of_no_library_comes_out(name):
    model = find(name)
    thickness = model.experiment.specimen.thickness_angstrom[1]
    specimen = model.experiment.specimen.model_copy(
        update={"thickness_angstrom": (thickness,), "zone_axes": ((0, 0, 1),), "max_strain": 0.1}
    )
    config = model.experiment.model_copy(
        update={"materials": Materials(builtin=(), cif=(CRYSTAL,)), "specimen": specimen}
    )
    crystals = materials.select(config.materials)
    (entry,) = manifest.build(config, crystals)
    sample = simulate_entry(config, crystals[0], entry)
    record = records.decode(records.encode(sample, "float16"))
    (density,) = answers_to(answering(model)[0], [record])
    found = metrics(density, record.density, huber_delta=10.0)
    assert found["ssim"] > 0.9
    assert found["pearson"] > 0.95
