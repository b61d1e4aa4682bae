"""Embedding of files with an autoencoder of random weights."""

import json
from dataclasses import replace

import h5py
import numpy as np
import pytest
import small_network
from small_network import stored, write_run

from train.__main__ import main
from train.apply.models import load_model
from train.apply.weights import build_loaded
from train.experiment.experiment import Experiment
from train.networks.cvae import decoder
from train.tasks.embed import application as module
from train.tasks.embed.application import embed

SCAN = (5, 7)
DETECTOR = (4, 6)
BEAM = replace(small_network.BEAM, scan_step_angstrom=(0.7, 1.3), centre_pixels=(1.5, 2.5))
OPTIONS = (
    "--energy-ev 200e3 --semiangle-mrad 20 --scan-step-angstrom 0.7 1.3 --pixel-mrad 8 "
    "--centre-pixels 1.5 2.5 --beam-intensity 1"
)


def experiment():
    tree = small_network.experiment().model_dump(mode="json", exclude_unset=True)
    tree["detector"]["shape"] = DETECTOR
    tree["network"] = {
        "kind": "cvae",
        "input_shape": (1, *DETECTOR),
        "filters": (3,),
        "hidden": 8,
        "latent": 3,
    }
    tree["training"] = {"task": "embed", "epochs": 1, "inputs": {"layout": "pattern"}}
    return Experiment.model_validate(tree)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("autoencoder"), experiment())


@pytest.fixture(scope="module")
def patterns():
    return np.random.default_rng(0).uniform(0.2, 1.8, (*SCAN, *DETECTOR)).astype(np.float32) / 24


@pytest.fixture(scope="module")
def scan(tmp_path_factory, patterns):
    return stored(tmp_path_factory.mktemp("scan") / "scan.h5", patterns)


def test_the_file_has_maps_clusters_and_decoded_patterns(
    tmp_path, run, scan, patterns, monkeypatch
):
    monkeypatch.setattr(module, "BAND_BYTES", 4 * 7 * 24 * 2)  # two rows at once, of five
    out = tmp_path / "new" / "out.h5"
    words = [
        "embed",
        str(scan),
        "--checkpoint",
        str(run),
        "--out",
        str(out),
        "--clusters",
        "3",
        *OPTIONS.split(),
    ]
    assert main(words) == 0
    assert out.with_suffix(".png").stat().st_size > 10_000
    model = build_loaded(load_model(run), experiment().network)
    x = np.sqrt(patterns.reshape(-1, *DETECTOR, 1) * 24)
    latents = np.asarray(model(x, training=False)[1])
    made = np.asarray(decoder(model)(latents))
    with h5py.File(out) as file:
        group = file["embedding"]
        provenance = json.loads(group.attrs["provenance"])
        for index in range(3):
            np.testing.assert_allclose(
                group[f"latent_{index + 1}/data"][()].ravel(),
                latents[:, index],
                rtol=1e-4,
                atol=1e-5,
            )
        np.testing.assert_allclose(group["latent_1/dim0"][()], 0.7 * np.arange(5))
        np.testing.assert_allclose(group["latent_1/dim1"][()], 1.3 * np.arange(7))
        labels = group["cluster/data"][()].ravel()
        centres = np.array(provenance["cluster_centres"])
        assert centres.shape == (3, 3)
        for index, centre in enumerate(centres):
            np.testing.assert_allclose(latents[labels == index].mean(axis=0), centre, atol=1e-3)
        error = np.sqrt(((x - made) ** 2).mean(axis=(1, 2, 3)))
        np.testing.assert_allclose(group["rmse/data"][()].ravel(), error, rtol=1e-4)
        decoded = group["decoded/data"]
        assert decoded.shape == (*SCAN, *DETECTOR)
        assert decoded.attrs["units"] == "fraction of the beam"
        expected = np.maximum(made, 0).reshape(*SCAN, *DETECTOR) ** 2 / 24
        np.testing.assert_allclose(decoded[()], expected, rtol=1e-3, atol=1e-6)
        np.testing.assert_allclose(group["decoded/dim2"][()], [-12, -4, 4, 12])
        np.testing.assert_allclose(group["decoded/dim3"][()], [-20, -12, -4, 4, 12, 20])


def test_patterns_that_are_all_the_same_have_one_cluster(run, tmp_path):
    result = embed(
        np.full((3, 4, *DETECTOR), 1 / 24, np.float32), run, BEAM, clusters=3, beam_intensity=1.0
    )
    assert len(result.centres) == 1
    assert not result.clusters.any()
    assert any("1 cluster instead of 3" in line for line in result.notes)
    assert repr(result) == "<EmbeddedScan: 3 latent numbers of 3 × 4 patterns, 1 cluster>"
    result.show(tmp_path / "same.png")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--clusters", "300"], "clusters is 300: give a number from 1 to 256"),
        (["--beam-intensity", "-1"], "beam_intensity is -1"),
        (["--semiangle-mrad", "30"], "does not fit the network: semiangle 30 mrad, trained for 20"),
        (["--pixel-mrad", "1"], "its detector reaches"),
        (["--out", "{data}"], "would replace"),
    ],
)
def test_what_does_not_fit_is_one_line(run, scan, tmp_path, capsys, options, message):
    words = [
        "embed",
        str(scan),
        "--checkpoint",
        str(run),
        "--out",
        str(tmp_path / "out.h5"),
        *OPTIONS.split(),
    ]
    assert main([*words, *(option.format(data=scan) for option in options)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert not (tmp_path / "out.h5").exists()
