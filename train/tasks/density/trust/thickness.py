"""Whether a specimen of unknown thickness is thicker than its network has learnt: by two networks,
of which one has learnt thicker specimens.

Of specimens that are thicker than a network is right for it predicts too few electrons. Their
patterns are not unlike those that it knows, so that neither familiarity nor the stated error shows
it. A network that has learnt thicker specimens predicts more. The ratio of the two densities, a
least-squares factor, is 0.8 to 1.19 for nearly all specimens of 30 to 90 Å, and grows with the
thickness (docs/benchmarks/reconstruction.md).
"""

from typing import TypedDict

MORE = 1.22  # times as many electrons: a thick specimen
THICK_ANGSTROM = 120  # from which on the ratio is larger than that in the mean


class ThickerFacts(TypedDict):
    """The comparison of two networks, as a result's file holds it."""

    network: str  # name of the one that has learnt thicker specimens
    compared_with: str  # name of the other
    electrons_ratio: float  # of the former's density over the latter's


def is_thicker(facts: ThickerFacts | None) -> bool:
    """Returns whether the specimen is probably thicker than its network has learnt. False for
    `None`.
    """
    return facts is not None and facts["electrons_ratio"] > MORE


def thicker_line(facts: ThickerFacts, model: str) -> str:
    """Returns the line about the comparison.

    Args:
        facts: The comparison.
        model: Name of the scan's network.
    """
    line = (
        f"thickness: not known. {facts['network']} predicts {facts['electrons_ratio']:.2f} times "
        f"the electrons of {facts['compared_with']}"
    )
    if not is_thicker(facts):
        return line
    return (
        f"{line}, more than {MORE}, as of specimens thicker than about {THICK_ANGSTROM} Å. Do not "
        f"rely on the amount of {model} or its uncertainty: give --thickness-angstrom if it is "
        f"thinner, or use --checkpoint {facts['network']}"
    )
