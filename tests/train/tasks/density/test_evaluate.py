"""Evaluation with a known predictor: the scores, their groups, and the files for the report."""

import json
from types import SimpleNamespace

import ase
import numpy as np
import pytest
import thread_ranks
from synthetic import DETECTOR, sample
from synthetic import TARGET as SHAPE

from namsa.base.pixels import PixelGrid
from namsa.config.instrument import Target
from namsa.dataset.entry import Entry
from namsa.dataset.records import decode, encode
from train.experiment.inputs import Inputs
from train.experiment.sections import Loss
from train.measure import atomic_columns
from train.measure.metrics import NAMES, image_metrics
from train.ranks.single import SingleProcess
from train.tasks.density.evaluate import HeldOut, evaluate, predictor
from train.tasks.density.report.pictures import read_predictions
from train.tasks.density.report.summary import PICTURES, by_condition, choose, summarise

TRAINING = SimpleNamespace(
    batch_size=2,
    inputs=Inputs(density_scale_e_per_angstrom2=4.0),
    loss=Loss(huber_delta=0.5),
)
EXPERIMENT = SimpleNamespace(
    training=TRAINING, target=Target(), window_shapes=lambda: ((2, 2, *DETECTOR), SHAPE)
)
MEAN_IMAGE = np.full(SHAPE, 2.0)


def entry(material, thickness, split):
    name = f"{material}-001-{thickness:g}A"
    return Entry(name, material, material, "Fm-3m", (0, 0, 1), thickness, seed=0, split=split)


ENTRIES = [
    entry(m, t, s)
    for m, s in (("MgO", "test"), ("Si", "dev"), ("Cu", "test"))
    for t in (20.0, 40.0)
]


def record(of):
    """Of four probes; its split is that of the manifest at the time of simulation."""
    seed = len(of.id) + int(of.thickness_angstrom) + ord(of.material[0])
    beam = {"energy_ev": 200e3, "semiangle_mrad": 3.0}
    made = sample(
        seed, (2, 2), SHAPE, split="train", thickness_angstrom=of.thickness_angstrom + 0.5, **beam
    )
    return decode(encode(made, "float32"))


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
    return evaluate(
        predict, EXPERIMENT, held_out, run_dir, ranks=ranks or SingleProcess(), run={"ranks": 1}
    )


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
    assert {row["material"]: row["split"] for row in result["samples"]} == {
        "MgO": "test",
        "Si": "dev",
        "Cu": "test",
    }


def test_means_are_over_the_test_split_and_the_tables_over_their_groups(tmp_path):
    result = run(ENTRIES, tmp_path)
    test = []
    for row in result["samples"]:
        if row["split"] == "test":
            test.append(row)
    assert result["split"] == "test"
    assert result["mean"]["mae"] == pytest.approx(np.mean([row["mae"] for row in test]))
    assert result["mean_predictor"]["mae"] == pytest.approx(
        np.mean([row["mean_predictor"]["mae"] for row in test])
    )
    assert [(row["material"], row["split"], row["samples"]) for row in result["by_material"]] == [
        ("Cu", "test", 2),
        ("MgO", "test", 2),
        ("Si", "dev", 2),
    ]
    assert [
        (row["wanted_thickness_angstrom"], row["samples"]) for row in result["by_thickness"]
    ] == [(20, 2), (40, 2)]
    thin = []
    for row in test:
        if row["wanted_thickness_angstrom"] == 20:
            thin.append(row["ssim"])
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
    together = thread_ranks.run(
        [[0, 1]], lambda rank: run(ENTRIES[rank.rank() :: 2], folders[rank.rank()], rank)
    )
    assert together == [alone, alone]
    assert not list((tmp_path / "second").iterdir())
    ours, _ = read_predictions(tmp_path / "first" / "predictions.npz")
    theirs, _ = read_predictions(tmp_path / "alone" / "predictions.npz")
    assert [picture.facts["id"] for picture in ours] == [picture.facts["id"] for picture in theirs]


def test_predictions_hold_arrays_and_facts_without_pickles(tmp_path):
    run(ENTRIES, tmp_path)
    pictures, mean_image = read_predictions(tmp_path / "predictions.npz")
    assert np.array_equal(mean_image, MEAN_IMAGE)
    assert {picture.facts["id"] for picture in pictures} == {
        e.id for e in ENTRIES if e.split == "test"
    }
    for picture in pictures:
        stored = Dataset().read(picture.facts["id"])
        assert np.array_equal(picture.truth, stored.density)
        assert np.array_equal(picture.prediction, stored.density / 2)
        assert np.allclose(picture.position_averaged, stored.cbed.mean(axis=0))
        probes = [2 * (y > 0) + (x > 0) for y, x in picture.facts["probes_angstrom"]]
        assert np.array_equal(picture.patterns, stored.cbed[probes])
        assert picture.facts["density_frame"] == ([0.75, 0.75], [0.0, 0.0])
        assert picture.facts["r_factor"] == pytest.approx(0.5)
    assert not list(tmp_path.glob(".*"))


@pytest.mark.slow
@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_predictor_undoes_the_normalisation_and_drops_nothing_out(data_format):
    import keras

    stored = record(ENTRIES[0])
    axis = 3 if data_format == "channels_last" else 1
    x = keras.Input((*DETECTOR, 4) if axis == 3 else (4, *DETECTOR))
    y = keras.layers.Lambda(lambda x: keras.ops.mean(x, axis=axis, keepdims=True))(
        keras.layers.Dropout(0.9)(x)
    )
    inputs = Inputs(layout="detector", power=1.0, density_scale_e_per_angstrom2=3.0)
    densities = predictor(keras.Model(x, y), inputs, data_format)([stored, stored])
    assert densities.shape == (2, *DETECTOR)
    assert np.allclose(densities, 3 * stored.patterns().mean(axis=0) * np.prod(DETECTOR), rtol=1e-5)


