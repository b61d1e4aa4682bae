"""Checkpoints: the state of a training job in one file of arrays, written completely or not at all.

`checkpoints/step-000001234.npz` holds every variable of the network and of the optimizer (moments,
counters, loss scale, the seeds of dropout), in order, behind them what further ranks keep for
themselves (see `train.ranks.exchange.Exchange.state_of_ranks`), and a JSON header: format, step,
epoch (the next to train or to continue), samples taken of that epoch, the number of ranks, the
network's configuration, the variables' names, an xxh3 digest of the arrays, and what made them
(`train.optimization.origin`). Rates, deltas, orders and symmetries follow from these. There are no
pickles. Files are renamed to their name after their bytes are on disk.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import numpy.typing as npt
import xxhash

from namsa.base.errors import WorkError
from namsa.base.files import make_folder, open_atomic
from namsa.base.json_files import parse_json
from namsa.base.numpy_files import read_npz
from namsa.base.text import shorten

from ..experiment.sections import Checkpoints
from ..networks import Network
from .checkpoint_fit import Header, check_fits
from .origin import ORIGIN, Origin, origin_of

if TYPE_CHECKING:  # headers are read without Keras
    import keras

FORMAT = "train-checkpoint-2"

LARGEST_COUNT = 2**53  # of steps, epochs, samples and ranks

OF_RANK = "moments_of_rank_"  # begins the names of arrays that are no variables of rank 0

BROKEN = (OSError, ValueError, KeyError)  # what `read` raises for a broken file

_LARGEST_RATIO = 32  # of unpacked to packed bytes: kernels of which two thirds are zeros have 3


@dataclass(frozen=True)
class TrainingPosition:
    """Progress of a job. The names are the keys of a checkpoint's header."""

    step: int = 0  # steps taken
    epoch: int = 0  # whole epochs taken
    # Samples of the next epoch's common order that have been trained on since (of each node's own
    # order, if nodes hold different samples).
    taken: int = 0
    ranks: int = 0  # number of ranks that took the last step; 0 before the first


@dataclass(frozen=True)
class RestoredState:
    """The checkpoint from which a job continues, if there is one."""

    position: TrainingPosition  # how far the job has come
    path: Path | None = None  # the checkpoint; `None` without one
    origin: Origin | None = None  # what made it; `None` without one and in earlier versions


def resumption_line(position: TrainingPosition, ranks: int, lost: str = "") -> str:
    """Returns a line about where a job continues, what other ranks change, and what their exchange
    has lost.
    """
    text = f"resumed after step {position.step}, {position.epoch} whole epochs"
    if position.taken:
        text += f" and {position.taken} samples of the next"
    if position.ranks not in (0, ranks):
        text += (
            f"; a run of {position.ranks} rank{'s' * (position.ranks > 1)} continues with {ranks}: "
            "weights, moments, loss scale and the order of samples stay; a step's samples, "
            "dropout and the learning rate follow the ranks"
        )
    return f"{text}; {lost}" if lost else text


class CheckpointSchedule:
    """When a checkpoint is due. Times are of this process: only rank 0, which writes them, asks."""

    def __init__(self, config: Checkpoints) -> None:
        self.config = config
        self.last = time.monotonic()

    def due_within_epoch(self, position: TrainingPosition) -> bool:
        """Returns whether a checkpoint is due after a step within an epoch."""
        steps = self.config.every_steps
        seconds = self.config.every_seconds
        late = seconds is not None and time.monotonic() - self.last >= seconds
        return late or (steps is not None and position.step % steps == 0)

    def due_after_epoch(self, position: TrainingPosition) -> bool:
        """Returns whether a checkpoint is due after a whole epoch."""
        return position.epoch % self.config.every_epochs == 0 or self.due_within_epoch(position)

    def record_written(self) -> None:
        """Counts `every_seconds` from now on."""
        self.last = time.monotonic()


