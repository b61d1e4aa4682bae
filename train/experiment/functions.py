"""Keys of a configuration that name functions of other people's code (`namsa.base.registry`)."""

from collections.abc import Iterator
from typing import Annotated, Any, Protocol

from pydantic import Field

from namsa.base.registry import FUNCTION_PATTERN, allow_function

FUNCTION = "function"  # the kind, or rule, of a section that names a function
FunctionName = Annotated[str, Field(min_length=3, max_length=4096, pattern=FUNCTION_PATTERN)]


class NamesFunction(Protocol):
    """A section that may name a function."""

    @property
    def function(self) -> str | None:
        """The function, as for `namsa.base.registry.function_named`."""
        ...


def named_functions(experiment: Any) -> Iterator[tuple[str, str]]:
    """Yields the keys of an `Experiment` that name a function, and the functions."""
    training = experiment.training
    sections = {
        "network": experiment.network,
        "training.loss": training.loss,
        "training.optimizer": training.optimizer,
        "training.schedule": training.schedule,
    }
    for key, section in sections.items():
        reference = getattr(section, FUNCTION, None)
        if reference is not None:
            yield f"{key}.{FUNCTION}", reference


def allow_functions(experiment: Any) -> None:
    """Allows the functions of a configuration with which a command was started."""
    for _, reference in named_functions(experiment):
        allow_function(reference)


def check_function(section: NamesFunction, choice: str) -> None:
    """Raises ValueError unless a section names a function exactly if its choice is `FUNCTION`.

    Args:
        section: The section.
        choice: Its key that chooses, as "kind".
    """
    chosen = getattr(section, choice)
    if chosen == FUNCTION and section.function is None:
        raise ValueError(f"{choice} function needs function: set it to module:function")
    if chosen != FUNCTION and section.function is not None:
        raise ValueError(
            f"function {section.function} has no effect with {choice} {chosen}: leave it out, or "
            f"set {choice} to function"
        )
