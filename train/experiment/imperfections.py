"""Section `training.inputs.imperfections`: what microscope and detector add to patterns in
training.
"""

from typing import Annotated

from pydantic import Field

from namsa.config.bounds import Ordered
from namsa.config.loading import Section
from namsa.physics.coherence import FWHM

# standard deviations of the jitter, and of the source, that the simulated scan must reach beyond a
# window
JITTERS = 2


Angstroms = Ordered[Annotated[float, Field(ge=0, le=100)]]
Pixels = Ordered[Annotated[float, Field(ge=0, le=100)]]
Strains = Ordered[Annotated[float, Field(ge=0, le=0.3)]]
Degrees = Ordered[Annotated[float, Field(ge=0, le=45)]]
Parts = Ordered[Annotated[float, Field(ge=0, le=0.9)]]
MeanFreePaths = Ordered[Annotated[float, Field(ge=0, le=10)]]
FewPixels = Ordered[Annotated[float, Field(ge=0, le=0.2)]]


class Imperfections(Section):
    """Ranges [least, most] of magnitudes that are drawn evenly for each training sample and epoch;
    none: left out.

    Directions and signs are drawn too, all of them equally likely, so that mirrored samples are as
    likely as their originals. The target stays the density at the nominal positions.
    """

    probability: float = Field(
        1.0,
        gt=0,
        le=1,
        description="of each quantity to be drawn for a sample, independently of the others; "
        "otherwise it is left out, so that samples with few imperfections are learnt from, too",
    )
    source_size_angstrom: Angstroms | None = Field(
        None,
        description="full width at half maximum of the source, Å, as "
        "microscope.source_size_angstrom",
    )
    jitter_angstrom: Angstroms | None = Field(
        None, description="root mean square of each position's error along one axis, Å"
    )
    drift_angstrom: Angstroms | None = Field(
        None, description="drift from the window's first position to its last, Å, in any direction"
    )
    flyback_angstrom: Angstroms | None = Field(
        None,
        description="error of the first position of each row along the row, Å; it decays within a "
        "few positions",
    )
    missing_rows: Parts | None = Field(
        None, description="fraction of the rows that are lost, and read as zeros"
    )
    detector_spread_pixels: Pixels | None = Field(
        None,
        description="root mean square width of the point spread, pixels, as "
        "detector.point_spread_pixels",
    )
    centre_shift_pixels: Pixels | None = Field(
        None,
        description="distance of the optic axis from where it should be, pixels, in any direction",
    )
    ellipticity: Strains | None = Field(
        None,
        description="difference of the longest and shortest radius of a circle's image, in radii, "
        "any direction",
    )
    turn_degrees: Degrees | None = Field(
        None, description="turn of the detector about the optic axis, either way"
    )
    pixel_scale: Strains | None = Field(
        None,
        description="error of the pixel's size (camera length) as a fraction of it, of either sign",
    )
    beam_gain: Parts | None = Field(
        None, description="error of the beam's current as a fraction, of either sign"
    )
    background_fraction: Parts | None = Field(
        None,
        description="fraction of the intensity that is scattered into a diffuse background: "
        "patterns that are blurred (plasmons), and broad rings (glass)",
    )
    hot_pixels: FewPixels | None = Field(
        None,
        description="fraction of detector pixels that read the same large value in all patterns",
    )
    dead_pixels: FewPixels | None = Field(
        None, description="fraction of detector pixels that read zero"
    )
    plasmon_thickness: MeanFreePaths | None = Field(
        None,
        description="thickness in inelastic mean free paths, by which patterns are convolved with "
        "the Lorentzians of plasmons of 10 to 30 eV, as specimen.plasmons",
    )
    counting_loss: Parts | None = Field(
        None,
        description="fraction of the electrons that the brightest pixel loses within the "
        "detector's dead time, as detector.response; weaker pixels lose less",
    )

    def given(self) -> dict[str, tuple[float, float]]:
        """Returns the ranges that are given, by name."""
        ranges = {name: getattr(self, name) for name in QUANTITIES}
        return {name: limits for name, limits in ranges.items() if limits is not None}

    def margin_angstrom(self) -> float:
        """Returns how far beyond a window the simulated scan must reach, Å: position errors and the
        source's image.
        """
        most = {name: limits[1] for name, limits in self.given().items()}
        source = JITTERS / FWHM * most.get("source_size_angstrom", 0.0)
        jitter = JITTERS * most.get("jitter_angstrom", 0.0)
        return (
            source
            + jitter
            + most.get("drift_angstrom", 0.0) / 2
            + most.get("flyback_angstrom", 0.0)
        )


# which change nothing that is drawn for the others
DRAWN_LATER = ("plasmon_thickness", "counting_loss")
QUANTITIES = tuple(name for name in Imperfections.model_fields if name != "probability")
