"""The options of a reconstruction, as its callers give them.

What follows the density if an option asks for it is a `Measure` (`preparation.py`), which names its
option. A new one takes a field here, its class in `MEASURES` of `application.py`, and an option of
the command (`../command.py`).
"""

from dataclasses import dataclass

from ..trust.consistency import THICKNESS_ANGSTROM

# The smallest and the largest number of each argument.
LIMITS = {
    "thickness_angstrom": THICKNESS_ANGSTROM,
    "passes": (0, 1000),
    "refine_steps": (0, 10_000),
    "vibration_angstrom": (1e-3, 1.0),
}


@dataclass(frozen=True)
class ReconstructionOptions:
    """Options of a reconstruction.

    Attributes:
        passes: Predictions with dropout per symmetry. `None` takes none if there are several
            symmetries, otherwise eight if the network has dropout.
        refine_steps: Steps of `train.tasks.density.scan.refine`, at most; 0 fits nothing. They
            take a thickness, as trust does.
        refine_columns: Whether these steps also fit the columns of atoms, which changes the density
            (experimental). `False` fits lens, source, thickness and tilt alone.
        pacbed: Whether the density is scaled by what the mean pattern says of its amount
            (`namsa.inverse.amount`).
        halves: Whether the halves of the scan are reconstructed, too, and compared
            (`train.tasks.density.scan.halves`).
        trust: Whether trust is measured if a thickness is known: as given, else as in the file, as
            estimated, or as pacbed fits it. `False` takes no thickness from the file.

    Example:
        >>> import namsa_train
        >>> namsa_train.ReconstructionOptions(halves=True).halves
        True
    """

    passes: int | None = None
    refine_steps: int = 0
    refine_columns: bool = False
    pacbed: bool = False
    halves: bool = False
    trust: bool = True
