"""The package without TensorFlow: its public names, and `describe`, by `python -m fcdensenet` and
by `train`.
"""

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from paths import CONFIGS

from fcdensenet.__main__ import main
from train.__main__ import main as train

PAPER = CONFIGS / "paper.yaml"
NEIGHBOURS = CONFIGS / "neighbours"
NETWORK = "network:\n  input_shape: [6, 16, 24]\n  layers: [1, 2, 1]\n  growth: 4\n"


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    path = tmp_path / "experiment.yaml"
    path.write_text("name: unread\nunheard_of: 1\n" + NETWORK)
    return path


@pytest.mark.parametrize("path", sorted(NEIGHBOURS.glob("*.yaml")), ids=lambda path: path.stem)
def test_json_sums_its_layers(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(["describe", str(path), "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    layers = described["layers"]
    assert (
        described["parameters"]
        == sum(layer["parameters"] for layer in layers)
        >= described["trainable"]
    )
    assert described["conv_weights"] == sum(layer["weights"] for layer in layers) > 0
    assert described["forward_flop"] == sum(layer["forward_flop"] for layer in layers)
    assert described["step_flop"] == 3 * described["forward_flop"]
    assert described["memory_bytes"] > described["activation_bytes"]["float32"]


def test_paper_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", str(PAPER), "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert (
        described["convolutions"]
        == sum(layer["weights"] > 0 for layer in described["layers"])
        == 25
    )
    assert described["conv_weights"] == 220_398_848
    assert (
        described["forward_flop"] == 17_169_802_854_400
    )  # three times as many in a step: 5.151e13
    assert train(["describe", str(PAPER), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == described


def test_table_shows_layers_and_sums(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", str(experiment)]) == 0
    shown = capsys.readouterr().out
    assert "td1_conv" in shown
    assert "8 convolutions" in shown
    assert "…" not in shown  # nothing is cut off at 80 columns
    assert (
        main(
            [
                "describe",
                str(NEIGHBOURS / "cosmoflow.yaml"),
                "--set",
                "network.input_shape=[1, 8, 8, 8]",
            ]
        )
        == 0
    )
    shown = capsys.readouterr().out
    assert "conv 3×3×3" in shown
    assert "weights of 7 convolutions" in shown
    assert "…" not in shown


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: x\n", "no section 'network'"),
        ("[1, 2]\n", "must hold named sections, and holds [1, 2]"),
        (
            "network: {input_shape: [1, 8, 8], growht: 3}\n",
            "unknown key growht; did you mean growth?",
        ),
        ("network: {input_shape: [1, 8, 9]}\n", "multiples of 8"),
        ("network: {kind: resnet, input_shape: [1, 8, 8]}\n", "network.kind is resnet"),
        ("network: {growth: 3}\n", "input_shape: a value is needed"),
        ("network: {input_shape: [1, 8, 8]\n", "not valid YAML"),
    ],
)
def test_bad_configuration_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    assert main(["describe", str(path)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert len(error) < 600


@pytest.mark.parametrize("command", [[], ["describe"]])
def test_help_shows_examples(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0
    assert "  python -m fcdensenet describe configs/paper.yaml" in capsys.readouterr().out


@pytest.mark.parametrize("command", [["describe"], ["weigh", "x.yaml"]])
def test_a_wrong_command_line_is_one_line(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(command)
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1


def test_a_file_that_is_not_there_is_one_line_whatever_its_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["describe", "no\nfile\x1b.yaml"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "no file\\x1b.yaml" in line
    assert "No such file" in line


def test_describing_imports_no_framework(experiment: Path) -> None:
    script = (
        "import sys; from fcdensenet.__main__ import main; main(sys.argv[1:]); "
        "print(sorted({'keras', 'tensorflow'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "describe", str(experiment)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"


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
    "first",
    [
        "",
        "import fcdensenet.build",
        "from fcdensenet.count import count",
        "import fcdensenet.describe",
    ],
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