@dataclass(eq=False)
class HostVariable:
    """A variable of a checkpoint in memory of the host: a copy, or one that no rank but rank 0 has
    whole.
    """

    path: str
    array: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the variable."""
        return self.array.shape

    @property
    def dtype(self) -> str:
        """Type of the variable."""
        return self.array.dtype.name

    def assign(self, value: npt.ArrayLike) -> None:
        """Sets the variable."""
        self.array[...] = value

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.array, dtype, copy=copy)


def copied(variables: Sequence["keras.Variable"]) -> list[HostVariable]:
    """Copies variables into memory of the host, where they stay as they are while training goes
    on.
    """
    return [HostVariable(variable.path, np.array(variable)) for variable in variables]


class BackgroundWriter:
    """Writes a checkpoint behind the training; see `background_writer`."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._writing: Future[None] | None = None

    def start(self, write: Callable[[], None]) -> None:
        """Starts to write, after the write before: one copy of the state at most is in memory."""
        self.wait()
        self._writing = self._pool.submit(write)

    def check(self) -> None:
        """Raises the error of a write that has failed."""
        if self._writing and self._writing.done():
            self.wait()

    def wait(self) -> None:
        """Waits for the last write, and raises its error."""
        writing = self._writing
        self._writing = None
        if writing:
            writing.result()


@contextmanager
def background_writer() -> Iterator[BackgroundWriter]:
    """Yields a writer. Leaving the context waits for the last write."""
    with ThreadPoolExecutor(1, "checkpoint") as pool:
        writer = BackgroundWriter(pool)
        yield writer
        writer.wait()


def save(
    directory: Path,
    position: TrainingPosition,  # how far the job has come
    variables: Sequence["keras.Variable | HostVariable"],  # of the network and the optimizer
    network: Network,  # the network's configuration
    keep: int,
    others: Sequence[np.ndarray] = (),  # moments of each rank but the first, if they are its own
    origin: Origin | None = None,  # what made the variables
) -> Path:
    """Writes a checkpoint and removes all but the newest; returns the file. Raises WorkError if it
    cannot.
    """
    path = directory / f"step-{position.step:09d}.npz"
    try:
        make_folder(directory)
        for partial in directory.glob(".step-*"):  # of a job that was killed
            partial.unlink()
        save_as(path, position, variables, network, others, origin)
        prune(directory, keep)
    except (OSError, WorkError) as error:
        newest = next((older.name for older in newest_first([directory])), "none")
        raise WorkError(f"{error} (the newest before it: {newest})") from None
    return path


def save_as(
    path: Path,
    position: TrainingPosition,
    variables: Sequence["keras.Variable | HostVariable"],
    network: Network,
    others: Sequence[np.ndarray] = (),
    origin: Origin | None = None,
) -> None:
    """Writes a checkpoint to a file of any name. See `save`."""
    facts = {**asdict(position), "network": network.model_dump(mode="json")}
    if origin:
        facts[ORIGIN] = origin.to_json()
    names = [variable.path for variable in variables] + [
        f"{OF_RANK}{rank + 1}" for rank in range(len(others))
    ]
    with open_atomic(path) as file:
        write(file, facts, names, [*map(np.asarray, variables), *others])


def restore(
    directories: Sequence[Path],  # folders of checkpoints
    variables: Sequence["keras.Variable"],  # of the network and the optimizer
    network: Network,  # the network's configuration
    # takes the moments of each rank but the first, if the checkpoint has them
    others: list[np.ndarray] | None = None,
) -> RestoredState:
    """Sets `variables` from the newest checkpoint that is not broken. Without a checkpoint they
    stay as they are.

    A broken file is skipped for the one before, with a warning on stderr.

    Returns:
        How far the job has come, and the checkpoint that says so.

    Raises:
        InputError: If the checkpoint is of another network or optimizer; names the first
            difference.
        WorkError: If every file is broken.
    """
    paths = newest_first(directories)
    for path in paths:
        try:
            header, arrays = read(path)
        except BROKEN as error:
            print(
                f"warning: the checkpoint {path} is broken ({error}); trying the one before",
                file=sys.stderr,
            )
            continue
        shared_variables = sum(not name.startswith(OF_RANK) for name in header["variables"])
        arrays, further = arrays[:shared_variables], arrays[shared_variables:]
        check_fits(path, header, arrays, variables, network)
        if others is not None:
            others[:] = further
        for variable, array in zip(variables, arrays, strict=True):
            variable.assign(array)
        numbers = {field.name: header.get(field.name, 0) for field in fields(TrainingPosition)}
        return RestoredState(TrainingPosition(**numbers), path, origin_of(header))
    if paths:
        where = " and ".join(map(str, directories))
        raise WorkError(f"every checkpoint in {where} is broken: remove them to start anew")
    return RestoredState(TrainingPosition())


