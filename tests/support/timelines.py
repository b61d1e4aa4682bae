"""Messages between ranks: Horovod's own record of what it did (HOROVOD_TIMELINE), and a count
of bytes.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from train.ranks.connection import engine


def read(path: Path) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """(events, names of tensors by process id)."""
    events = []
    for event in json.loads(path.read_text()):
        if "ph" in event:
            events.append(event)
    named = []
    for event in events:
        if event.get("name") == "process_name" and "name" in event.get("args", {}):
            named.append(event)
    return events, {event["pid"]: event["args"]["name"] for event in named}


def data_operations(events: list[dict[str, Any]], tensors: dict[int, str]) -> list[set[str]]:
    """The sets of tensors that went through the wire together, in order."""
    operations: list[set[str]] = []
    open_now: set[str] | None = None
    for event in events:
        if event.get("name") == "GLOO_ALLREDUCE":
            if open_now is None:
                open_now = set()
                operations.append(open_now)
            open_now.add(tensors[event["pid"]])
        elif event["ph"] == "E":
            open_now = None
    return operations


def metered(sent: list[int], own_rank: int, names: list[str]) -> Callable[..., tf.Tensor]:
    """`engine().all_to_all` that adds to `sent` the bytes for ranks but number `own`, and to
    `names` the names.
    """
    all_to_all = engine().all_to_all

    def add(values: Any, size: Any) -> Any:
        sent.append(int(values) * int(size))
        return values

    def exchange(flat: tf.Tensor, splits: Any, name: str, *members: Any) -> tf.Tensor:
        names.append(name)
        with tf.control_dependencies(
            [tf.py_function(add, [tf.size(flat) - splits[own_rank], flat.dtype.size], tf.int32)]
        ):
            return all_to_all(tf.identity(flat), splits, name, *members)

    return exchange
