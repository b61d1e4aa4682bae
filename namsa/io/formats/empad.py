"""EMPAD and EMPAD-G2: .raw of little-endian float32, and the .xml beside it.

A frame of the first generation has 130 rows of 128 numbers, of which the first 128 are the detector and the last two
are no pixels. One of EMPAD-G2, as its software exports it, has the 128 rows alone. Its recording before that export has
words of analogue and digital counts and a gain bit, which only the sensor's own calibration makes numbers: it is
refused. The XML names the .raw file, the scan, the voltage and, in some versions, the angle of a pixel. Without it the
scan is taken from the name, scan_x256_y256.raw. The field of view in the XML is kept as metadata: how it relates to the
scan differs between instruments.
"""

import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any
from xml.etree import ElementTree

import numpy as np

from namsa.errors import InputError
from namsa.files import open_regular, read_bytes
from namsa.io.frames import Array, file_frames
from namsa.io.layout import arrange
from namsa.io.read_options import ReadOptions
from namsa.io.recording import Recording
from namsa.io.siblings import siblings
from namsa.io.units import positive
from namsa.text import shorten

NAME = "EMPAD"
SUFFIXES = (".raw", ".xml")

ROWS, COLUMNS, STORED_ROWS = 128, 128, 130
FRAME_BYTES, G2_FRAME_BYTES = STORED_ROWS * COLUMNS * 4, ROWS * COLUMNS * 4
G2_WORDS = 2.0**30  # no pixel of an export has as many counts; words with their gain bit or their marker have more
XML_BYTES = 2**22
NAMED_SCAN = re.compile(r"_x(\d{1,6})_y(\d{1,6})")
KEPT = ("exposure_time", "software_version", "scan_size", "full_scan_field_of_view", "cameralength", "camera_length")


def recognises(path: Path, head: bytes) -> bool:
    """Returns whether it is an XML of EMPAD, or a .raw with such an XML or of whole frames of EMPAD."""
    if path.suffix.lower() == ".xml":
        return any(mark in _xml_start(path) for mark in (b"<raw_file", b"<rawfile"))
    if path.suffix.lower() != ".raw":
        return False
    size = os.path.getsize(path)
    named = NAMED_SCAN.search(path.name) and size % G2_FRAME_BYTES == 0
    return (size > 0 and (size % FRAME_BYTES == 0 or bool(named))) or _xml_beside(path) is not None


@contextmanager
def open_recording(path: Path, options: ReadOptions) -> Iterator[Recording]:
    """Opens a scan of EMPAD by its .raw or its .xml."""
    xml = path if path.suffix.lower() == ".xml" else _xml_beside(path)
    said = {} if xml is None else _read_xml(xml)
    raw = path if xml != path else path.parent / _raw_name(said, path)
    with open_regular(raw) as file:
        length = os.fstat(file.fileno()).st_size
        second = _is_second_generation(said, raw, length)
        size = G2_FRAME_BYTES if second else FRAME_BYTES
        count, rest = divmod(length, size)
        if not count or (rest and not options.growing):
            raise InputError(
                f"{raw} has {length} bytes, which are no whole frames of EMPAD ({size // COLUMNS // 4}x128 float32, "
                f"{size} bytes): it is cut short, or of another detector: give --detector-shape and --dtype"
            )
        offsets = range(0, count * size, size)
        frames = file_frames(raw, file, offsets, (ROWS, COLUMNS), np.dtype("<f4"), None, G2_FRAME_BYTES)
        if second:
            _check_export(said, raw, frames[0:1,])
        angle = positive(said.get("calibrated_diffraction_angle"))
        layout = arrange(frames, options, raw, stated=_scan_shape(said, raw, count))
        yield layout.recording(
            "EMPAD-G2" if second else NAME,
            path,
            pixel_mrad=None if angle is None else (1e3 * angle, 1e3 * angle),
            energy_ev=positive(said.get("high_voltage")) or positive(said.get("source.get_voltage")),
            metadata={
                "frames": count,
                "xml": None if xml is None else xml.name,
                **{name: value for name, value in said.items() if any(part in name for part in KEPT)},
            },
        )


