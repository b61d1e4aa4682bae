"""Sections of a configuration for what elastic scattering leaves out: plasmons, and the response of
a real detector.
"""

from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from namsa.config.loading import Section


class Plasmons(Section):
    """Inelastic scattering by bulk plasmons, as a broadening of the patterns by small angles."""

    mean_free_path_angstrom: float = Field(
        ge=10, le=1e6, description="inelastic mean free path, Å: the mean thickness per plasmon"
    )
    energy_loss_ev: float = Field(20.0, ge=1, le=100, description="energy of a plasmon, eV")
    critical_angle_mrad: float | None = Field(
        None,
        gt=0,
        le=200,
        description="largest angle that a plasmon scatters to, mrad; none: that of the Bethe "
        "ridge, √(2θ_E) of the characteristic angle θ_E",
    )


class Preset(NamedTuple):
    """Published values of a detector. `None` where no value is known here."""

    saturation_counts: float | None  # electrons of one pattern that a pixel can count
    source: str  # where the value is from


# No modulation transfer function and no dead time are here: they depend on the energy and the
# thresholds, so that a value without these would be invented. A preset says so in a warning.
PRESETS = {
    "empad": Preset(
        1e6,
        "Tate et al., Microsc. Microanal. 22 (2016) 237: a dynamic range of 1,000,000 : 1 per "
        "frame",
    ),
    "medipix3-12bit": Preset(
        2**12 - 1, "Ballabriga et al., JINST 6 (2011) C01052: counters of 1, 6, 12 or 24 bits"
    ),
    "medipix3-24bit": Preset(
        2**24 - 1, "Ballabriga et al., JINST 6 (2011) C01052: counters of 1, 6, 12 or 24 bits"
    ),
    "arina": Preset(
        None, "Stroppa et al., Microscopy Today 31 (2023): no value is taken from it here"
    ),
}


class Response(Section):
    """Response of a real detector to electrons: modulation transfer, losses at high rates,
    saturation.
    """

    preset: Literal["empad", "medipix3-12bit", "medipix3-24bit", "arina"] | None = Field(
        None,
        description="a detector, whose published saturation is taken where saturation_counts gives "
        "none",
    )
    mtf_file: Path | None = Field(
        None,
        description="measured modulation transfer function: a .csv or .txt file with two columns, "
        "spatial frequency in cycles per pixel from 0 to 0.5 or more, and MTF, which "
        "is 1 at 0; it includes the pixel's own",
    )
    dead_time_ns: Annotated[float, Field(ge=0, le=1e6)] | None = Field(
        None,
        description="time after an electron in which a pixel counts no other, ns; needs "
        "dwell_time_us and a dose",
    )
    dead_time_model: Literal["non-paralyzable", "paralyzable"] = Field(
        "non-paralyzable",
        description="whether electrons within the dead time leave it as it is, or extend it",
    )
    dwell_time_us: Annotated[float, Field(gt=0, le=1e9)] | None = Field(
        None, description="exposure of one pattern, µs, for dead_time_ns"
    )
    saturation_counts: Annotated[float, Field(ge=1, le=1e12)] | None = Field(
        None,
        description="largest number of electrons of a pattern that a pixel counts; needs a dose",
    )

    @model_validator(mode="after")
    def _times_go_together(self) -> "Response":
        if (self.dead_time_ns is None) != (self.dwell_time_us is None):
            raise ValueError("dead_time_ns and dwell_time_us go together")
        return self

    @property
    def saturation(self) -> float | None:
        """Electrons of a pattern that a pixel can count, as given or of the preset; `None` if there
        is no limit.
        """
        if self.saturation_counts or not self.preset:
            return self.saturation_counts
        return PRESETS[self.preset].saturation_counts

    def unknown(self) -> list[str]:
        """Returns the settings that a preset leaves unknown and nothing else gives."""
        given = {
            "mtf_file": self.mtf_file,
            "dead_time_ns": self.dead_time_ns,
            "saturation_counts": self.saturation,
        }
        if self.preset == "empad":  # integrates charge
            del given["dead_time_ns"]
        if self.preset:
            return [name for name, value in given.items() if value is None]
        return []
