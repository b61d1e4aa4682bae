"""Connection of this process to the ranks of its job.

A process is one rank of one job. `start` connects it, `engine` returns what its ranks exchange by,
`stop` disconnects it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from namsa.base import installation
from namsa.base.errors import InputError
from namsa.base.launcher import rank_and_size

from ..execution import backend
from ..experiment.exchange import Allreduce
from ..experiment.sections import Training
from .ending import exit_code, exit_without_message
from .interface import RankEngine
from .single import SingleProcess

# keys of training.exchange and training.ranks that set what Horovod does
OF_HOROVOD = {
    "exchange": tuple(key for key in Allreduce.model_fields if key != "kind"),
    "ranks": ("cache_capacity", "fusion_threshold_mib", "cycle_time_ms"),
}

_engine: RankEngine = SingleProcess()


def engine() -> RankEngine:
    """Returns the ranks of this process's job; before `start`, the process alone."""
    return _engine


def start(training: Training | None = None) -> RankEngine:
    """Connects the ranks that the launcher started. A process without a launcher is rank 0 of 1.

    Args:
        training: The section training; `None` for its defaults.

    Raises:
        InputError: If Horovod is needed, and is not there or not for JAX, or if the ranks cannot be
            connected as the launcher has started them.
    """
    global _engine  # noqa: PLW0603 - a process is one rank of one job
    training = training or Training(epochs=1)
    launched_rank, launched = rank_and_size()
    under_jax = backend.name() == "jax"
    need = _need_under_jax(training, launched) if under_jax else _need(training, launched)
    if need is None and (launched == 1 or not under_jax):
        _engine = SingleProcess()
        return _engine
    problem = _problem(*need) if need else ""
    if problem:
        error = InputError(problem)
        if launched_rank == 0:
            raise error
        raise exit_without_message(exit_code(error))
    if under_jax:
        from . import jax_processes

        # the stages of a recipe start one after the other, and JAX connects once
        if not isinstance(_engine, jax_processes.JaxProcesses):
            _engine = jax_processes.connect(launched_rank, launched)
    else:
        from . import horovod  # takes a second

        _engine = horovod.connect(training, launched_rank, launched)
    return _engine


def stop(code: int = 0) -> None:
    """Disconnects this rank, whose command ends with an exit code."""
    _engine.stop(code)


@contextmanager
def replaced(substitute: RankEngine) -> Iterator[None]:
    """Has `engine` return a substitute inside the context, as for emulated ranks."""
    global _engine  # noqa: PLW0603 - see `start`
    connected = _engine
    _engine = substitute
    try:
        yield
    finally:
        _engine = connected


def _need(training: Training, launched: int) -> tuple[str, str] | None:
    """Returns what needs Horovod, and the remedy without it; `None` if nothing does."""
    if launched > 1:
        return f"{launched} ranks need", "start one process"
    return _need_of_strategies(training)


def _need_under_jax(training: Training, launched: int) -> tuple[str, str] | None:
    """Returns what Horovod alone does; `None` if nothing is asked for.

    A single process exchanges nothing, whatever the keys of the exchange are.
    """
    need = _need_of_strategies(training)
    if need or launched == 1:
        return need
    for name, section in (("exchange", training.exchange), ("ranks", training.ranks)):
        for key in OF_HOROVOD[name]:
            value = getattr(section, key)
            default = type(section).model_fields[key].default
            # XLA sends gradients together by itself
            one_group = (key, value) == ("groups", 1)
            if value != default and not one_group:
                return f"training.{name}.{key} {value} needs", "leave it out"
    return None


def _need_of_strategies(training: Training) -> tuple[str, str] | None:
    if training.split.ways > 1:
        return f"training.split.ways {training.split.ways} needs", "set it to 1"
    if not isinstance(training.exchange, Allreduce):
        kind = training.exchange.model_dump()["kind"]
        return f"training.exchange.kind {kind} needs", "set it to allreduce"
    return None


def _problem(need: str, remedy: str) -> str:
    """Returns why Horovod cannot be used here; empty if it can."""
    if backend.name() == "jax":
        return (
            f"{need} Horovod, which exchanges no tensors of JAX: {remedy}, or compute with "
            "KERAS_BACKEND=tensorflow"
        )
    if find_spec("horovod") is None:
        return f"{need} Horovod, which is not installed: {installation.command('horovod')}"
    return ""
