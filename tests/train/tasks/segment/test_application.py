"""`namsa-train segment`: maps of classes of scans of any size, with small networks of random
weights.
"""

import json

import h5py
import numpy as np
import pytest
from small_network import BEAM, OPTIONS, WINDOW, experiment, patterns, stored, write_run

from train.__main__ import main
from train.apply.models import load_model
from train.apply.weights import load_network
from train.experiment.experiment import Experiment
from train.tasks.segment.application import segment

DEEPLAB = {
    "kind": "deeplabv3plus",
    "input_shape": [16, *WINDOW],
    "units": [1, 1, 1, 1],
    "width": 2,
    "rates": [2],
    "filters": 4,
    "low_level_filters": 2,
    "skip_filters": [2, 2],
}


def segmenting(network=None):
    tree = experiment().model_dump(mode="json", exclude_unset=True)
    tree["network"] = network or tree["network"] | {"output_channels": 3}
    tree["training"] = tree["training"] | {"task": "segment"}
    return Experiment.model_validate(tree)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("segment"), segmenting())


def test_labels_and_probabilities_are_written_with_axes_and_a_picture(tmp_path, run):
    data = stored(tmp_path / "scan.h5", patterns((28, 36)))
    out = tmp_path / "labels.h5"
    assert (
        main(["segment", str(data), "--checkpoint", run, "--out", str(out), *OPTIONS.split()]) == 0
    )
    assert out.with_suffix(".png").stat().st_size > 10_000
    with h5py.File(out) as file:
        group = file["segmentation"]
        labels = group["labels/data"][()]
        probabilities = np.stack(
            [group[f"probability_{name}/data"][()] for name in ("matrix", "grain", "phase")]
        )
        np.testing.assert_allclose(group["labels/dim1"], 0.4 * np.arange(36))
        assert json.loads(group.attrs["provenance"])["classes"] == ["matrix", "grain", "phase"]
    assert (labels.dtype, labels.shape) == (np.uint8, (28, 36))
    np.testing.assert_allclose(probabilities.sum(axis=0), 1, atol=1e-6)
    np.testing.assert_array_equal(labels, probabilities.argmax(axis=0))
    assert probabilities.std(axis=(1, 2)).min() > 0


def test_a_window_gives_what_the_network_itself_gives(tmp_path):
    run = write_run(tmp_path, segmenting(DEEPLAB))
    values = patterns(WINDOW)
    result = segment(stored(tmp_path / "scan.h5", values), run, BEAM, beam_intensity=1.0)
    model = load_model(run)
    network = load_network(model, WINDOW, model.experiment.network)
    logits = np.asarray(network(np.sqrt(16 * values.reshape(1, *WINDOW, 16)), training=False))[
        0
    ].astype(float)
    expected = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(
        np.stack(list(result.probabilities.values()), axis=-1), expected, atol=1e-5
    )
    share = (result.labels == 1).mean()
    assert (
        f" positions, matrix {(result.labels == 0).mean():.0%}, grain {share:.0%}, phase "
        in repr(result)
    )
    page = result._repr_html_()
    assert f"<b>SegmentedScan</b> {repr(result).partition(': ')[2][:-1]}</p>" in page
    assert ">probability_grain</th>" in page
    assert 'src="data:image/png;base64,' in page


def test_scans_that_do_not_fit_are_named(tmp_path, run, capsys):
    small = stored(tmp_path / "small.h5", patterns((1, 9)))
    out = str(tmp_path / "o.h5")
    assert main(["segment", str(small), "--checkpoint", run, "--out", out, *OPTIONS.split()]) == 2
    assert (
        "the scan has 1 position of the network's step along one side, the network needs 2"
        in capsys.readouterr().err
    )
