"""Jobs whose first weights are those of another network."""

import numpy as np
import pytest

from namsa.errors import InputError
from train.main import train
from train.optimization import checkpoint


@pytest.mark.usefixtures("no_report")
@pytest.mark.slow
def test_a_job_starts_from_the_weights_of_another_as_far_as_they_fit(config, undisturbed, tmp_path, capsys):
    short = [f"training.start_from={undisturbed}", "training.epochs=1", "training.optimizer.learning_rate=1e-12"]
    train(config, short, tmp_path / "same")
    assert "variables start from" in (said := capsys.readouterr().out)
    assert "at random" not in said
    last = (max((run / "checkpoints").glob("step-*.npz")) for run in (undisturbed, tmp_path / "same"))
    given, found = (
        dict(zip(header["variables"], arrays, strict=True)) for header, arrays in map(checkpoint.read, last)
    )
    kernels = [name for name in given if name.endswith("kernel")]
    assert kernels
    for name in kernels:
        np.testing.assert_allclose(found[name], given[name], rtol=1e-4, atol=1e-8)

    train(config, [*short, "network.growth=3"], tmp_path / "other")
    assert "at random" in capsys.readouterr().out
    with pytest.raises(InputError, match="no convolution of .* fits this network: set network.layers"):
        train(config, [*short, "network.growth=3", "network.first_filters=9"], tmp_path / "none")
    with pytest.raises(InputError, match="neither a run directory"):
        train(config, ["training.start_from=nowhere"], tmp_path / "nowhere")
