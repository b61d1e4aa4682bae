"""Parts of a compiled step of JAX: the share of the time that each takes, and the bytes of its
messages.

XLA's text of the step says what each instruction does. A trace of the profiler says how long it
took. Threads of a convolution on processors are not traced by themselves, so that shares are right
on one core (`taskset -c 0`), or on a GPU.
"""

import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

CONVOLUTIONS = "convolutions"
RANDOM_NUMBERS = "random numbers of dropout"
MESSAGES = "messages between devices"
REST = "the rest"
ITEM_BYTES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "s32": 4, "u32": 4, "pred": 1}

_COMPUTATION = re.compile(r"^(?:ENTRY )?%([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%([\w.\-]+) = (.*?) ([a-z][\w\-]*)\(")
_CALLED = re.compile(r"(?:calls|to_apply)=%([\w.\-]+)")
_SHAPE = re.compile(r"(\w+)\[([\d,]*)\]")


def parts_of(text: str) -> dict[str, str]:
    """Returns the part that each instruction of a compiled step belongs to, by its name.

    Args:
        text: Of `jax.stages.Compiled.as_text`.
    """
    bodies: dict[str, str] = {}
    instructions: dict[str, str] = {}
    computation = ""
    for line in text.splitlines():
        if opened := _COMPUTATION.match(line):
            computation = opened.group(1)
        elif match := _INSTRUCTION.match(line):
            instructions[match.group(1)] = line
            bodies[computation] = f"{bodies.get(computation, '')}{line}\n"
    parts = {}
    for name, line in instructions.items():
        called = _CALLED.search(line)
        parts[name] = _part(line + bodies.get(called.group(1), "") if called else line)
    return parts


def _part(text: str) -> str:
    """Returns the part of an instruction, by its line and those of what it calls."""
    if " convolution(" in text or ("custom-call(" in text and "conv" in text):
        return CONVOLUTIONS
    if " all-reduce" in text:
        return MESSAGES
    # nothing else of a step computes with bits
    if " xor(" in text:
        return RANDOM_NUMBERS
    return REST


def message_bytes(text: str) -> int:
    """Returns the bytes that the devices of a compiled step sum over each other, counted once."""
    total = 0
    for line in text.splitlines():
        match = _INSTRUCTION.match(line)
        if match is None or match.group(3) not in ("all-reduce", "all-reduce-start"):
            continue
        for dtype, sizes in _SHAPE.findall(match.group(2)):
            count = 1
            for size in filter(None, sizes.split(",")):
                count *= int(size)
            total += count * ITEM_BYTES[dtype]
    return total


def shares(text: str, run_step: Callable[[], Any], steps: int) -> Mapping[str, float]:
    """Returns the share of each part in the time of a compiled step, from a trace of some steps."""
    import jax

    parts = parts_of(text)
    times = dict.fromkeys((CONVOLUTIONS, RANDOM_NUMBERS, MESSAGES, REST), 0.0)
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for _ in range(steps):
                run_step()
        (file,) = Path(folder).rglob("*.xplane.pb")
        trace = jax.profiler.ProfileData.from_file(str(file))
        for plane in trace.planes:
            for line in plane.lines:
                for event in line.events:
                    operation = dict(event.stats).get("hlo_op")
                    if operation in parts and event.name == operation:
                        times[parts[operation]] += event.duration_ns
    total = sum(times.values())
    return {part: time / total for part, time in times.items()}
