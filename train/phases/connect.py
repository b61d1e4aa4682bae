"""Ranks: they connect, agree on the configuration, and form groups that divide samples."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from namsa.base.errors import InputError
from namsa.config.loading import config_hash

from ..execution import backend
from ..experiment.experiment import Experiment, load
from ..experiment.functions import allow_functions
from ..input.division import RankDivision, division_of
from ..ranks import connection, signals
from ..ranks.connection import engine
from ..ranks.signals import StopRequest
from ..ranks.watchdog import Watchdog
from ..ranks.watching import watch


@dataclass(frozen=True)
class Job:
    """A job as one of its ranks sees it."""

    experiment: Experiment  # the configuration
    evaluate_only: bool  # whether samples and weights are used as they are
    rank: int  # number of this rank
    ranks: int  # number of ranks
    device: str  # this rank's share of its node, in words
    # What the parts of a divided sample exchange; `None` for whole samples.
    split: RankDivision | None
    stop_request: StopRequest  # the signal that asks the job to stop
    watchdog: Watchdog  # finds a rank that stalls
    started: float  # time at the start, s, of `time.perf_counter`

    @property
    def ways(self) -> int:
        """Ranks that divide a sample. Where samples and rates are shared out, such a group counts
        as one rank.
        """
        return self.split.ranks if self.split else 1

    @property
    def group(self) -> int:
        """Number of this rank's group."""
        return self.rank // self.ways

    @property
    def groups(self) -> int:
        """Number of groups."""
        return self.ranks // self.ways


@contextmanager
def connect(config: Path, overrides: Sequence[str], evaluate_only: bool) -> Iterator[Job]:
    """Yields the job, whose ranks are watched until the context ends. Collective.

    The ranks connect before anything can fail, so that one whose configuration is not valid can end
    the others.

    Raises:
        InputError: If the configuration is not valid, differs between the ranks, or does not fit
            their number.
    """
    started = time.perf_counter()
    with signals.listen() as stop_request:
        experiment = load_connected(config, overrides)
        if not evaluate_only:  # of a run, whose configuration is data
            allow_functions(experiment)
        rank = engine().rank()
        ranks = engine().size()
        device = backend.execution().claim(engine().local_rank(), engine().local_size())
        with engine().local_work():
            if evaluate_only:
                experiment = experiment.model_copy(update={"data": experiment.data.as_it_lies()})
            device += _convolutions_in_words(experiment)
        engine().check_same(config_hash(experiment), "the configuration's hash")
        training = experiment.training
        hosts = engine().nodes()
        with engine().local_work():
            training.exchange.check_hosts(hosts)
        split = division_of(training.split, experiment.network.input_shape)
        if evaluate_only and ranks == 1:
            # Evaluation keeps no maps for a backward pass: one process evaluates whole samples.
            split = None
        with watch(
            engine(), training.ranks.stall_warning_s, training.ranks.watchdog_radix
        ) as watchdog:
            yield Job(
                experiment=experiment,
                evaluate_only=evaluate_only,
                rank=rank,
                ranks=ranks,
                device=device,
                split=split,
                stop_request=stop_request,
                watchdog=watchdog,
                started=started,
            )


def _convolutions_in_words(experiment: Experiment) -> str:
    """Returns what computes convolutions that TensorFlow itself does not compute here, as an
    addition to the device.
    """
    data_format = experiment.network.data_format
    compute = experiment.training.precision.compute
    if backend.execution().convolves(data_format, compute):
        return ""
    if experiment.training.split.ways > 1:
        raise InputError(
            f"network.data_format is {data_format}, which TensorFlow does not compute in {compute} "
            "on this processor, and XLA not with training.split: use a GPU, set "
            "network.data_format to channels_last, or TF_ENABLE_ONEDNN_OPTS=1 in the environment "
            "for float32"
        )
    return ", channels first by XLA"


def load_connected(config: Path, overrides: Sequence[str]) -> Experiment:
    """Returns a configuration once the ranks are connected as it says. Collective.

    Raises InputError if it is not valid, which ends the other ranks, too.
    """
    invalid: InputError | None = None
    try:
        experiment = load(config, overrides)
    except InputError as error:
        invalid = error
    connection.start(None if invalid else experiment.training)
    with engine().local_work():
        if invalid:
            raise invalid
    return experiment
