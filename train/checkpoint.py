"""A training job's state in one file of arrays, written whole or not at all.

`checkpoints/step-000001234.npz` holds every variable of the network and of the optimizer (moments, counters, loss
scale), in order, and a JSON header: format, step, epoch (the next to train), the network's configuration, the
variables' names and an xxh3 digest of the arrays. No pickles. Files appear by renaming, after their bytes are on disk.
"""

import json
import os
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import xxhash

from fcdensenet.config import NetworkConfig
from namsa.errors import InputError, WorkError

FORMAT = "train-checkpoint-1"


@dataclass(frozen=True)
class Progress:
    """How far a job has come: `step` steps, and `epoch` whole epochs."""

    step: int = 0
    epoch: int = 0


def save(
    directory: Path, progress: Progress, variables: Sequence[keras.Variable], network: NetworkConfig, keep: int
) -> Path:
    """Writes the checkpoint of `progress` and removes all but the newest `keep`. Raises WorkError where it cannot."""
    arrays = [np.asarray(variable) for variable in variables]
    header = {
        "format": FORMAT,
        "step": progress.step,
        "epoch": progress.epoch,
        "network": network.model_dump(mode="json"),
        "variables": [variable.path for variable in variables],
        "digest": _digest(arrays),
    }
    path = directory / f"step-{progress.step:09d}.npz"
    partial = path.with_suffix(".partial")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            named = {f"{index:05d}": array for index, array in enumerate(arrays)}
            np.savez(file, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **named)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        for old in _newest_first(directory)[keep:]:
            old.unlink()
    except OSError as error:
        raise WorkError(f"cannot write the checkpoint {path}: {error.strerror}") from None
    return path


def restore(directory: Path, variables: Sequence[keras.Variable], network: NetworkConfig) -> Progress:
    """Sets `variables` from the newest whole checkpoint in `directory`; where there is none they stay as they are.

    A broken file is passed over for the one before, with a warning on stderr. Raises InputError where the checkpoint
    is of another network or optimizer, and names the first difference; WorkError where every file is broken.
    """
    paths = _newest_first(directory)
    for path in paths:
        try:
            header, arrays = _read(path)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            print(f"warning: the checkpoint {path} is broken ({error}); trying the one before", file=sys.stderr)
            continue
        _check_fits(path, header, arrays, variables, network)
        for variable, array in zip(variables, arrays, strict=True):
            variable.assign(array)
        return Progress(header["step"], header["epoch"])
    if paths:
        raise WorkError(f"every checkpoint in {directory} is broken: remove them to start anew")
    return Progress()


def _newest_first(directory: Path) -> list[Path]:
    return sorted(directory.glob("step-*.npz"), reverse=True)


def _digest(arrays: Sequence[np.ndarray]) -> str:
    digest = xxhash.xxh3_128()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _read(path: Path) -> tuple[dict[str, Any], list[np.ndarray]]:
    with np.load(path, allow_pickle=False) as file:
        header = json.loads(file["header"].tobytes())
        if header["format"] != FORMAT:
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
