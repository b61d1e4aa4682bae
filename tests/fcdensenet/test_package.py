"""The package without TensorFlow: its public names, and the same numbers on Keras' JAX backend."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec

import numpy as np
import pytest

SCRIPT = """
import json, sys
{first}
import fcdensenet
import fcdensenet.build, fcdensenet.count
config = fcdensenet.NetworkConfig(input_shape=(6, 16, 24), layers=(1, 2, 1), growth=4)
facts = {{
    "build": type(fcdensenet.build).__name__,
    "convolutions": fcdensenet.count(config).convolutions,
    "version": fcdensenet.__version__,
    "frameworks": sorted({{"keras", "namsa", "tensorflow"}} & set(sys.modules)),
}}
print(json.dumps(facts))
"""


@pytest.mark.parametrize(
    "first", ["", "import fcdensenet.build", "from fcdensenet.count import count", "import fcdensenet.describe"]
)
def test_public_names_are_functions_whatever_was_imported_before(first: str) -> None:
    command = [sys.executable, "-c", SCRIPT.format(first=first)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {
        "build": "function",
        "convolutions": 8,
        "version": version("namsa"),
        "frameworks": [],
    }


FORMATS = ("channels_last", "channels_first")
SMALL = {"input_shape": (6, 16, 24), "layers": (1, 2, 1), "growth": 4, "first_filters": 5, "kernel": 3}
FORWARD = f"""
import sys
sys.modules['tensorflow'] = sys.modules['tensorflow.python'] = None
import fcdensenet, fcdensenet.blocks, fcdensenet.count, fcdensenet.describe
configs = [fcdensenet.NetworkConfig(**{SMALL}, data_format=data_format) for data_format in {FORMATS}]
import numpy as np
for config in configs:
    model = fcdensenet.build(config, seed=3, recompute=True)
    given = np.load(f"{{config.data_format}}.npz")
    model.set_weights([given[str(number)] for number in range(len(given) - 1)])
    np.save(f"{{config.data_format}}.npy", np.asarray(model(given["x"])))
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("jax") is None, reason="no JAX")
def test_jax_computes_what_tensorflow_does(tmp_path):
    pytest.importorskip("tensorflow")
    import fcdensenet

    rng, expected = np.random.default_rng(1), {}
    for data_format in FORMATS:
        model = fcdensenet.build(fcdensenet.NetworkConfig(**SMALL, data_format=data_format), seed=3)
        weights = [rng.random(weight.shape, np.float32) - (weight.ndim > 1) / 2 for weight in model.get_weights()]
        x = rng.random((2, *model.input_shape[1:]), np.float32)
        model.set_weights(weights)
        np.savez(tmp_path / data_format, x=x, **{str(number): weight for number, weight in enumerate(weights)})
        expected[data_format] = np.asarray(model(x))
    environment = os.environ | {"KERAS_BACKEND": "jax"}  # one process compiles initial weights of a shape once
    subprocess.run([sys.executable, "-c", FORWARD], env=environment, cwd=tmp_path, check=True)
    for data_format, wanted in expected.items():
        found = np.load(tmp_path / f"{data_format}.npy")
        np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())
