"""Messages about a configuration: the nearest key by place and meaning, and plain words."""

import typing

import pytest
from paths import CONFIGS
from pydantic import TypeAdapter, ValidationError
from pydantic_core.core_schema import ErrorType

from namsa import InputError, SimulationWarning
from namsa.base.problem_words import WORDS, words_of
from namsa.config.loading import dump_yaml
from namsa.config.suggestions import OTHER_NAMES, _keys
from train.experiment.experiment import Experiment, load

QUICKSTART = CONFIGS / "quickstart.yaml"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.lr=1", "training.lr; did you mean training.optimizer.learning_rate?"),
        ("training.loss.LR=1", "did you mean training.optimizer.learning_rate?"),
        ("lr=1", "unknown key lr; did you mean training.optimizer.learning_rate?"),
        ("training.optimizer.lr=1", "did you mean learning_rate?"),
        ("training.optimizer.beta1=0.9", "did you mean beta_1?"),
        ("training.num_epochs=3", "did you mean epochs?"),
        ("batch_size=3", "did you mean training.batch_size?"),
        ("training.inputs.huber_delta=1", "did you mean training.loss.huber_delta?"),
        ("microscope.thickness=3", "did you mean specimen.thickness_angstrom?"),
        ("microscope.kV=300", "did you mean energy_ev?"),
        ("network.dropout_rate=0.1", "did you mean dropout?"),
        ("training.epoch=3", "did you mean epochs?"),
        ("training.weights=x", "did you mean start_from?"),
        ("training.gradient_clipping=1", "did you mean training.optimizer.clip_norm?"),
        ("data.path=x", "did you mean directory?"),
        ("training.inputs.imperfections={source: 3}", "mean source_size_angstrom?"),
        ("training.dropout=0.1", "unknown key training.dropout; did you mean network.dropout?"),
        ("training.loss.huber=3", "unknown key training.loss.huber; did you mean huber_delta?"),
        ("network.qqqq=3", "the keys here are kind, input_shape, "),
    ],
)
def test_an_unknown_key_is_answered_by_meaning_and_place(override, message):
    with pytest.raises(InputError) as caught:
        load(QUICKSTART, [override])
    assert message in str(caught.value)


def test_every_other_name_leads_to_a_key_that_there_is():
    names = {keys[-1] for keys in _keys(Experiment, ())}
    assert set(OTHER_NAMES.values()) - names == set()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.batch_size=true", "batch_size must be a number, and is true"),
        ("training.optimizer.learning_rate=false", "learning_rate must be a number, and is false"),
        ("scan.shape=[true, 3]", "shape must be a number, and is [true, 3]"),
        ("network.growth=true", "growth must be a number or text, and is true"),
        ("training.epochs=2.5", "training.epochs: must be a whole number (given 2.5)"),
        ("training.batch_size=0", "training.batch_size: must be at least 1 (given 0)"),
        ("training.optimizer=3", "training.optimizer: must be a section, as {key: value}"),
        ("training.inputs.augment=7", "training.inputs.augment: must be true or false (given 7)"),
        ("training.epochs=null", "training.epochs: a value is needed"),
    ],
)
def test_a_wrong_value_is_said_in_plain_words(override, message):
    with pytest.raises(InputError) as caught:
        load(QUICKSTART, [override])
    assert message in str(caught.value)
    assert "Input should" not in str(caught.value)


def test_true_and_false_stay_where_they_are_meant():
    experiment = load(QUICKSTART, ["training.recompute=false", "training.inputs.augment=true"])
    assert (experiment.training.recompute, experiment.training.inputs.augment) == (False, True)


def test_words_are_those_of_problems_that_pydantic_has():
    types = set(typing.get_args(ErrorType))
    assert set(WORDS) <= types
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(typing.Annotated[float, "any"]).validate_python("x")
    assert words_of(caught.value.errors()[0]) == "must be a number"


def test_null_takes_a_key_of_the_file_away():
    file = load(QUICKSTART)
    default = type(file.training.optimizer)().learning_rate
    assert file.training.optimizer.learning_rate != default
    changed = load(QUICKSTART, ["training.optimizer.learning_rate=null"])
    assert changed.training.optimizer.learning_rate == default
    assert (
        load(QUICKSTART, ["training.optimizer=null"]).training.optimizer
        == type(file.training.optimizer)()
    )
    with pytest.raises(InputError, match="unknown key training.nothing"):
        load(QUICKSTART, ["training.nothing=null"])
    assert load(QUICKSTART, ["network.dropout=null"]).network.dropout == 0.5
    assert load(QUICKSTART, ["data.source.kind=null"]).data.source.kind == "simulated"
    assert load(QUICKSTART, ["training.validation.every_epochs=null"]).training.epochs == (
        file.training.epochs
    )


