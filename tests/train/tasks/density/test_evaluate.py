"""Evaluation with a known predictor: the scores, their groups, and the files for the report."""

import json
from types import SimpleNamespace

import ase
import numpy as np
import pytest
import thread_ranks

from namsa.config.instrument import Target
from namsa.dataset.entry import Entry
from namsa.dataset.records import decode, encode
from namsa.pixels import PixelGrid
from namsa.sample import Sample
from train.experiment.inputs import Inputs
from train.experiment.sections import Loss
from train.measure import atomic_columns
from train.measure.metrics import NAMES, image_metrics
from train.ranks.protocol import Alone
from train.tasks.density.evaluate import HeldOut, evaluate, predictor
from train.tasks.density.pictures import read_predictions

SHAPE, DETECTOR, PROBES = (8, 12), (6, 10), 4
TRAINING = SimpleNamespace(
    batch_size=2,
    inputs=Inputs(density_scale_e_per_angstrom2=4.0),
    loss=Loss(huber_delta=0.5),
)
EXPERIMENT = SimpleNamespace(training=TRAINING, target=Target(), window_shapes=lambda: ((2, 2, *DETECTOR), SHAPE))
MEAN_IMAGE = np.full(SHAPE, 2.0)


def entry(material, thickness, split):
    name = f"{material}-001-{thickness:g}A"
    return Entry(name, material, material, "Fm-3m", (0, 0, 1), thickness, seed=0, split=split)


ENTRIES = [entry(m, t, s) for m, s in (("MgO", "test"), ("Si", "dev"), ("Cu", "test")) for t in (20.0, 40.0)]


def record(of):
    rng = np.random.default_rng(len(of.id) + int(of.thickness_angstrom) + ord(of.material[0]))
    provenance = {
        "split": "train",  # of the manifest at the time of simulation
        "thickness_angstrom": of.thickness_angstrom + 0.5,
        "energy_ev": 200e3,
        "semiangle_mrad": 3.0,
        "extent_angstrom": [8.0, 12.0],
        "positions_angstrom": [[float(n), 0.0] for n in range(PROBES)],
        "scan_shape": [2, 2],
        "detector_sampling_mrad": [1.0, 1.0],
        "detector_origin_mrad": [-2.5, -4.5],
        "grid_shape": list(SHAPE),
        "density_sampling_angstrom": [1.0, 1.0],
        "density_origin_angstrom": [0.0, 0.0],
    }
    cbed, density = rng.random((PROBES, *DETECTOR)).astype("f4"), rng.random(SHAPE).astype("f4") * 5
    return decode(encode(Sample(cbed, density, density, provenance), "float32"))


class Dataset:
    def read(self, sample_id):
        return record(next(e for e in ENTRIES if e.id == sample_id))


def predict(records):
    """Half of the truth, in batches no larger than configured."""
    assert 1 <= len(records) <= TRAINING.batch_size
    return np.stack([r.density / 2 for r in records])


def run(entries, run_dir, ranks=None, atoms_of=None):
    run_dir.mkdir(exist_ok=True)
    held_out = HeldOut(Dataset(), entries, MEAN_IMAGE, atoms_of)
    return evaluate(predict, EXPERIMENT, held_out, run_dir, ranks=ranks or Alone(), run={"ranks": 1})


def test_numbers_are_those_of_the_prediction_and_of_the_mean_image(tmp_path):
    result = run(ENTRIES, tmp_path)
    assert result == json.loads((tmp_path / "evaluation.json").read_text())
    assert [row["id"] for row in result["samples"]] == sorted(e.id for e in ENTRIES)
    for row in result["samples"]:
        truth = Dataset().read(row["id"]).density
        measure = {"huber_delta": 0.5, "density_scale": 4.0}
        assert {name: row[name] for name in NAMES} == image_metrics(truth / 2, truth, **measure)
        assert row["mean_predictor"] == image_metrics(MEAN_IMAGE, truth, **measure)
        assert row["r_factor"] == pytest.approx(0.5)
        assert row["thickness_angstrom"] == row["wanted_thickness_angstrom"] + 0.5
    assert {row["material"]: row["split"] for row in result["samples"]} == {"MgO": "test", "Si": "dev", "Cu": "test"}


def test_means_are_over_the_test_split_and_the_tables_over_their_groups(tmp_path):
    result = run(ENTRIES, tmp_path)
    test = [row for row in result["samples"] if row["split"] == "test"]
    assert result["split"] == "test"
    assert result["mean"]["mae"] == pytest.approx(np.mean([row["mae"] for row in test]))
    assert result["mean_predictor"]["mae"] == pytest.approx(np.mean([row["mean_predictor"]["mae"] for row in test]))
    assert [(row["material"], row["split"], row["samples"]) for row in result["by_material"]] == [
        ("Cu", "test", 2),
        ("MgO", "test", 2),
        ("Si", "dev", 2),
    ]
    assert [(row["wanted_thickness_angstrom"], row["samples"]) for row in result["by_thickness"]] == [(20, 2), (40, 2)]
    thin = [row["ssim"] for row in test if row["wanted_thickness_angstrom"] == 20]
    assert result["by_thickness"][0]["ssim"] == pytest.approx(np.mean(thin))
    assert [row["split"] for row in result["by_split"]] == ["dev", "test"]


