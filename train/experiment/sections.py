"""Sections of a configuration that say how a network is trained."""

from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from namsa.config.loading import Section


class Inputs(Section):
    """From a record to the network's tensors, with nothing that needs to know the truth.

    x = gain · (I / I₀)^power, with I₀ the mean of a detector pixel were the whole beam spread evenly.
    """

    layout: Literal["detector", "scan"] = Field(
        "detector",
        description="'detector': patterns are channels over detector pixels (the paper); "
        "'scan': detector pixels are channels over scan positions",
    )
    channels: Literal["pixels", "binned", "polar", "virtual"] = Field(
        "pixels",
        description="of layout scan: every detector pixel, squares of bin_pixels, sectors of rings, or virtual "
        "detectors with the deflection; see train/experiment/channels.py",
    )
    bin_pixels: PositiveInt = Field(2, description="the side of channels 'binned', detector pixels")
    guess: Literal["none", "dpc"] = Field(
        "none",
        description="of layout scan, a channel more: 'dpc' is the phase that the deflections are the gradient of",
    )
    power: PositiveFloat = 0.5
    gain: PositiveFloat = 1.0
    density_scale_e_per_angstrom2: PositiveFloat = Field(1.0, description="densities are divided by this")
    augment: bool = Field(False, description="training samples are rotated and mirrored, patterns and scan jointly")
    dose_electrons_per_pattern: PositiveFloat | tuple[PositiveFloat, PositiveFloat] | None = Field(
        None,
        description="training samples get the noise of this dose, drawn anew each epoch; [low, high]: of one drawn "
        "evenly in the logarithm. The samples themselves must be without noise; held-out ones stay so",
    )
    read_ahead_gib: PositiveFloat = Field(
        2.0, description="memory for batches that are read ahead of the step, two at least; of each rank"
    )

    def named(self) -> str:
        """What becomes channels, in words."""
        chosen = [f"layout {self.layout}"]
        if self.channels != "pixels":
            chosen.append(f"channels {self.channels}" + f" by {self.bin_pixels}" * (self.channels == "binned"))
        return ", ".join(chosen + [f"guess {self.guess}"] * (self.guess != "none"))

    @model_validator(mode="after")
    def _dose_is_a_range(self) -> "Inputs":
        dose = self.dose_electrons_per_pattern
        if isinstance(dose, tuple) and dose[0] > dose[1]:
            raise ValueError(f"dose_electrons_per_pattern {list(dose)} falls: give [low, high]")
        return self


class Loss(Section):
    huber_delta: PositiveFloat = 10.0
    huber_delta_decay: float = Field(0.99, gt=0, le=1, description="factor an epoch")
    l2: NonNegativeFloat = 1e-4
    relative: bool = Field(
        False,
        description="errors, and so huber_delta, in units of the standard deviation of the sample's own density, so "
        "that light and thin samples count as heavy and thick ones do; l2 then wants to be smaller",
    )


class Optimizer(Section):
    learning_rate: PositiveFloat = Field(1e-4, description="base rate, of one rank")
    beta_1: float = Field(0.9, ge=0, lt=1)
    beta_2: float = Field(0.999, ge=0, lt=1)
    epsilon: PositiveFloat = 1e-8
    lars: Literal["before", "after", "none"] = Field(
        "before", description="layer-wise rates on the gradient before Adam (the paper), on Adam's update, or nowhere"
    )
    lars_trust: PositiveFloat = Field(
        1e-2, description="a layer's step as a part of its norm; 'after' and 'larc' want it larger, 1 is LAMB's"
    )
    layer_rates: Literal["lars", "larc"] = Field("lars", description="'larc' only ever makes a layer's step shorter")


class Schedule(Section):
    """Linear warm-up from the base rate to `ranks` times it, then a staircase."""

    scale_with_ranks: bool = True
    warmup_epochs: NonNegativeFloat = 5
    decay: float = Field(0.5, gt=0, le=1)
    decay_every_epochs: PositiveFloat = 30


class Precision(Section):
    compute: Literal["float32", "mixed_float16", "mixed_bfloat16"] = "float32"
    initial_loss_scale: PositiveFloat = 2.0**15
    loss_scaling: Literal["backoff", "logmax"] = Field(
        "backoff",
        description="'backoff' halves the loss scale where a gradient overflows and doubles it after growth_steps; "
        "'logmax' sets it from the distribution of the largest gradients",
    )
    growth_steps: PositiveInt = Field(2000, description="finite steps after which 'backoff' doubles the loss scale")