def newest_first(directories: Sequence[Path]) -> list[Path]:
    """Returns the checkpoints in all `directories`. Of equal names, that in the first directory
    comes first.
    """
    paths = [path for directory in directories for path in directory.glob("step-*.npz")]
    return sorted(paths, key=lambda path: path.name, reverse=True)


def newest_header(directories: Sequence[Path]) -> tuple[Path, Header] | None:
    """Returns the newest checkpoint whose header is intact, with the header; `None` without one.

    Arrays are not read, so that they may be broken.
    """
    for path in newest_first(directories):
        try:
            return path, read_header(path)
        except BROKEN:
            continue
    return None


def prune(directory: Path, keep: int) -> None:
    """Removes all checkpoints but the newest `keep`."""
    for old in newest_first([directory])[keep:]:
        old.unlink()


def _digest(arrays: Sequence[np.ndarray]) -> str:
    """Returns the xxh3 digest of types, shapes and bytes."""
    digest = xxhash.xxh3_128()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def write(
    file: BinaryIO,
    facts: Mapping[str, object],  # for the header; JSON types
    names: Sequence[str],  # names of the variables
    arrays: Sequence[np.ndarray],  # their values
    *,
    compress: bool = False,  # whether to compress the arrays; `read` takes either
) -> None:
    """Writes a checkpoint in its file format."""
    header = {"format": FORMAT, **facts, "variables": list(names), "digest": _digest(arrays)}
    numbered = {f"{index:05d}": array for index, array in enumerate(arrays)}
    save_arrays = np.savez_compressed if compress else np.savez
    save_arrays(file, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **numbered)


def read(path: Path) -> tuple[Header, list[np.ndarray]]:
    """Returns a checkpoint's header and arrays. Raises one of `BROKEN` if the file is broken."""
    arrays = read_npz(path, largest_bytes=_LARGEST_RATIO * path.stat().st_size)
    header = _checked_header(parse_json(arrays["header"].tobytes().decode(), "its header"))
    variables = [arrays[f"{index:05d}"] for index in range(len(header["variables"]))]
    if _digest(variables) != header["digest"]:
        raise ValueError("its digest does not match its arrays")
    return header, variables


def read_header(path: Path) -> Header:
    """Returns a checkpoint's header, without reading its arrays. Raises one of `BROKEN` if it is
    broken.
    """
    arrays = read_npz(path, largest_bytes=_LARGEST_RATIO * path.stat().st_size, names=("header",))
    return _checked_header(parse_json(arrays["header"].tobytes().decode(), "its header"))


def _checked_header(header: object) -> Header:
    """Returns a header whose values have the types that the job relies on; raises ValueError if
    they have not.
    """
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        stated = header.get("format") if isinstance(header, dict) else header
        raise ValueError(f"its format is {shorten(stated)}, not {FORMAT}")
    names = header.get("variables")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("its header has no list of variables")
    if not isinstance(header.get("network"), dict):
        raise ValueError("its header has no network")
    for field in fields(TrainingPosition):
        value = header.get(field.name, 0)
        if not isinstance(value, int) or not 0 <= value < LARGEST_COUNT:
            raise ValueError(f"its header has {field.name} {shorten(value)}, not a count")
    origin_of(header)  # which raises ValueError
    return header
