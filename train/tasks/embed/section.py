"""The section training.embed."""

from pydantic import Field

from namsa.config.loading import Section


class Embed(Section):
    """Embedding of patterns in a few numbers, and what it is compared with."""

    divergence_weight: float = Field(
        1.0,
        ge=0,
        le=1e6,
        description="factor of the divergence of the latent distributions in the loss. 1 is the "
        "paper's sum; a smaller "
        "number lets the latent numbers say more of a pattern, and be less like standard normal "
        "ones",
    )
    materials: int = Field(
        4,
        ge=2,
        le=64,
        description="materials of each composite scan, in which evaluation compares clusters "
        "with materials",
    )
