"""Sections that are chosen by their kind: what messages name, what is written, and what is imported
for them.
"""

import subprocess
import sys

import pytest
import yaml
from needs_kind import needs
from paths import ROOT

from namsa import InputError
from namsa.config.loading import config_hash, dump_yaml, validate
from train.experiment.sections import Training

pytestmark = [needs(kind) for kind in ("hybrid", "lag", "local_sgd", "sharded")]
SECTIONS = {
    "allreduce": {"groups": 3},
    "lag": {"kind": "lag", "of": {"groups": 3}},
    "lag of hybrid": {"kind": "lag", "of": {"kind": "hybrid", "node_ranks": 6, "leaders": 4}},
    "hybrid": {"kind": "hybrid", "node_ranks": 6, "leaders": 4},
    "local_sgd": {"kind": "local_sgd", "synchronise": "epoch"},
    "sharded": {"kind": "sharded", "transfer": {"precision": 16}},
}


def training(**sections):
    return validate(Training, {"epochs": 1} | sections, "own.yaml")


@pytest.mark.parametrize("section", SECTIONS.values(), ids=SECTIONS)
def test_a_section_is_written_as_it_is_read(section):
    settings = training(exchange=section)
    assert settings.exchange.kind == section.get("kind", "allreduce")
    assert validate(Training, yaml.safe_load(dump_yaml(settings)), "") == settings
    assert Training.model_validate(settings.model_dump()) == settings


def test_kinds_differ_in_the_hash_of_a_configuration_and_defaults_do_not():
    hashes = set()
    for kind in ("allreduce", "lag", "sharded"):
        hashes.add(config_hash(training(exchange={"kind": kind})))
    assert len(hashes) == 3
    assert config_hash(training()) == config_hash(training(exchange={"groups": 8}))


@pytest.mark.parametrize(
    ("exchange", "message"),
    [
        ({"grops": 3}, "unknown key exchange.grops; did you mean groups"),
        ({"kind": "lag", "of": {"grops": 3}}, "unknown key exchange.of.grops; did you mean groups"),
        ({"kind": "lag", "groups": 3}, "unknown key exchange.groups; the keys here are "),
        ({"lag": 1}, r"unknown key exchange\.lag; the keys here are groups"),
        (
            {"kind": "ring"},
            "exchange: kind 'ring' is none of allreduce, hybrid, lag, local_sgd, sharded",
        ),
        (
            {"kind": "lag", "of": {"kind": "sharded"}},
            "exchange.of: kind 'sharded' is none of allreduce, hybrid",
        ),
        ({"kind": "local_sgd"}, "exchange.synchronise: a value is needed"),
        ({"groups": -3}, r"exchange.groups: .* \(given -3\); groups is: number of gradient groups"),
        ({"grouping": "list"}, "go together"),
        ({"group_list": [["*"]]}, "go together"),
        ({"groups": 0, "grouping": "layer"}, "tensor by tensor"),
        ({"groups": 0, "contiguous": True}, "tensor by tensor"),
        ("sharded", r"exchange: a section is needed, as {kind: allreduce} \(given 'sharded'\)"),
    ],
)
def test_a_fault_is_told_with_the_path_and_the_keys_of_its_kind(exchange, message):
    with pytest.raises(InputError, match=message):
        training(exchange=exchange)


LEAST = {
    "hybrid": {"node_ranks": 2, "leaders": 2},
    "lag": {},
    "local_sgd": {"synchronise": 2},
    "sharded": {},
}


