"""Options of several values leave the command's own arguments to it."""

from pathlib import Path

import pytest

from namsa.cli.parser import build_parser
from train.commands.parser import build_parser as build_train_parser

SCAN_COMMANDS = [
    (build_parser, ["inspect"]),
    (build_parser, ["show"]),
    (build_parser, ["export", "--out", "OUT"]),
    (build_train_parser, ["reconstruct", "--checkpoint", "NAME", "--out", "OUT.h5"]),
    (build_train_parser, ["live", "--checkpoint", "NAME", "--out", "OUT.h5"]),
    (build_train_parser, ["classify", "--checkpoint", "NAME", "--out", "OUT.h5"]),
]


@pytest.mark.parametrize(("build", "command"), SCAN_COMMANDS)
@pytest.mark.parametrize("values", [["0.066"], ["0.066", "0.067"]])
def test_an_option_of_one_or_two_numbers_may_stand_before_the_data(build, command, values):
    options = build().parse_args([*command, "--pixel-mrad", *values, "scan.mib"])
    assert options.pixel_mrad == [float(value) for value in values]
    named = list(vars(options).values())
    assert Path("scan.mib") in named or [Path("scan.mib")] in named


def test_several_scans_may_follow_an_option_of_numbers():
    words = ["inspect", "--pixel-mrad", "0.066", "a.mib", "b.mib", "--out", "calibrations"]
    options = build_parser().parse_args(words)
    assert options.pixel_mrad == [0.066]
    assert options.data == [Path("a.mib"), Path("b.mib")]


def test_frames_to_skip_leave_the_data_alone():
    options = build_parser().parse_args(["info", "--skip-frames", "3", "scan.mib", "--json"])
    assert options.skip_frames == [3]
    assert options.path == Path("scan.mib")


def test_a_list_of_files_leaves_the_last_one_to_the_command():
    words = ["simulate", "--charge-density", "AECCAR0", "AECCAR2", "a.yaml", "--out", "b.h5"]
    options = build_parser().parse_args(words)
    assert options.charge_density == [Path("AECCAR0"), Path("AECCAR2")]
    assert options.config == Path("a.yaml")


def test_what_is_no_number_is_named(capsys):
    with pytest.raises(SystemExit):
        build_parser().parse_args(["inspect", "--pixel-mrad", "wide", "scan.mib"])
    assert "invalid float value: 'wide'" in capsys.readouterr().err