class Reduction(Section):
    """How gradients are averaged over the ranks. What Horovod itself is told, it reads once, at its start."""

    groups: NonNegativeInt = Field(8, description="gradient groups of equal bytes; 0 reduces tensor by tensor")
    grouping: Literal["bytes", "layer", "block", "list"] = Field(
        "bytes", description="what one group holds: equal bytes, a layer, a dense block or transition, or group_list's"
    )
    group_list: tuple[tuple[str, ...], ...] = Field(
        (), description="for grouping 'list': each group's patterns (*, ?) of variables' paths, as down1_*"
    )
    contiguous: bool = Field(False, description="a group travels as one buffer, not as a list of tensors")
    hierarchical: bool = Field(False, description="within a node first, then between nodes (NCCL with MPI)")
    compression: Literal["none", "fp16"] = "none"
    lag: Literal[0, 1] = Field(0, description="1 updates with the previous step's gradients, averaged meanwhile")
    synchronise: Literal["step", "epoch"] | PositiveInt = Field(
        "step",
        description="'step' averages gradients in every step; a number k or 'epoch' is local SGD: ranks update by "
        "themselves and average weights and moments every k steps, or when an epoch ends (which both do)",
    )
    cache_capacity: NonNegativeInt = Field(4096, description="0 turns the response cache (bitvector) off")
    fusion_threshold_mib: PositiveInt = 128
    cycle_time_ms: PositiveFloat = 0.5
    stall_warning_s: PositiveInt = 60

    @model_validator(mode="after")
    def _choices_fit(self) -> "Reduction":
        if bool(self.group_list) != (self.grouping == "list"):
            raise ValueError("grouping 'list' and group_list go together: give both or neither")
        if self.groups == 0 and (self.grouping != "bytes" or self.contiguous):
            raise ValueError("groups 0 reduces tensor by tensor: leave grouping and contiguous out, or groups")
        if self.local and (self.lag or self.compression != "none"):
            raise ValueError("lag and compression are for gradients, which travel with synchronise: step alone")
        return self

    @property
    def local(self) -> bool:
        """Whether ranks update by themselves between synchronisations."""
        return self.synchronise != "step"


class Checkpoints(Section):
    """When a job writes down where it stands; it also does so when a signal stops it, and at the end."""

    every_epochs: PositiveInt = 1
    every_steps: PositiveInt | None = Field(None, description="also within an epoch, counted from the job's first step")
    every_seconds: PositiveFloat | None = Field(None, description="also where the last one is older than this")
    keep: PositiveInt = 3


class Training(Section):
    epochs: PositiveInt
    batch_size: PositiveInt = Field(1, description="samples a rank and step")
    samples: PositiveInt | None = Field(
        None,
        description="at most this many training samples, the first in an order by hash, so that fewer are among more; "
        "none: all",
    )
    inputs: Inputs = Inputs()
    loss: Loss = Loss()
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    precision: Precision = Precision()
    reduction: Reduction = Reduction()
    checkpoints: Checkpoints = Checkpoints()
    recompute: bool = Field(
        False, description="dense blocks' stacks are made again in the backward pass: less memory for a little time"
    )
    simulate_seconds: PositiveFloat | None = Field(None, description="time box for simulating what is missing")

    @model_validator(mode="after")
    def _checkpoints_find_ranks_alike(self) -> "Training":
        within = self.checkpoints.every_steps or self.checkpoints.every_seconds
        if within and (self.reduction.local or self.reduction.lag):
            raise ValueError(
                "checkpoints.every_steps and every_seconds need ranks that are alike after every step, which "
                "reduction.lag and synchronise other than step leave to the ends of epochs: use every_epochs"
            )
        return self

    @model_validator(mode="after")
    def _ranks_share_a_loss_scale(self) -> "Training":
        if self.reduction.local and self.precision.compute == "mixed_float16":
            raise ValueError(
                "reduction.synchronise other than step lets each rank skip steps by itself, so that their loss scales "
                "and moments part: set precision.compute to float32 or mixed_bfloat16"
            )
        return self