def test_an_empty_value_of_the_file_is_no_default(tmp_path):
    path = tmp_path / "job.yaml"
    text = QUICKSTART.read_text(encoding="utf-8")
    path.write_text(text.replace("  epochs:", "  accumulate:\n  epochs:"), encoding="utf-8")
    with pytest.raises(InputError, match="training.accumulate: must be a whole number"):
        load(path)


def test_another_kind_replaces_its_section_and_says_what_is_left_out(tmp_path):
    path = tmp_path / "job.yaml"
    text = QUICKSTART.read_text(encoding="utf-8")
    allreduce = "exchange: {groups: 1}"
    assert allreduce in text
    hybrid = "exchange: {kind: hybrid, groups: 2, node_ranks: 2, leaders: 1}"
    path.write_text(text.replace(allreduce, hybrid), encoding="utf-8")
    assert load(path).training.exchange.leaders == 1
    left_out = "replaces the section training.exchange: groups, node_ranks, leaders of the file are"
    with pytest.warns(SimulationWarning, match=left_out):
        changed = load(path, ["training.exchange.of.groups=3", "training.exchange.kind=lag"])
    assert changed.training.exchange.kind == "lag"
    assert changed.training.exchange.of.groups == 3  # of the command line, in whatever order
    same = load(path, ["training.exchange.kind=hybrid"])
    assert same.training.exchange.leaders == 1


def test_a_kind_whose_keys_are_those_of_the_others_keeps_them():
    changed = load(QUICKSTART, ["training.optimizer.kind=momentum"])
    file = load(QUICKSTART)
    assert changed.training.optimizer.learning_rate == file.training.optimizer.learning_rate


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["training.optimizer={kind: momentum, beta_1: 0.8}"],
            "beta_1 0.8 has no effect with kind",
        ),
        (
            ["training.optimizer={kind: momentum, beta_2: 0.8}"],
            "beta_2 0.8 has no effect with kind",
        ),
        (["training.optimizer={kind: momentum, epsilon: 0.1}"], "epsilon 0.1 has no effect"),
        (["training.optimizer={momentum: 0.8}"], "momentum 0.8 has no effect with kind adam"),
        (
            ["training.inputs.normalisation=log", "training.inputs.power=0.3"],
            "power 0.3 is for normalisation power, not log",
        ),
        (["training.inputs.bin_pixels=4"], "bin_pixels 4 is for channels binned, not pixels"),
        (["training.schedule={rule: constant, decay: 0.3}"], "decay 0.3 has no effect with rule"),
        (
            ["training.schedule={rule: constant, warmup_epochs: 3}"],
            "warmup_epochs 3.0 has no effect",
        ),
        (
            ["training.schedule={scale_with_ranks: false, linear_up_to: 3}"],
            "linear_up_to 3 has no effect without scale_with_ranks",
        ),
        (["training.loss={least_contrast: [0.1, 0.2]}"], "least_contrast (0.1, 0.2) has no effect"),
        (
            ["training.loss={kind: mae, huber_delta_decay: 0.5}"],
            "huber_delta_decay 0.5 has no effect",
        ),
        (
            ["training.validation.every_epochs=100", "training.epochs=30"],
            "validation.every_epochs 100 has no effect in 30 epochs: set it to 30 or less, or "
            "leave it out (--set training.validation.every_epochs=null)",
        ),
    ],
)
def test_a_key_without_effect_is_refused(overrides, message):
    with pytest.raises(InputError) as caught:
        load(QUICKSTART, overrides)
    assert message in str(caught.value)


def test_a_key_without_effect_may_have_its_default(tmp_path):
    path = tmp_path / "job.yaml"
    for changes in (["training.optimizer.kind=momentum"], ["training.loss={kind: mse}"]):
        experiment = load(QUICKSTART, changes)
        path.write_text(dump_yaml(experiment), encoding="utf-8")
        assert load(path) == experiment
