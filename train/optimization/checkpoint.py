"""A training job's state in one file of arrays, written whole or not at all.

`checkpoints/step-000001234.npz` holds every variable of the network and of the optimizer (moments, counters, loss
scale, the seeds of dropout), in order, and a JSON header: format, step, epoch (the next to train or to go on with),
samples taken of that epoch, the number of ranks, the network's configuration, the variables' names and an xxh3 digest
of the arrays. Rates, deltas, orders and symmetries follow from these. No pickles. Files appear by renaming, after
their bytes are on disk.
"""

import json
import sys
import time
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO

import keras
import numpy as np
import xxhash

from fcdensenet.config import NetworkConfig
from namsa.errors import InputError, WorkError
from namsa.files import make_folder, open_atomic
from train.experiment.sections import Checkpoints

FORMAT = "train-checkpoint-2"
READABLE = ("train-checkpoint-1", FORMAT)  # the first knew whole epochs only

BROKEN = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile)  # what reading raises


@dataclass(frozen=True)
class Progress:
    """How far a job has come.

    step: steps taken
    epoch: whole epochs among them
    taken: samples of the next epoch's common order that have been trained on since (of each node's own order, where
        nodes hold different samples)
    ranks: that took the last step; 0 before the first
    """

    step: int = 0
    epoch: int = 0
    taken: int = 0
    ranks: int = 0


class Due:
    """When a checkpoint is due. Seconds are this process's own: rank 0 alone asks, for rank 0 alone writes."""

    def __init__(self, config: Checkpoints) -> None:
        self.config, self.last = config, time.monotonic()

    def within(self, progress: Progress) -> bool:
        """Whether one is due after a step within an epoch."""
        steps, seconds = self.config.every_steps, self.config.every_seconds
        late = seconds is not None and time.monotonic() - self.last >= seconds
        return late or (steps is not None and progress.step % steps == 0)

    def after(self, progress: Progress) -> bool:
        """Whether one is due after a whole epoch."""
        return progress.epoch % self.config.every_epochs == 0 or self.within(progress)

    def done(self) -> None:
        self.last = time.monotonic()


def save(
    directory: Path, progress: Progress, variables: Sequence[keras.Variable], network: NetworkConfig, keep: int
) -> Path:
    """Writes the checkpoint of `progress` and removes all but the newest `keep`. Raises WorkError where it cannot."""
    path = directory / f"step-{progress.step:09d}.npz"
    try:
        make_folder(directory)
        for left_over in directory.glob(".step-*"):  # of a job that was killed
            left_over.unlink()
        facts = {**asdict(progress), "network": network.model_dump(mode="json")}
        with open_atomic(path) as file:
            write(file, facts, [variable.path for variable in variables], list(map(np.asarray, variables)))
        prune(directory, keep)
    except (OSError, WorkError) as error:
        before = next((older.name for older in newest_first([directory])), "none")
        raise WorkError(f"{error} (the newest before it: {before})") from None
    return path


def restore(places: Sequence[Path], variables: Sequence[keras.Variable], network: NetworkConfig) -> Progress:
    """Sets `variables` from the newest whole checkpoint in `places`; where there is none they stay as they are.

    A broken file is passed over for the one before, with a warning on stderr. Raises InputError where the checkpoint
    is of another network or optimizer, and names the first difference; WorkError where every file is broken.
    """
    paths = newest_first(places)
    for path in paths:
        try:
            header, arrays = read(path)
        except BROKEN as error:
            print(f"warning: the checkpoint {path} is broken ({error}); trying the one before", file=sys.stderr)
            continue
        _check_fits(path, header, arrays, variables, network)
        for variable, array in zip(variables, arrays, strict=True):
            variable.assign(array)
        return Progress(**{field.name: header.get(field.name, 0) for field in fields(Progress)})
    if paths:
        where = " and ".join(map(str, places))
        raise WorkError(f"every checkpoint in {where} is broken: remove them to start anew")
    return Progress()


def newest_first(places: Sequence[Path]) -> list[Path]:
    """The checkpoints in all `places`; of one that several hold, the first place's comes first."""
    paths = [path for place in places for path in place.glob("step-*.npz")]
    return sorted(paths, key=lambda path: path.name, reverse=True)


def prune(directory: Path, keep: int) -> None:
    """Removes all but the newest `keep`."""
    for old in newest_first([directory])[keep:]:
        old.unlink()


def _digest(arrays: Sequence[np.ndarray]) -> str:
    digest = xxhash.xxh3_128()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def write(file: BinaryIO, facts: Mapping[str, Any], names: Sequence[str], arrays: Sequence[np.ndarray]) -> None:
    """The format itself: `facts` for the header, and the arrays with their variables' names."""
    header = {"format": FORMAT, **facts, "variables": list(names), "digest": _digest(arrays)}
    numbered = {f"{index:05d}": array for index, array in enumerate(arrays)}
    np.savez(file, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **numbered)


def read(path: Path) -> tuple[dict[str, Any], list[np.ndarray]]:
    """A checkpoint's header and arrays. Raises one of `BROKEN` where it is."""
    with np.load(path, allow_pickle=False) as file:
        header = json.loads(file["header"].tobytes())
        if header["format"] not in READABLE:
            raise ValueError(f"its format is {header['format']}, not {FORMAT}")
        arrays = [file[f"{index:05d}"] for index in range(len(header["variables"]))]
    if _digest(arrays) != header["digest"]:
        raise ValueError("its digest does not match its arrays")
    return header, arrays


def _check_fits(
    path: Path,
    header: dict[str, Any],
    arrays: Sequence[np.ndarray],
    variables: Sequence[keras.Variable],
    network: NetworkConfig,
) -> None:
    remedy = "use another --run-dir, or the configuration this run was started with"
    for key, now in network.model_dump(mode="json").items():
        if (then := header["network"].get(key)) != now:
            raise InputError(f"{path} is of a network with {key} {then}, the configuration says {now}: {remedy}")
    then_all = [(name, array.shape, array.dtype.name) for name, array in zip(header["variables"], arrays, strict=True)]
    now_all = [(variable.path, tuple(variable.shape), variable.dtype) for variable in variables]
    for then, now in zip(then_all, now_all, strict=False):
        if then != now:
            raise InputError(f"{path} holds {_text(then)} where the job has {_text(now)}: {remedy}")
    if len(then_all) != len(now_all):
        raise InputError(f"{path} holds {len(then_all)} variables, the job has {len(now_all)}: {remedy}")


def _text(variable: tuple[str, tuple[int, ...], str]) -> str:
    name, shape, dtype = variable
    return f"{name} {dtype}{list(shape)}"