def test_columns_are_measured_where_the_atoms_are_known(tmp_path):
    def atoms_of(of):
        """One column at a maximum of the density, for all materials but one."""
        if of.material == "Si":
            return None
        places, _ = atomic_columns.local_maxima(
            record(of).density, PixelGrid((0.75, 0.75), (0.0, 0.0))
        )
        y, x = min(places, key=lambda place: np.hypot(*(place - (3, 4.5))))
        return ase.Atoms("Cu", positions=[(x, y, 0)], cell=(9, 6, 5), pbc=True)

    result = run(ENTRIES, tmp_path, atoms_of=atoms_of)
    for row in result["samples"]:
        known = row["material"] != "Si"
        names = set(atomic_columns.NAMES)
        assert (names <= row.keys(), names <= row["mean_predictor"].keys()) == (known, known)
        assert (
            not known or row["columns_found"] == 1
        )  # half the truth has its maximum where the truth has
        assert not known or row["mean_predictor"]["columns_found"] == 0
    assert result["mean"]["columns_found"] == 1
    assert result["mean_predictor"]["columns_found"] == 0
    assert set(result["mean"]) == {*NAMES, *atomic_columns.NAMES}
    assert set(run(ENTRIES, tmp_path)["mean"]) == set(NAMES)


# ---- Means over groups, and the samples that are shown
# --------------------------------------------------------------


def scored(index, material, ssim, split="test", kind="crystal"):
    return {
        "id": f"{index:03}",
        "material": material,
        "ssim": ssim,
        "split": split,
        "conditions": {"kind": kind},
    }


def test_pictures_are_the_worst_the_median_the_best_and_of_many_kinds_and_materials():
    samples = [scored(n, "common", n / 100) for n in range(60)]
    samples += [scored(60 + n, f"rare-{n}", 0.7 + n / 100) for n in range(4)]
    samples += [scored(70 + n, "common", 0.8 + n / 100, kind="twin") for n in range(3)]
    samples += [scored(90, "dev", 0.0, "dev"), scored(91, "flat", None)]
    chosen = choose(samples)
    assert len(chosen) == PICTURES
    assert chosen[0] == "091"  # an undefined SSIM is worst
    assert chosen[1] == "000"
    assert "060" in chosen  # the third material that the worst are of
    assert "033" in chosen  # rank 34 of 0 ... 67
    assert chosen[-1] == "072"  # the best
    assert {"061", "062", "063"} <= set(chosen)
    assert "090" not in chosen
    ssims = {row["id"]: row["ssim"] or 0 for row in samples}
    assert sorted(chosen, key=lambda id: (ssims[id], id != "091")) == chosen


def test_the_worst_of_each_kind_is_shown():
    samples = [scored(n, "common", n / 100) for n in range(60)]
    samples += [scored(60 + n, "common", 0.4 + n / 1000, kind=f"kind-{n // 4}") for n in range(20)]
    assert {"060", "064", "068", "072", "076"} <= set(choose(samples))


def test_few_samples_are_all_chosen_once():
    samples = [scored(n, "one", n / 10) for n in range(5)]
    assert choose(samples) == ["000", "001", "002", "003", "004"]
    assert choose([]) == []


def test_scores_are_told_by_kind_and_by_ranges_of_thickness_and_defocus():
    rows = []
    for n in range(30):
        conditions = {
            "kind": "twin" if n % 3 else "crystal",
            "thickness_angstrom": 20.0,
            "defocus_angstrom": n - 10.0,
        }
        scores = dict.fromkeys(NAMES, n / 30)
        facts = {
            "id": f"{n}",
            "split": "test",
            "wanted_thickness_angstrom": 20.0 + n,
            "conditions": conditions,
        }
        rows.append(facts | scores | {"mean_predictor": dict.fromkeys(NAMES, 0.0)})
    ignored = rows[0] | {"split": "dev"}
    groups = by_condition({"split": "test", "samples": [ignored, *rows]})
    assert [(row["by"], row["group"], row["samples"]) for row in groups] == [
        ("kind", "crystal", 10),
        ("kind", "twin", 20),
        ("defocus_angstrom", "-10 to -1", 10),
        ("defocus_angstrom", "0 to 9", 10),
        ("defocus_angstrom", "10 to 19", 10),
    ]  # all have one thickness
    assert groups[2]["ssim"] == pytest.approx(4.5 / 30)
    assert [row["least_ssim"] for row in groups[2:]] == pytest.approx([0, 1 / 3, 2 / 3])
    earlier = []
    for row in rows:
        earlier.append({name: value for name, value in row.items() if name != "conditions"})
    assert [row["group"] for row in by_condition({"split": "test", "samples": earlier})] == [
        "20 to 29",
        "30 to 39",
        "40 to 49",
    ]


def test_means_leave_undefined_numbers_out():
    rows = []
    for value in (2.0, None):
        rows.append(
            {
                "material": "A",
                "formula": "A",
                "space_group": "P1",
                "split": "test",
                "wanted_thickness_angstrom": 20.0,
            }
            | dict.fromkeys(NAMES, value)
            | {"mean_predictor": dict.fromkeys(NAMES, 1.0)}
        )
    assert summarise(rows)["mean"] == dict.fromkeys(NAMES, 2.0)
    assert summarise(rows[1:])["mean"] == dict.fromkeys(NAMES)
