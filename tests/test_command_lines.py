"""Command lines: help that loads nothing heavy, examples that parse, one line per fault, exit
codes, completion.
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

import pytest
from paths import ROOT

from namsa.base import installation
from namsa.base.errors import InputError, WorkError
from namsa.base.registry import function_named
from namsa.cli import command_line, command_parser, parser
from namsa.cli.command_line import exit_code
from namsa.cli.command_parser import CommandParser
from train.__main__ import main as train
from train.commands import parser as train_parser

PARSERS = {"namsa": parser.build_parser, "namsa-train": train_parser.build_parser}
COMMANDS = [(program, name) for program, build in PARSERS.items() for name in build().commands]


@pytest.mark.parametrize("program", PARSERS)
def test_parsers_are_built_without_heavy_libraries(program):
    module = PARSERS[program].__module__
    heavy = [
        "tensorflow",
        "keras",
        "numpy",
        "scipy",
        "matplotlib",
        "pymatgen",
        "ase",
        "pydantic",
        "rich",
    ]
    code = (
        f"import sys, {module} as p; p.build_parser().format_help(); print(sorted({set(heavy)!r} "
        "& set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(("program", "name"), COMMANDS)
def test_every_command_has_a_description_a_function_and_examples_that_parse(program, name):
    build = PARSERS[program]
    command = build().commands[name]
    assert command.description.endswith(".")
    assert callable(function_named(command.get_default("run")))
    assert command.examples
    for example in command.examples:
        _, separator, words = example.partition(f"{program} ")
        assert separator, example
        options = build().parse_args(shlex.split(words.partition(" -- ")[0]))
        assert options.run == command.get_default("run")
        config = getattr(options, "config", None)
        made = config and ROOT / "namsa/cli/starter" / config.name  # by `namsa init first-hour`
        assert (
            config is None or config.parent == Path() or (ROOT / config).exists() or made.exists()
        )


@pytest.mark.parametrize("program", PARSERS)
def test_help_fits_a_terminal_of_80_columns(program, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    build = PARSERS[program]()
    for command in (build, *build.commands.values()):
        text = command.format_help()
        assert [line for line in text.splitlines() if len(line) > 80] == []


def test_an_example_that_is_broken_is_the_same_command():
    command = "  namsa-train own.yaml --supervise --ranks 8 -- horovodrun -np {ranks} --verbose"
    lines = command_parser.wrapped_command(command, 40)
    assert len(lines) > 2
    assert shlex.split("\n".join(lines).replace("\\\n", "")) == shlex.split(command)


@pytest.mark.parametrize(("program", "main"), list(zip(PARSERS, (parser.main, train), strict=True)))
@pytest.mark.parametrize("words", [[], ["--help"]])
def test_help_lists_all_commands_with_examples_and_is_what_a_program_alone_prints(
    program, main, words, capsys
):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0
    text = capsys.readouterr().out
    for name in PARSERS[program]().commands:
        assert f"\n    {name}" in text
    assert "examples:\n" in text
    assert "register-python-argcomplete" in text


@pytest.mark.parametrize(
    ("main", "words", "fault"),
    [
        (parser.main, ["show"], "the following arguments are required: DATA"),
        (parser.main, ["view", "scan.h5"], "no command view; did you mean show?"),
        (parser.main, ["simulte", "a.yaml"], "no command simulte; did you mean simulate?"),
        (parser.main, ["nonsense"], "no command nonsense"),
        (
            parser.main,
            ["reconstuct", "a.h5"],
            "no command reconstuct; did you mean `namsa-train reconstruct`?",
        ),
        (parser.main, ["verify", "data", "un\nknown"], "unrecognized arguments: un known"),
        (
            parser.main,
            ["simulate", "a.yaml", "--crystl=a.cif"],
            "unrecognized arguments: --crystl=a.cif; did you mean --crystal?",
        ),
        (
            train,
            ["a.yaml", "--dryrun"],
            "unrecognized arguments: --dryrun; did you mean --dry-run?",
        ),
        (
            train,
            ["reconstuct", "a.h5"],
            "no file and no command reconstuct; did you mean reconstruct?",
        ),
        (
            parser.main,
            ["reconstruct", "a.h5"],
            "no command reconstruct; did you mean `namsa-train reconstruct`?",
        ),
        (
            train,
            ["inspect", "a.h5"],
            "no file and no command inspect; did you mean `namsa inspect`?",
        ),
    ],
)
def test_a_fault_of_usage_is_one_line_and_exit_code_2(main, words, fault, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {fault}; see `")
    assert line.endswith(" --help`")


def test_commands_of_networks_that_namsa_names_exist():
    assert {*parser.OF_NETWORKS} < {*train_parser.build_parser().commands}
    assert {*train_parser.OF_PATTERNS} < {*parser.build_parser().commands}


@pytest.mark.parametrize("main", [parser.main, train])
def test_version(main, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.split() == ["namsa", metadata.version("namsa")]


def test_a_configuration_in_place_of_a_command_means_the_job():
    parse = train_parser.build_parser().parse_args
    assert parse(["own.yaml", "--dry-run"]) == parse(["run", "own.yaml", "--dry-run"])
    assert parse(["--dry-run", "own.yaml"]).config == Path("own.yaml")
    assert parse(["report", "runs/own"]).run == "train.commands.reports:report"


def test_options_of_the_supervisor_need_it(capsys):
    assert train(["configs/quickstart.yaml", "--", "horovodrun", "-np", "2"]) == 2
    assert train(["configs/quickstart.yaml", "--ranks", "2"]) == 2
    assert [line.partition(" need ")[2] for line in capsys.readouterr().err.splitlines()] == [
        "--supervise; --json needs --dry-run"
    ] * 2


def unforeseen():
    return [].pop()


def test_an_unforeseen_error_is_one_line_and_its_traceback_is_in_a_file(capsys, monkeypatch):
    monkeypatch.delenv(command_line.DEBUG, raising=False)
    monkeypatch.setattr(sys, "argv", ["namsa", "info", "my data"])
    assert exit_code(unforeseen) == 1
    (line,) = capsys.readouterr().err.splitlines()
    start, _, rest = line.partition("; this is a fault of the program: the traceback is in ")
    assert start == "error: unexpected IndexError: pop from empty list"
    path = Path(rest.partition(";")[0])
    assert path.parent == Path(tempfile.gettempdir())
    text = path.read_text()
    assert text.startswith(
        f"command: {sys.executable} namsa info 'my data'\nfolder: {Path.cwd()}\nsystem: "
    )
    assert f"namsa {metadata.version('namsa')}, numpy {metadata.version('numpy')}" in text
    assert "return [].pop()" in text
    assert text.endswith("IndexError: pop from empty list\n")


def test_an_unforeseen_error_is_printed_for_debugging(capsys, monkeypatch):
    monkeypatch.setenv(command_line.DEBUG, "1")
    assert exit_code(unforeseen) == 1
    first, *_, cause, last = capsys.readouterr().err.splitlines()
    assert first == "Traceback (most recent call last):"
    assert cause == "IndexError: pop from empty list"
    assert last == f"error: unexpected {cause}"


def test_an_unforeseen_error_is_one_line_without_a_place_for_its_traceback(
    capsys, monkeypatch, tmp_path
):
    monkeypatch.delenv(command_line.DEBUG, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    assert exit_code(unforeseen) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(
        "its traceback could not be written (No such file or directory); NAMSA_DEBUG=1 prints it"
    )


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (
            RecursionError("maximum recursion depth exceeded"),
            "unexpected RecursionError: maximum recursion depth",
        ),
        (ValueError("first\nsecond " + "x" * 10000), "unexpected ValueError: first second x"),
        (KeyError(), "unexpected KeyError: without a message"),
        (MemoryError(), "not enough memory: use a smaller grid"),
        (
            MemoryError("Unable to allocate 7 GiB"),
            "not enough memory (Unable to allocate 7 GiB): use a smaller grid",
        ),
        (
            ModuleNotFoundError("No module named 'keras'", name="keras.ops"),
            f"keras is not installed: {installation.command('keras')}",
        ),
        (
            ModuleNotFoundError("No module named 'x'", name="x"),
            "unexpected ModuleNotFoundError: No module named 'x'",
        ),
        (InputError("no file 'a\nb\x1b[31m'"), r"no file 'a b\x1b[31m'"),
        (
            FileNotFoundError(2, "No such file or directory", "a.h5"),
            "a.h5: No such file or directory",
        ),
        (WorkError("no space"), "no space"),
    ],
)
def test_every_error_is_one_line_of_bounded_length(fault, expected, capsys, monkeypatch):
    monkeypatch.delenv(command_line.DEBUG, raising=False)

    def work():
        raise fault

    assert exit_code(work) == (2 if isinstance(fault, InputError) else 1)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {expected}")
    assert len(line) < 500


@pytest.mark.parametrize("text", ["interrupted", "stopped after step 3"])
def test_exit_codes_of_work_that_ends_or_is_interrupted(text, capsys):
    assert exit_code(lambda: None) == 0
    assert exit_code(lambda: 1) == 1
    fault = KeyboardInterrupt(text) if text != "interrupted" else KeyboardInterrupt()
    assert exit_code(lambda: (_ for _ in ()).throw(fault)) == 130
    assert capsys.readouterr().err == f"{text}\n"


def test_a_reader_that_leaves_is_no_fault():
    """As `namsa info DIR | head`; a pipe that breaks elsewhere is one."""
    code = (
        "import sys; from namsa.cli.command_line import exit_code\nsys.exit(exit_code(lambda: "
        "print('x' * 10**6)))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0
    other = code.replace(
        "print('x' * 10**6)", "(_ for _ in ()).throw(BrokenPipeError(32, 'Broken pipe'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", other], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (1, "error: the system: Broken pipe\n")


def test_numbers_of_1_or_more():
    assert command_parser.positive("12") == 12
    for text in ("0", "-1", "1.5", "many"):
        with pytest.raises(argparse.ArgumentTypeError, match="number of 1 or more"):
            command_parser.positive(text)


def completions(program, line):
    """Completions that the shell would offer for `line`, as argcomplete's protocol has it: on file
    descriptor 8.
    """
    if program == "namsa":
        words = [sys.executable, "-m", "namsa"]
    else:
        words = [sys.executable, "-m", "train"]
    start = str(len(program.split()))
    asked = {
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
        "_ARGCOMPLETE": start,
    }
    command = f"exec 8>&1 9>&2 1>/dev/null; exec {shlex.join(words)}"
    done = subprocess.run(
        ["bash", "-c", command],
        env=os.environ | asked,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    return done.stdout.replace(" ", "").split("\v")


@pytest.mark.parametrize(
    ("program", "line", "expected"),
    [
        ("namsa", "namsa sim", ["simulate"]),
        ("namsa", "namsa show --h", ["--help", "--html"]),
        ("namsa-train", "namsa-train eval", ["evaluate"]),
        ("namsa-train", "namsa-train README", ["README.md"]),
        ("namsa-train", "namsa-train own.yaml --run", ["--run-dir"]),
    ],
)
def test_the_shell_completes_commands_options_and_files(program, line, expected):
    assert completions(program, line) == expected


def test_a_parser_without_examples_has_no_epilog():
    assert CommandParser(prog="p").epilog is None