@pytest.mark.parametrize(
    ("kind", "changes", "sections", "message"),
    [
        (
            "hybrid",
            {},
            {"split": {"ways": 2}},
            r"split\.ways 2 does not go with exchange\.kind hybrid, .* of its own",
        ),
        ("hybrid", {"leaders": 3}, {}, "leaders 3 is more than the 2 ranks of a node"),
        ("hybrid", {"hierarchical": True}, {}, "unknown key exchange.hierarchical"),
        ("hybrid", {"groups": 0}, {}, "at least 1"),
        (
            "lag",
            {},
            {"split": {"ways": 2}},
            "ways 2 does not go with exchange.kind lag, .* gradients of different steps",
        ),
        (
            "lag",
            {},
            {"checkpoints": {"every_steps": 2}},
            "checkpoints.every_steps 2 does not go with exchange.kind lag",
        ),
        (
            "lag",
            {},
            {"checkpoints": {"every_seconds": 9}},
            "every_seconds 9.0 does not go .* set .* to None",
        ),
        ("lag", {"of": {"kind": "local_sgd"}}, {}, "kind 'local_sgd' is none of allreduce"),
        (
            "local_sgd",
            {},
            {"accumulate": 2},
            "accumulate 2 does not go with exchange.kind local_sgd.* accumulate to 1",
        ),
        (
            "local_sgd",
            {},
            {"precision": {"compute": "mixed_float16"}},
            "compute mixed_float16 .* loss scales",
        ),
        ("local_sgd", {}, {"split": {"ways": 2}}, "split.ways 2 .* different weights"),
        ("local_sgd", {}, {"checkpoints": {"every_steps": 2}}, "checkpoints.every_steps 2"),
        ("local_sgd", {"average_moments": True, "precision": 16}, {}, "precision is 16"),
        ("local_sgd", {"precision": "adaptive"}, {}, "8, 16, 24 or 32"),
        ("local_sgd", {"compression": "fp16"}, {}, "unknown key exchange.compression"),
        ("sharded", {"lag": 1}, {}, "unknown key exchange.lag"),
        ("sharded", {"hierarchical": True}, {}, "unknown key exchange.hierarchical"),
        ("sharded", {"contiguous": True}, {}, "unknown key exchange.contiguous"),
        ("sharded", {"transfer": {"precision": "adaptive"}}, {}, "needs threshold"),
        ("sharded", {"transfer": {"precision": 12}}, {}, "'adaptive', 8, 16, 24 or 32"),
        ("sharded", {"transfer": {"bits": 8}}, {}, "unknown key exchange.transfer.bits"),
        (
            "sharded",
            {},
            {"precision": {"loss_scaling": "logmax", "compute": "mixed_float16"}},
            ".* to backoff",
        ),
        (
            "sharded",
            {},
            {"checkpoints": {"every_seconds": 9}},
            "every_seconds 9.0 .* no clock in common",
        ),
    ],
)
def test_what_does_not_go_with_a_kind_is_refused(kind, changes, sections, message):
    least = {"kind": kind} | LEAST[kind]
    assert training(exchange=least).exchange.kind == kind
    with pytest.raises(InputError, match=message):
        training(exchange=least | changes, **sections)


def test_local_steps_go_with_bfloat16_which_needs_no_loss_scale():
    training(
        exchange={"kind": "local_sgd", "synchronise": 2}, precision={"compute": "mixed_bfloat16"}
    )


@pytest.mark.parametrize(
    ("former", "message"),
    [
        ({"groups": 1}, "reduction has moved: groups is training.exchange.groups$"),
        (
            {"lag": 1, "stall_warning_s": 9},
            "{kind: lag}; stall_warning_s is training.ranks.stall_warning_s$",
        ),
        ({"weights": "sharded"}, "weights sharded is training.exchange {kind: sharded}"),
        ({"synchronise": 8}, "{kind: local_sgd, synchronise: ...}"),
        ({}, "its keys are in training.exchange and training.ranks"),
    ],
)
def test_a_former_key_names_the_new_one(former, message):
    with pytest.raises(InputError, match=message):
        training(reduction=former)


def test_a_strategy_is_imported_only_where_it_is_chosen():
    script = """
import sys
from train.experiment.sections import Training
def strategies():
    return sorted(name.split(".")[3] for name in sys.modules if name.startswith("train.strategies.exchange."))
Training(epochs=1)
before = strategies()
Training.model_validate({"epochs": 1, "exchange": {"kind": "lag"}})
print(before, sorted(set(strategies())))
"""  # noqa: E501
    line = [sys.executable, "-c", script]
    assert (
        subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        == "[] ['lag']\n"
    )
