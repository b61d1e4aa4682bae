"""Sections of a configuration that describe how a network is trained."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from namsa.base.text import plural
from namsa.config.loading import Section

from ..tasks.sections import TaskSections
from .division import Division
from .exchange import Allreduce, Count, Exchange, RankSettings
from .functions import FunctionName, check_function
from .inputs import Inputs

LONGEST_TIME_S = 1e9  # 30 years
Contrast = Annotated[float, Field(ge=0, le=1e6)]


def refuse_idle(section: Section, keys: Sequence[str], reason: str) -> None:
    """Refuses keys without effect. Raises ValueError if one has another value than its default.

    Args:
        section: The section that has the keys.
        keys: Those that nothing reads.
        reason: Why, as "with kind momentum".
    """
    for key in keys:
        value = getattr(section, key)
        default = type(section).model_fields[key].default
        if value != default:
            raise ValueError(f"{key} {value} has no effect {reason}: leave it out")


class Loss(Section):
    """The loss of the density, the likelihood of its error, and the penalty of the weights."""

    kind: Literal["huber", "mse", "mae", "function"] = Field(
        "huber",
        description="the loss of a density's error: 'huber' (the paper), 'mse', the mean square, "
        "'mae', the mean absolute error, or 'function'. Validations measure Huber's loss with all "
        "of them",
    )
    function: FunctionName | None = Field(
        None,
        description="with kind 'function', module:function or file.py:function: of prediction and "
        "target (n, h, w, 1), in units of the density scale, the loss, a scalar, in keras.ops",
    )
    huber_delta: float = Field(
        10.0,
        ge=1e-9,
        le=1e9,
        description="error at which the Huber loss turns from quadratic to linear, in the first "
        "epoch",
    )
    huber_delta_decay: float = Field(
        0.99, ge=1e-6, le=1, description="factor on huber_delta per epoch"
    )
    l2: float = Field(
        1e-4, ge=0, le=1e6, description="factor of the L2 regularisation of the weights"
    )
    relative: bool = Field(
        False,
        description="measure errors, and so huber_delta, in units of the standard deviation of "
        "each sample's density, so that light and thin samples count as much as heavy and thick "
        "ones; l2 should then be smaller",
    )
    least_contrast: tuple[Contrast, Contrast] = Field(
        (0.0, 0.01),
        description="with relative, what a standard deviation counts as at least, so that windows "
        "of vacuum and glass do not outweigh the others: a fraction of the mean of the sample's "
        "density, and a number of density scales",
    )
    likelihood: Literal["none", "laplace", "gaussian"] = Field(
        "none",
        description="distribution by which the network predicts its own error, as the logarithm of "
        "its scale in a second output channel; needs network.output_channels 2. See "
        "train/optimization/losses.py",
    )

    @model_validator(mode="after")
    def _keys_have_an_effect(self) -> "Loss":
        check_function(self, "kind")
        if self.kind == "function":
            refuse_idle(self, ("relative",), "with kind function")
        if not self.relative:
            refuse_idle(self, ("least_contrast",), "without relative")
        if self.kind != "huber":
            refuse_idle(self, ("huber_delta_decay",), f"with kind {self.kind}")
        return self

    def contrast_limits(self) -> tuple[float, float] | None:
        """Returns `least_contrast` if errors are relative, and `None` if they are not."""
        return self.least_contrast if self.relative else None


class Optimizer(Section):
    """Adam or momentum SGD, with layer-wise rates."""

    kind: Literal["adam", "momentum", "function"] = Field(
        "adam", description="'momentum' is SGD with momentum; 'function' is one of your own"
    )
    function: FunctionName | None = Field(
        None,
        description="with kind 'function', module:function or file.py:function: of this section, "
        "an optimizer of Keras, whose learning rate the schedule sets in every step",
    )
    learning_rate: float = Field(1e-4, ge=1e-12, le=1e3, description="base rate, for one rank")
    momentum: float = Field(0.9, ge=0, lt=1, description="decay of the momentum of kind 'momentum'")
    beta_1: float = Field(0.9, ge=0, lt=1, description="decay of Adam's first moment")
    beta_2: float = Field(0.999, ge=0, lt=1, description="decay of Adam's second moment")
    epsilon: float = Field(1e-8, ge=1e-30, le=1, description="Adam's epsilon")
    lars: Literal["before", "after", "none"] = Field(
        "before",
        description="layer-wise rates: on the gradient, 'before' Adam (the paper), on the update, "
        "'after' Adam, or 'none'",
    )
    lars_trust: float = Field(
        1e-2,
        ge=1e-9,
        le=1e3,
        description="ratio of a layer's step to its norm; 'after' and 'larc' need larger values, "
        "and 1 is LAMB's",
    )
    layer_rates: Literal["lars", "larc"] = Field(
        "lars", description="'lars' lengthens and shortens a layer's step; 'larc' only shortens it"
    )

    weight_decay: float = Field(
        0.0,
        ge=0,
        le=1e3,
        description="decoupled weight decay: before each step, kernels lose this fraction of "
        "themselves times the learning rate (AdamW, SGDW); training.loss.l2 is a term of the "
        "gradient in its place",
    )
    clip_norm: float | None = Field(
        None,
        gt=0,
        le=1e9,
        description="largest norm of the gradient of all weights together; a longer one is "
        "shortened to it. None: gradients are not clipped",
    )

    @property
    def moments(self) -> int:
        """Number of moments per weight."""
        return 1 if self.kind == "momentum" else 2

    @model_validator(mode="after")
    def _keys_have_an_effect(self) -> "Optimizer":
        check_function(self, "kind")
        if self.kind == "function":
            refuse_idle(self, ("clip_norm", "weight_decay"), "with kind function")
        if self.kind == "momentum":
            refuse_idle(self, ("beta_1", "beta_2", "epsilon"), "with kind momentum")
        elif self.kind == "adam":
            refuse_idle(self, ("momentum",), f"with kind {self.kind}")
        return self

    @model_validator(mode="after")
    def _layer_rates_fit_the_kind(self) -> "Optimizer":
        if self.kind == "momentum" and self.lars == "after":
            raise ValueError("lars 'after' is for kind adam: set lars to before or none")
        return self


class Schedule(Section):
    """The learning rate: a linear warm-up from the base rate to the rate of all ranks, then a
    decay.
    """

    rule: Literal["staircase", "linear", "cosine", "constant", "function"] = Field(
        "staircase",
        description="'staircase' multiplies the rate by decay every decay_every_epochs; 'linear' "
        "lowers it evenly to decay times its value within the first decay_every_epochs, and keeps "
        "it there (Oyama et al. 2020: 0.01 in 100 epochs); 'cosine' lowers it as 'linear', along "
        "half a cosine; 'constant' is the rate of all ranks "
        "from the first step on, without warm-up; 'function' is one of your own",
    )
    function: FunctionName | None = Field(
        None,
        description="with rule 'function', module:function or file.py:function: of the epochs "
        "since the start, with their fraction, the base rate and the number of ranks, the rate",
    )
    scale_with_ranks: bool = Field(
        True,
        description="multiply the base rate by the number of ranks times training.accumulate, up "
        "to linear_up_to",
    )
    linear_up_to: Count = Field(
        8,
        description="largest number of ranks times training.accumulate that multiplies the base "
        "rate; for more, the factor is their square root, and at least this number. The paper "
        "multiplies by all ranks",
    )
    warmup_epochs: float = Field(5, ge=0, le=1e6, description="length of the warm-up, epochs")
    decay: float = Field(
        0.5, ge=1e-6, le=1, description="factor on the rate after decay_every_epochs"
    )
    decay_every_epochs: float = Field(
        30, ge=1e-3, le=1e6, description="epochs of a stair, or of the linear or cosine decay"
    )

    @model_validator(mode="after")
    def _keys_have_an_effect(self) -> "Schedule":
        check_function(self, "rule")
        if self.rule in ("constant", "function"):
            idle = ("decay", "decay_every_epochs", "warmup_epochs")
            refuse_idle(self, idle, f"with rule {self.rule}")
        if not self.scale_with_ranks:
            refuse_idle(self, ("linear_up_to",), "without scale_with_ranks")
        return self


class Precision(Section):
    """The number format of the computation, and the loss scale that 'mixed_float16' needs."""

    compute: Literal["float32", "mixed_float16", "mixed_bfloat16"] = Field(
        "float32", description="Keras' dtype policy; variables are float32 in all of them"
    )
    initial_loss_scale: float = Field(
        2.0**15, ge=2.0**-30, le=2.0**60, description="loss scale of the first step"
    )
    loss_scaling: Literal["backoff", "logmax"] = Field(
        "backoff",
        description="'backoff' halves the loss scale if a gradient overflows and doubles it after "
        "growth_steps; 'logmax' sets it from the distribution of the largest gradients",
    )
    growth_steps: Count = Field(
        2000, description="finite steps after which 'backoff' doubles the loss scale"
    )


class Checkpoints(Section):
    """When a job writes a checkpoint. It also writes one when a signal stops it, and at its end."""

    every_epochs: Count = Field(1, description="epochs between checkpoints")
    every_steps: Count | None = Field(
        None, description="steps between further checkpoints, counted from the job's first step"
    )
    every_seconds: float | None = Field(
        None,
        gt=0,
        le=LONGEST_TIME_S,
        description="age of the last checkpoint, s, at which a further one is written",
    )
    keep: int = Field(3, ge=1, le=10**6, description="number of checkpoints to keep")


class Validation(Section):
    """Scores of the dev split while a network is trained. They are rows of validation.jsonl."""

    every_epochs: Count | None = Field(
        None, description="epochs between validations; none: no validation"
    )
    samples: Count | None = Field(
        None, description="largest number of dev samples, the first in an order by hash; none: all"
    )
    stop_at: float | None = Field(
        None,
        ge=0,
        le=1e9,
        description="training ends when the task's error is at most this number: the Huber loss of "
        "a density, the fraction of patterns that are not classified correctly, 1 minus the mean "
        "IoU of a segmentation, the root mean square error of an embedding, the mean absolute "
        "error of estimates in units of half their ranges",
    )
    keep_best: bool = Field(True, description="keep the weights of the lowest error as best.npz")

    @model_validator(mode="after")
    def _stops_on_what_is_measured(self) -> "Validation":
        if self.stop_at is not None and self.every_epochs is None:
            raise ValueError("stop_at needs validations: set every_epochs")
        return self


OF_EXCHANGE = (
    "groups",
    "grouping",
    "group_list",
    "fuse_groups",
    "contiguous",
    "hierarchical",
    "compression",
)
REDUCTION = {
    "reduction": "its keys are in training.exchange and training.ranks",
    **{f"reduction.{key}": f"{key} is training.exchange.{key}" for key in OF_EXCHANGE},
    **{f"reduction.{key}": f"{key} is training.ranks.{key}" for key in RankSettings.model_fields},
    "reduction.lag": "lag 1 is training.exchange {kind: lag}",
    "reduction.hybrid": "hybrid is training.exchange {kind: hybrid, ...}",
    "reduction.synchronise": "synchronise is training.exchange {kind: local_sgd, synchronise: ...}",
    "reduction.average_moments": "average_moments is a key of training.exchange of kind local_sgd",
    "reduction.weights": "weights sharded is training.exchange {kind: sharded}",
    "reduction.transfer": "transfer is a key of training.exchange of kind sharded, its precision "
    "one of kind local_sgd",
}


class Training(TaskSections):
    """Training of a network."""

    moved_keys: ClassVar[dict[str, str]] = REDUCTION

    backend: Literal["tensorflow", "jax"] | None = Field(
        None,
        description="what computes: 'tensorflow', with Horovod where there are several ranks, or "
        "'jax', one or more processes with all devices of their machines; the environment variable "
        "KERAS_BACKEND overrides it. None: tensorflow where it is installed, elsewhere jax",
    )
    validation: Validation = Validation()
    epochs: int = Field(ge=1, le=10**6, description="number of passes over the training samples")
    batch_size: int = Field(1, ge=1, le=2**16, description="samples per rank and step")
    steps: Count | None = Field(
        None,
        description="number of steps after which training ends, within an epoch if need be; none: "
        "after `epochs`",
    )
    accumulate: int = Field(
        1,
        ge=1,
        le=2**16,
        description="batches per rank whose gradients are averaged for one step; the learning rate "
        "scales as with so many times the ranks",
    )
    samples: Count | None = Field(
        None,
        description="largest number of training samples; none: all. They are the first in an order "
        "by hash, so a smaller choice is part of a larger one",
    )
    start_from: Annotated[str, Field(min_length=1, max_length=4096)] | None = Field(
        None,
        description="a network whose weights are the first ones, as far as their shapes fit: the "
        "name of a model that comes with the package, or the path of a run or of a model; none: "
        "random weights",
    )
    inputs: Inputs = Inputs()
    loss: Loss = Loss()
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    precision: Precision = Precision()
    exchange: Exchange = Field(
        Allreduce(),
        description="what happens to gradients and weights between the ranks, by its key kind",
    )
    ranks: RankSettings = RankSettings()
    split: Division = Division()
    checkpoints: Checkpoints = Checkpoints()
    recompute: bool = Field(
        False,
        description="compute the stacks of dense blocks again in the backward pass: less memory "
        "for a little time",
    )
    simulate_seconds: float | None = Field(
        None,
        gt=0,
        le=LONGEST_TIME_S,
        description="time limit for simulating missing samples, s; none: no limit",
    )

    @model_validator(mode="after")
    def _is_validated(self) -> "Training":
        every = self.validation.every_epochs
        if every is not None and every > self.epochs:
            raise ValueError(
                f"validation.every_epochs {every} has no effect in "
                f"{plural(self.epochs, 'epoch')}: set it to {self.epochs} or less, or leave it out "
                "(--set training.validation.every_epochs=null)"
            )
        return self

    @model_validator(mode="after")
    def _exchange_goes_with_the_rest(self) -> "Training":
        for entry, reason in self.exchange.excludes.items():
            key, _, excluded = entry.partition(" ")
            *path, name = key.split(".")
            section = getattr(self, path[0]) if path else self
            value = getattr(section, name)
            default = type(section).model_fields[name].default
            if value == excluded if excluded else value != default:
                kind = self.exchange.model_dump()["kind"]
                raise ValueError(
                    f"{key} {value} does not go with exchange.kind {kind}, {reason}: set {key} to "
                    f"{default}, its default, or take another kind"
                )
        return self
