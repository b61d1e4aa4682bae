"""The .emi of TIA, as far as its text goes: which .ser belong to it, and what its XML says of the
microscope.

An .emi is binary around an XML `ObjectInfo`, whose `ExperimentalDescription` lists labels, values
and units. Only these lines are read, as text.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from namsa.base.errors import InputError
from namsa.base.files import read_bytes
from namsa.base.text import shorten
from namsa.io.siblings import siblings
from namsa.io.units import finite, positive

EMI_BYTES = 2**28
INFO = b"<ObjectInfo>"
INFO_END = b"</ObjectInfo>"
INFO_BYTES = 2**22
LINE = re.compile(
    r"<Label>([^<]{1,80})</Label>\s*<Value>([^<]{0,80})</Value>\s*<Unit>([^<]{0,20})</Unit>"
)
EV = {"kV": 1e3, "V": 1.0}
KEPT = ("Camera length", "Mode", "Magnification", "STEM Rotation", "Stem Rotation")


@dataclass(frozen=True)
class TiaExperiment:
    """Contents of an .emi file."""

    energy_ev: float | None = None
    metadata: dict[str, object] = field(default_factory=dict)


def series_of(emi: Path, is_images: Callable[[Path], bool]) -> Path:
    """Returns the only series of images that belongs to an .emi.

    Raises:
        InputError: If there is none, or if there are several.
    """
    pattern = re.compile(rf"{re.escape(emi.stem)}_\d+\.ser", re.IGNORECASE)
    series = [path for path in siblings(emi, ".ser") if pattern.fullmatch(path.name)]
    images = [path for path in series if is_images(path)]
    if len(images) == 1:
        return images[0]
    names = ", ".join(path.name for path in images)
    if images:
        raise InputError(f"{emi} has several series of images: give one of {shorten(names, 200)}")
    raise InputError(
        f"{emi} holds no patterns, and there is no {emi.stem}_1.ser of images beside it"
    )


def beside(ser: Path) -> TiaExperiment:
    """Returns what the .emi beside a series says; nothing without one."""
    base = re.sub(r"_\d+$", "", ser.stem)
    for name in (f"{base}.emi", f"{base}.EMI"):
        emi = ser.with_name(name)
        if emi.is_file():
            return _experiment(emi)
    return TiaExperiment()


def _experiment(emi: Path) -> TiaExperiment:
    data = read_bytes(emi, largest_bytes=EMI_BYTES)
    start = data.find(INFO)
    end = data.find(INFO_END, start, start + INFO_BYTES) if start >= 0 else -1
    if end < 0:
        return TiaExperiment(metadata={"emi": emi.name})
    info = data[start:end]
    energy = None
    metadata: dict[str, object] = {"emi": emi.name}
    for label, value, unit in LINE.findall(info.decode("utf-8", "replace")):
        if label == "High tension" and unit in EV:
            voltage = positive(value)
            energy = None if voltage is None else EV[unit] * voltage
        elif label in KEPT:
            finite_value = finite(value)
            text = shorten(value, 80) if finite_value is None else f"{finite_value:g}"
            metadata[label.lower().replace(" ", "_")] = f"{text} {unit}".strip()
    return TiaExperiment(energy, metadata)
