"""The public names of the package: available without Keras, and functions whatever was imported before."""

import json
import subprocess
import sys
from importlib.metadata import version

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


def test_build_makes_a_model() -> None:
    import fcdensenet

    config = fcdensenet.NetworkConfig(input_shape=(6, 16, 24), layers=(1,), growth=4)
    assert fcdensenet.build(config, seed=0).count_params() == fcdensenet.count(config).parameters
