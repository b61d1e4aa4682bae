"""Configuration of an experiment: the sections of the simulation, the network and the training."""

import math
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field, model_validator

from fcdensenet.config import NetworkConfig
from namsa.base.pixels import depth_axis
from namsa.config.loading import Section, read_yaml, validate
from namsa.config.simulation import SimulationConfig

from ..networks.registry import NetworkSections
from ..tasks import registry
from .channels import Channels, channel_count, make_channels, volume_shape
from .conditions import Conditions, conditions, defocus_angstrom
from .data import TrainingData
from .sections import Training
from .symmetries import broken_by

# Sections whose keys depend on their kind, and the kind of each without one.
DEFAULT_KINDS = {
    "network": "fcdensenet",
    "data.source": "simulated",
    "training.exchange": "allreduce",
}


class Finish(Section):
    """The steps after the training: the network is calibrated, as by `train calibrate`, and packed
    with its card.
    """

    simulated: int | None = Field(
        None,
        ge=1,
        le=10**6,
        description="held-out samples whose density is simulated, about so many; none: all",
    )
    outside: int = Field(
        0,
        ge=0,
        le=10**6,
        description="training specimens that are simulated under conditions that were not learnt",
    )


class Experiment(SimulationConfig):
    """One experiment, from crystals to the report.

    Attributes:
        network: Section network.
        training: Section training.
        data: Section data.
        stages: Settings of the second stage of the training, of the third and so on.
        finish: Section finish.
    """

    network: NetworkSections
    training: Training
    data: TrainingData = TrainingData()
    stages: tuple[dict[str, object], ...] = Field(
        (),
        exclude=True,
        description="the training's second stage, the third and so on: each has keys section.key "
        "for what differs from the stage before, from whose weights it starts. `--set stage=N` "
        "chooses one",
    )
    finish: Finish | None = Field(
        None,
        exclude=True,
        description="calibrates the trained network and packs it as a model; none: neither",
    )

    def sample_shapes(self) -> tuple[tuple[int, int, int, int], tuple[int, int]]:
        """Returns shapes `(sy, sx, dy, dx)` and `(ty, tx)` of a sample. Raises ValueError if they
        are open.
        """
        patterns = self.pattern_shape()
        on_grid = self.training.inputs.layout == "detector" and self.target.at == "grid"
        return patterns, self._image() if on_grid else patterns[:2]

    def window_shapes(self) -> tuple[tuple[int, int, int, int], tuple[int, int]]:
        """Returns the shapes of the patterns and of the density that the network sees, as of
        `sample_shapes`.

        They are smaller than the sample's where network.input_shape has fewer positions than
        scan.shape, and with training.inputs.window.
        """
        if self.training.inputs.layout in ("pattern", "volume"):
            window = self.training.inputs.window or self.pattern_shape()[:2]
            return (*window, *self.pattern_shape()[2:]), window
        if self.training.inputs.layout == "detector":
            return self.sample_shapes()
        image = self._image()
        return (*image, *self.pattern_shape()[2:]), image

    def bins_shape(self) -> tuple[int, ...]:
        """Returns the leading axes of the target's densities: `(n,)` by depth, otherwise none."""
        bins = self.target.depth_bins
        return (bins,) if self.training.task == "density" and bins > 1 else ()

    def images_per_sample(self) -> int:
        """Returns how many images of the network a sample gives in an epoch."""
        if self.training.inputs.layout == "pattern":
            return math.prod(self.window_shapes()[1])
        return 1

    def window_margin(self) -> tuple[int, int]:
        """Returns the positions (y, x) around a window that its imperfections need. A periodic scan
        needs none.
        """
        inputs = self.training.inputs
        step = self.scan.step_angstrom
        if not inputs.imperfections or step is None:
            return 0, 0
        reach = inputs.imperfections.margin_angstrom()
        return math.ceil(reach / step[0] - 1e-9), math.ceil(reach / step[1] - 1e-9)

    def channels(self) -> Channels | None:
        """Returns the network's channels, as `make_channels`. Raises ValueError if they do not
        fit.
        """
        if self.training.inputs.layout != "depth":
            return make_channels(self.training.inputs, self.conditions())
        thickness = set(self.specimen.thickness_angstrom)
        focus = set(defocus_angstrom(self))
        if len(thickness) > 1 or len(focus) > 1 or self.scan.step_angstrom is None:
            raise ValueError(
                "training.inputs.layout depth refocuses to known depths: give one "
                "specimen.thickness_angstrom, one defocus and scan.step_angstrom"
            )
        (total,), bins = thickness, self.target.depth_bins
        depths = depth_axis(bins, total).coordinates.tolist()
        return make_channels(self.training.inputs, self.conditions(), depths, focus.pop())

    def conditions(self) -> Conditions:
        """Returns the conditions of the samples as the network sees them."""
        return conditions(self, self.window_shapes()[0][:2])

    @model_validator(mode="after")
    def _noise_is_drawn_once(self) -> "Experiment":
        detector = self.detector.model_dump() if self.detector else {}
        varied = self.varied_quantities()
        for name in ("electrons_per_pattern", "dose_electrons_per_angstrom2"):
            noisy = detector.get(name) or name in varied
            if self.training.inputs.dose_electrons_per_pattern and noisy:
                raise ValueError(
                    "training.inputs.dose_electrons_per_pattern draws noise on samples that "
                    f"{name} gives noise already, which would be that of no dose: unset one of them"
                )
            if self.training.inputs.imperfections and noisy:
                raise ValueError(
                    f"training.inputs.imperfections come before the noise, which {name} gives the "
                    f"samples already: unset {name} and give "
                    "training.inputs.dose_electrons_per_pattern"
                )
        return self

    @model_validator(mode="after")
    def _augmented_samples_are_true(self) -> "Experiment":
        microscope = self.microscope.model_dump() | self.varied_quantities()
        if self.training.inputs.augment and (
            reason := broken_by(microscope, self.drawn_in_all_directions())
        ):
            raise ValueError(reason)
        return self

    @model_validator(mode="after")
    def _network_fits_the_task(self) -> "Experiment":
        registry.part(self.training.task, "rules").check(self)
        return self

    @model_validator(mode="after")
    def _recompute_without_norms(self) -> "Experiment":
        if not self.training.recompute:
            return self
        if not isinstance(self.network, NetworkConfig):
            raise ValueError(
                f"training.recompute is for network.kind fcdensenet, not {self.network.kind}: "
                "unset it"
            )
        if self.network.block_norm:
            raise ValueError(
                "training.recompute does not go with network.block_norm: set one of them to false"
            )
        return self

    @model_validator(mode="after")
    def _strategies_fit(self) -> "Experiment":
        self.data.source.check(self)
        self.training.split.check(self)
        return self

    @model_validator(mode="after")
    def _network_fits_data(self) -> "Experiment":
        patterns = self.pattern_shape()
        scan = patterns[:2]
        detector = patterns[2:]
        layout = self.training.inputs.layout
        if layout in ("pattern", "volume"):
            return self._patterns_fit(scan, detector)
        over_scan = layout != "detector"
        planes = scan
        image = detector
        if over_scan:
            planes = detector
            image = scan
        channels = channel_count(self.channels(), planes[0] * planes[1])
        channels += 2 * self.training.inputs.coordinates
        window = self._image()
        if over_scan and self.target.at == "scan" and _fits_into(window, image):
            image = window
        required: tuple[int, ...] = (channels, *image)
        if layout == "depth":
            required = (channels, self.target.depth_bins, *image)
        if self.network.input_shape != required:
            raise ValueError(
                f"network.input_shape is {list(self.network.input_shape)}, but the data give "
                f"{list(required)} ({self.training.inputs.channel_summary()}, scan {list(scan)}, "
                f"detector {list(detector)}): set it to {list(required)}"
            )
        # its answer is about all patterns together
        if self.training.task != "density" and not over_scan:
            return self
        target = self.simulation.grid_shape
        if self.target.at == "scan":
            target = image if over_scan else scan
        if target != image:
            raise ValueError(
                f"the target's shape is {target and list(target)}, the network's image "
                f"{list(image)}: use target.at=scan with layout scan, target.at=grid with a "
                "detector of the grid's shape"
            )
        return self

    def _image(self) -> tuple[int, int]:
        """Returns the network's image, of which the task's rules have made sure that it has two
        axes.
        """
        return self.network.input_shape[-2:]

    def _patterns_fit(self, scan: tuple[int, int], detector: tuple[int, int]) -> "Experiment":
        inputs = self.training.inputs
        window = self.window_shapes()[1]
        required: tuple[int, ...]
        noun = f"a {inputs.layout}"
        required = (1, *detector)
        if inputs.layout == "volume":
            self.channels()  # checks the bins
            required = volume_shape((*window, *detector), inputs)
        if self.network.input_shape != required:
            raise ValueError(
                f"network.input_shape is {list(self.network.input_shape)}, but {noun} is "
                f"{list(required)}: set it to {list(required)}"
            )
        if self.target.at != "scan":
            raise ValueError(
                f"training.inputs.layout {inputs.layout} takes parts of a scan: set target.at to "
                "scan"
            )
        if any(w > n for w, n in zip(window, scan, strict=True)):
            raise ValueError(
                f"training.inputs.window is {list(window)}, larger than scan.shape {list(scan)}: "
                "lower it"
            )
        return self

    @model_validator(mode="after")
    def _imperfections_have_margins(self) -> "Experiment":
        scan = self.pattern_shape()[:2]
        window = self.window_shapes()[0][:2]
        margin = self.window_margin()
        needed = tuple(w + 2 * m for w, m in zip(window, margin, strict=True))
        if any(n < least for n, least in zip(scan, needed, strict=True)) and any(margin):
            remedy = f"set scan.shape to {list(needed)} or more"
            if self.training.inputs.layout == "detector":
                remedy = (
                    "leave out scan.step_angstrom, so that the scan fills the cell, or use layout "
                    "scan"
                )
            assert self.training.inputs.imperfections is not None
            raise ValueError(
                "training.inputs.imperfections reach "
                f"{self.training.inputs.imperfections.margin_angstrom():.2g} Å, {list(margin)} "
                f"positions, around windows of {list(window)} positions, and scan.shape is "
                f"{list(scan)}: {remedy}, or narrow source_size, jitter, drift and flyback"
            )
        return self


def load(path: Path, overrides: Sequence[str] = ()) -> Experiment:
    """Loads an experiment. Raises InputError if the configuration is not valid; it names every
    fault.
    """
    return validate(Experiment, read_yaml(path, overrides, DEFAULT_KINDS), str(path))


def _fits_into(window: tuple[int, int], image: tuple[int, int]) -> bool:
    """Returns whether a window is at most as large as an image along both axes."""
    return window[0] <= image[0] and window[1] <= image[1]
