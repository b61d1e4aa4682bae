"""Whether a specimen of unknown thickness is thicker than its network has learnt: by a second
network, which has learnt thicker ones.

Of specimens that are thicker than a network has learnt it predicts too few electrons. Their
patterns are not unlike those that it knows, so that neither familiarity nor the stated error shows
it. A network that has learnt thicker specimens predicts more. Both see some windows of the scan;
the ratio of their densities is a least-squares factor. The ratios of thin and thick crystals are in
docs/benchmarks/reconstruction.md.
"""

from typing import TypedDict

MORE = 1.17  # times as many electrons: a thicker specimen than the network has learnt


class ThickerFacts(TypedDict):
    """The comparison, as a result's file holds it."""

    network: str  # name of the network for thicker specimens
    learnt_angstrom: list[float]  # the least and the largest thickness that it has learnt, Å
    electrons_ratio: float  # its density over that of the scan's network


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
    least, most = facts["learnt_angstrom"]
    line = (
        f"thickness: not known. {facts['network']}, which learnt {least:.4g} to {most:.4g} Å, "
        f"predicts {facts['electrons_ratio']:.2f} times the electrons of {model}"
    )
    if not is_thicker(facts):
        return line
    return (
        f"{line}, more than {MORE}: the specimen is probably thicker than {model} is right for. Do "
        f"not rely on the amount of the density or its uncertainty: give --thickness-angstrom, or "
        f"use --checkpoint {facts['network']}"
    )
