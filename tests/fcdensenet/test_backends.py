"""The network needs no TensorFlow: on Keras' JAX backend it computes the same."""

import os
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

BLOCKED = "import sys; sys.modules['tensorflow'] = sys.modules['tensorflow.python'] = None\n"
MODULES = "import fcdensenet, fcdensenet.blocks, fcdensenet.count, fcdensenet.describe\n"
NETWORK = """
config = fcdensenet.NetworkConfig(
    input_shape=(6, 16, 24), layers=(1, 2, 1), growth=4, first_filters=5, kernel=3, data_format=sys.argv[1]
)
"""
COUNT = BLOCKED + MODULES + NETWORK + "print(fcdensenet.count(config).parameters, 'namsa' in sys.modules)"
FORWARD = (
    BLOCKED
    + MODULES
    + NETWORK
    + """
import numpy as np
model = fcdensenet.build(config, seed=3, recompute=True)
given = np.load(sys.argv[2])
model.set_weights([given[str(number)] for number in range(len(given) - 1)])
np.save(sys.argv[3], np.asarray(model(given["x"])))
"""
)


def test_everything_but_the_layers_is_imported_without_tensorflow():
    done = subprocess.run([sys.executable, "-c", COUNT, "channels_last"], capture_output=True, text=True, check=True)
    assert done.stdout.endswith(" False\n")
    assert int(done.stdout.split()[0]) > 1000


@pytest.mark.skipif(find_spec("jax") is None, reason="no JAX")
@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_jax_computes_what_tensorflow_does(data_format, tmp_path):
    pytest.importorskip("tensorflow")
    import fcdensenet

    shape = {"input_shape": (6, 16, 24), "layers": (1, 2, 1), "growth": 4, "first_filters": 5, "kernel": 3}
    model = fcdensenet.build(fcdensenet.NetworkConfig(**shape, data_format=data_format), seed=3)
    rng = np.random.default_rng(1)
    weights = [rng.random(weight.shape, np.float32) - (weight.ndim > 1) / 2 for weight in model.get_weights()]
    x = rng.random((2, *model.input_shape[1:]), np.float32)
    model.set_weights(weights)
    np.savez(tmp_path / "given.npz", x=x, **{str(number): weight for number, weight in enumerate(weights)})
    line = [sys.executable, "-c", FORWARD, data_format, tmp_path / "given.npz", tmp_path / "y.npy"]
    subprocess.run(line, env=os.environ | {"KERAS_BACKEND": "jax"}, check=True)
    expected = np.asarray(model(x))
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, atol=1e-5 * np.abs(expected).max())
