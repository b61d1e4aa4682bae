"""Horovod's own record of what it did (HOROVOD_TIMELINE)."""

import json


def read(path):
    """(events, names of tensors by process id)."""
    events = [event for event in json.loads(path.read_text()) if "ph" in event]
    named = [event for event in events if event.get("name") == "process_name" and "name" in event.get("args", {})]
    return events, {event["pid"]: event["args"]["name"] for event in named}


def data_operations(events, tensors):
    """The sets of tensors that went through the wire together, in order."""
    operations, open_now = [], None
    for event in events:
        if event.get("name") == "GLOO_ALLREDUCE":
            if open_now is None:
                operations.append(open_now := set())
            open_now.add(tensors[event["pid"]])
        elif event["ph"] == "E":
            open_now = None
    return operations
