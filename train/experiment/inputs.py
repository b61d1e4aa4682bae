"""Section `training.inputs`: from a sample to the network's input and target."""

from typing import Literal

from pydantic import Field, model_validator

from namsa.config.bounds import Dose, Extent
from namsa.config.loading import Section

from .imperfections import Imperfections

NormalisationKind = Literal["power", "log", "standardised", "root_of_stored"]
# Kinds whose numbers depend on the whole pattern, and not on the beam.
BY_PATTERN: tuple[NormalisationKind, ...] = ("standardised", "root_of_stored")


class Inputs(Section):
    """From a sample to the network's input and target. No step uses knowledge of the density.

    `train.input.normalisation` says how the intensity of a detector pixel becomes a number.
    """

    layout: Literal["detector", "scan", "pattern", "volume", "depth"] = Field(
        "detector",
        description="'detector': patterns are the channels of an image over detector pixels (the "
        "paper); 'scan': detector pixels are the channels of an image over scan positions; "
        "'pattern': each pattern is an image of one channel, for tasks whose answer is about a "
        "pattern; 'volume': a volume of scan row and detector y, x, with the scan's columns as "
        "channels, for tasks whose answer is a few numbers of a scan; 'depth': a volume of depth "
        "and scan y, x, whose channels are the scan's images of detector pixels, refocused to the "
        "middle of each of target.depth_bins, for network.kind unet3d",
    )
    window: tuple[Extent, Extent] | None = Field(
        None,
        description="with layouts 'pattern' and 'volume', positions (y, x) of a sample that an "
        "epoch takes, at a place drawn anew; none: all of the scan",
    )
    held_out_positions: float = Field(
        0.0,
        ge=0,
        le=0.9,
        description="with layout 'pattern', fraction of each training sample's positions that "
        "training never draws; others of a window take their places. Evaluation takes them as "
        "split 'images', which leaks: their neighbours were trained on",
    )
    channels: Literal["pixels", "binned", "polar", "virtual"] = Field(
        "pixels",
        description="with layout 'scan', what becomes a channel: every detector pixel, squares of "
        "bin_pixels, sectors of rings, or virtual detectors with the mean deflection; see "
        "train/experiment/channels.py. With layout 'volume' 'binned' makes patterns smaller",
    )
    bin_pixels: Extent = Field(
        2, description="side of the squares of channels 'binned', detector pixels"
    )
    guess: Literal["none", "dpc"] = Field(
        "none",
        description="with layout 'scan', one more channel: 'dpc' is the phase whose gradient is "
        "the deflection",
    )
    coordinates: bool = Field(
        False,
        description="with layout 'detector', two more channels: y and x of each pixel, from -1 to "
        "1. The paper has none; with them every filter knows where it is",
    )
    normalisation: NormalisationKind = Field(
        "power",
        description="how the part I of the beam in a pixel becomes a number, before gain: 'power': "
        "(I / I₀)^power, where I₀ is the mean if the whole beam were spread evenly over the "
        "detector; 'log': 17 + ln I, and 0 below exp(-17); 'standardised': I less the mean of its "
        "pattern, over the pattern's standard deviation; 'root_of_stored': the root of I less the "
        "least of its pattern, over that deviation, as the paper's authors scale the standardised "
        "patterns of their files",
    )
    power: float = Field(
        0.5, ge=0.01, le=10, description="exponent of the intensity with normalisation 'power'"
    )
    gain: float = Field(1.0, ge=1e-6, le=1e6, description="factor on the network's input")
    density_scale_e_per_angstrom2: float = Field(
        1.0, ge=1e-6, le=1e9, description="densities are divided by this number, e/Å²"
    )
    potential_scale_v_angstrom: float | None = Field(
        None,
        ge=1e-6,
        le=1e9,
        description="with target.kind potential, potentials are divided by this number, V·Å",
    )
    augment: bool = Field(
        False, description="rotate and mirror training samples, patterns and scan jointly"
    )
    dose_electrons_per_pattern: Dose | tuple[Dose, Dose] | None = Field(
        None,
        description="dose of the Poisson noise that training samples get, drawn anew each epoch; "
        "[low, high] draws the dose evenly on a logarithmic scale. The stored samples must be "
        "noiseless; held-out samples stay so",
    )
    imperfections: Imperfections | None = Field(
        None,
        description="what microscope and detector add to training samples, drawn anew each epoch, "
        "before the noise; held-out samples stay as they are",
    )
    redraw_epochs: int = Field(
        1,
        ge=1,
        le=10_000,
        description="epochs for which a sample keeps its window, imperfections, noise and mirror, "
        "so that several steps share the time of drawing them, which is longer than a small "
        "network's step. The inputs of all samples of a rank then stay in memory",
    )
    read_ahead_gib: float = Field(
        2.0,
        gt=0,
        le=2**16,
        description="memory per rank for batches that are read ahead of the step, GiB; two batches "
        "at least",
    )

    @property
    def target_scale(self) -> float:
        """The divisor of the target, in the target's unit."""
        return self.potential_scale_v_angstrom or self.density_scale_e_per_angstrom2

    def channel_summary(self) -> str:
        """Returns the settings that choose the channels, as text."""
        settings = [f"layout {self.layout}"]
        if self.channels != "pixels":
            settings.append(
                f"channels {self.channels}" + f" by {self.bin_pixels}" * (self.channels == "binned")
            )
        settings += [f"intensities {self.normalisation}"] * (self.normalisation != "power")
        settings += [f"guess {self.guess}"] * (self.guess != "none") + [
            "coordinates"
        ] * self.coordinates
        return ", ".join(settings)

    @model_validator(mode="after")
    def _coordinates_fit_the_layout(self) -> "Inputs":
        if self.coordinates and self.layout in ("scan", "depth"):
            raise ValueError(
                "coordinates are for layout detector: a network over scan positions must not "
                "depend on where a scan begins. Unset one of them"
            )
        return self

    @model_validator(mode="after")
    def _window_is_for_patterns(self) -> "Inputs":
        if self.layout not in ("pattern", "volume") and (self.window or self.held_out_positions):
            raise ValueError(
                "window and held_out_positions are for layout pattern; with layout scan, "
                "network.input_shape is the window: unset them"
            )
        if self.layout == "volume" and (
            self.channels not in ("pixels", "binned") or self.guess != "none"
        ):
            raise ValueError(
                "layout volume has detector pixels: set channels to pixels or binned, and guess "
                "to none"
            )
        if self.layout == "depth" and (self.channels == "virtual" or self.guess != "none"):
            raise ValueError(
                "layout depth refocuses detector pixels: set channels to pixels, binned or polar, "
                "and guess to none"
            )
        if self.layout == "volume" and (self.coordinates or self.held_out_positions):
            raise ValueError(
                "coordinates and held_out_positions are not for layout volume: unset them"
            )
        if self.layout == "pattern" and (
            self.channels != "pixels" or self.guess != "none" or self.coordinates
        ):
            raise ValueError(
                "layout pattern has one channel: leave channels, guess and coordinates out"
            )
        return self

    @model_validator(mode="after")
    def _squares_are_used(self) -> "Inputs":
        default = type(self).model_fields["bin_pixels"].default
        if self.channels != "binned" and self.bin_pixels != default:
            raise ValueError(
                f"bin_pixels {self.bin_pixels} is for channels binned, not {self.channels}: leave "
                "it out"
            )
        return self

    @model_validator(mode="after")
    def _power_is_used(self) -> "Inputs":
        if self.normalisation != "power" and self.power != type(self).model_fields["power"].default:
            raise ValueError(
                f"power {self.power:g} is for normalisation power, not {self.normalisation}: leave "
                "it out"
            )
        return self

    @model_validator(mode="after")
    def _dose_range_is_ordered(self) -> "Inputs":
        dose = self.dose_electrons_per_pattern
        if isinstance(dose, tuple) and dose[0] > dose[1]:
            raise ValueError(f"dose_electrons_per_pattern {list(dose)} falls: give [low, high]")
        return self