def test_dev_speaks_where_there_is_no_test_sample_and_null_where_there_is_none(tmp_path):
    result = run([e for e in ENTRIES if e.split == "dev"], tmp_path)
    assert result["split"] == "dev"
    assert result["mean"]["r_factor"] == pytest.approx(0.5)
    nothing = run([], tmp_path)
    assert nothing["split"] is None
    assert nothing["mean"] == dict.fromkeys(NAMES)
    assert read_predictions(tmp_path / "predictions.npz")[0] == []


def test_two_ranks_find_what_one_finds_and_only_the_first_writes(tmp_path):
    alone = run(ENTRIES, tmp_path / "alone")
    folders = tmp_path / "first", tmp_path / "second"
    together = thread_ranks.run([[0, 1]], lambda rank: run(ENTRIES[rank.rank() :: 2], folders[rank.rank()], rank))
    assert together == [alone, alone]
    assert not list((tmp_path / "second").iterdir())
    ours, _ = read_predictions(tmp_path / "first" / "predictions.npz")
    theirs, _ = read_predictions(tmp_path / "alone" / "predictions.npz")
    assert [picture.facts["id"] for picture in ours] == [picture.facts["id"] for picture in theirs]


def test_predictions_hold_arrays_and_facts_without_pickles(tmp_path):
    run(ENTRIES, tmp_path)
    pictures, mean_image = read_predictions(tmp_path / "predictions.npz")
    assert np.array_equal(mean_image, MEAN_IMAGE)
    assert {picture.facts["id"] for picture in pictures} == {e.id for e in ENTRIES if e.split == "test"}
    for picture in pictures:
        stored = Dataset().read(picture.facts["id"])
        assert np.array_equal(picture.truth, stored.density)
        assert np.array_equal(picture.prediction, stored.density / 2)
        assert np.allclose(picture.position_averaged, stored.cbed.mean(axis=0))
        probes = [int(y) for y, _ in picture.facts["probes_angstrom"]]
        assert np.array_equal(picture.patterns, stored.cbed[probes])
        assert picture.facts["density_frame"] == ([1.0, 1.0], [0.0, 0.0])
        assert picture.facts["r_factor"] == pytest.approx(0.5)
    assert not list(tmp_path.glob(".*"))


@pytest.mark.slow
@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_predictor_undoes_the_normalisation_and_drops_nothing_out(data_format):
    import keras

    stored = record(ENTRIES[0])
    axis = 3 if data_format == "channels_last" else 1
    x = keras.Input((*DETECTOR, PROBES) if axis == 3 else (PROBES, *DETECTOR))
    y = keras.layers.Lambda(lambda x: keras.ops.mean(x, axis=axis, keepdims=True))(keras.layers.Dropout(0.9)(x))
    inputs = Inputs(layout="detector", power=1.0, density_scale_e_per_angstrom2=3.0)
    densities = predictor(keras.Model(x, y), inputs, data_format)([stored, stored])
    assert densities.shape == (2, *DETECTOR)
    assert np.allclose(densities, 3 * stored.patterns().mean(axis=0) * np.prod(DETECTOR), rtol=1e-5)


def test_columns_are_measured_where_the_atoms_are_known(tmp_path):
    def atoms_of(of):
        """One column at a maximum of the density, for all materials but one."""
        if of.material == "Si":
            return None
        places, _ = atomic_columns.local_maxima(record(of).density, PixelGrid((1.0, 1.0), (0.0, 0.0)))
        y, x = min(places, key=lambda place: np.hypot(*(place - (4, 6))))
        return ase.Atoms("Cu", positions=[(x, y, 0)], cell=(12, 8, 5), pbc=True)

    result = run(ENTRIES, tmp_path, atoms_of=atoms_of)
    for row in result["samples"]:
        known = row["material"] != "Si"
        names = set(atomic_columns.NAMES)
        assert (names <= row.keys(), names <= row["mean_predictor"].keys()) == (known, known)
        assert not known or row["columns_found"] == 1  # half the truth has its maximum where the truth has
        assert not known or row["mean_predictor"]["columns_found"] == 0
    assert result["mean"]["columns_found"] == 1
    assert result["mean_predictor"]["columns_found"] == 0
    assert set(result["mean"]) == {*NAMES, *atomic_columns.NAMES}
    assert set(run(ENTRIES, tmp_path)["mean"]) == set(NAMES)