def _is_second_generation(said: dict[str, str], raw: Path, length: int) -> bool:
    """Returns whether frames are those of EMPAD-G2: by the XML, or by how many frames the scan in the name takes."""
    if sensor := said.get("sensor.type"):
        return sensor.upper() in ("EMPAD2", "EMPAD-G2", "EMPADG2")
    count = math.prod(_scan_shape(said, raw, 0) or (0,))
    return length % FRAME_BYTES != 0 and count > 0 and length == count * G2_FRAME_BYTES


def _check_export(said: dict[str, str], raw: Path, frame: Array) -> None:
    """Raises InputError if frames of EMPAD-G2 are its words and not numbers of electrons."""
    kind = said.get("rawfile.datatype", "float32")
    words = np.abs(frame) >= G2_WORDS
    if kind != "float32" or words.mean() > 0.5 or not np.isfinite(frame).any():
        raise InputError(
            f"{raw} holds the words that EMPAD-G2 records (analogue and digital counts, {shorten(kind)}), which its "
            "sensor's calibration makes numbers: export it as float32 with the detector's software"
        )


def _xml_start(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(2**16)
    except OSError:
        return b""


def _xml_beside(raw: Path) -> Path | None:
    """Returns the XML of a .raw file: of its name, or the only one in the folder that names it."""
    own = raw.with_suffix(".xml")
    if own.is_file() and recognises(own, b""):
        return own
    named = re.compile(rb"[\">/\\]" + re.escape(raw.name.encode()) + rb"[\"<]")
    found = [path for path in islice(siblings(raw, ".xml"), 100) if named.search(_xml_start(path))]
    return found[0] if len(found) == 1 and recognises(found[0], b"") else None


def _read_xml(path: Path) -> dict[str, str]:
    """Returns the texts of the XML by name; "acquire." precedes those of the parameters of the recorded scan."""
    data = read_bytes(path, largest_bytes=XML_BYTES)
    if b"<!DOCTYPE" in data or b"<!ENTITY" in data:
        raise InputError(f"{path} declares entities, which no file of EMPAD does: it is not read")
    try:
        root = ElementTree.fromstring(data)
    except ElementTree.ParseError as error:
        raise InputError(f"cannot read {path} as XML: {shorten(error, 200)}") from None
    said: dict[str, str] = {}
    for element in root.iter():
        if element.tag == "raw_file":
            said["raw_file"] = element.get("filename", "")
        elif element.tag in ("rawfile", "sensor", "scan"):  # of EMPAD-G2
            said |= {f"{element.tag}.{child.tag}": shorten((child.text or "").strip(), 200) for child in element}
        elif element.tag == "scan_parameters" and element.get("mode") == "acquire":
            said |= {f"acquire.{child.tag}": shorten((child.text or "").strip(), 200) for child in element}
        elif element.tag == "full_scan_field_of_view":
            said |= {f"{element.tag}.{child.tag}": shorten((child.text or "").strip(), 200) for child in element}
        elif element.text and element.text.strip() and not len(element):
            said.setdefault(element.tag, shorten(element.text.strip(), 200))
    return said


def _raw_name(said: dict[str, str], xml: Path) -> str:
    """Returns the name of the .raw file beside the XML; a path in it is of the machine that recorded it."""
    name = PurePosixPath(said.get("raw_file", said.get("rawfile.filename", "")).replace("\\", "/")).name
    if not name or name in (".", "..") or "\0" in name:
        raise InputError(f"{xml} names no .raw file: name the .raw file itself")
    return name


def _scan_shape(said: dict[str, str], raw: Path, count: int) -> tuple[int, int] | None:
    """Returns the scan's shape: of the XML, of the name, or of the scan's parameters, which may be older than it."""
    match = NAMED_SCAN.search(raw.name)
    candidates = [
        tuple(re.findall(r"\d+", said.get("scan.shape", "")))[:2] or (None, None),
        (said.get("pix_y"), said.get("pix_x")),
        (match[2], match[1]) if match else (None, None),
        (said.get("acquire.scan_resolution_y"), said.get("acquire.scan_resolution_x")),
    ]
    pairs = [pair for pair in candidates if len(pair) == 2]
    shapes = [(int(y), int(x)) for y, x in pairs if _is_count(y) and _is_count(x) and y and x]
    fitting = [shape for shape in shapes if math.prod(shape) == count]
    return next(iter(fitting or shapes), None)


def _is_count(text: Any) -> bool:
    return isinstance(text, str) and text.isascii() and text.isdigit() and 0 < len(text) < 7 and int(text) > 0
