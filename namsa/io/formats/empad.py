"""EMPAD and EMPAD-G2: .raw of little-endian float32, and the .xml beside it.

A frame of the first generation has 130 rows of 128 numbers, of which the first 128 are the detector
and the last two are no pixels. One of EMPAD-G2, as its software exports it, has the 128 rows alone.
Its recording before that export has words of analogue and digital counts and a gain bit, which only
the sensor's own calibration makes numbers: it is refused. The XML names the .raw file, the scan,
the voltage and, in some versions, the angle of a pixel. Without it the scan is taken from the name,
scan_x256_y256.raw. The field of view in the XML is kept as metadata: how it relates to the scan
differs between instruments.
"""

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple
from xml.etree import ElementTree

import numpy as np

from namsa.base.arrays import Pair
from namsa.base.errors import InputError
from namsa.base.files import open_regular, read_bytes
from namsa.base.text import shorten
from namsa.io.frames import Array, file_frames
from namsa.io.layout import arrange
from namsa.io.planes import read_at
from namsa.io.read_options import ReadOptions
from namsa.io.recording import Recording
from namsa.io.siblings import siblings
from namsa.io.units import positive

NAME = "EMPAD"
SUFFIXES = (".raw", ".xml")

ROWS = 128
COLUMNS = 128
STORED_ROWS = 130
FRAME_BYTES = STORED_ROWS * COLUMNS * 4
G2_FRAME_BYTES = ROWS * COLUMNS * 4
# no pixel of an export has as many counts; words with their gain bit or their marker have more
G2_WORDS = 2.0**30
XML_BYTES = 2**22
COMPARED = 12  # frames, where the length does not tell the generation
BLOCK = 4  # pixels whose mean is compared
UNLIKE = 0.1  # difference of correlations that tells
COUNT = re.compile(r"(?!0+$)[0-9]{1,6}")  # of rows or columns, as text
# elements whose children are facts; all but the last are of EMPAD-G2
NESTED = ("rawfile", "sensor", "scan", "full_scan_field_of_view")
MODES = ("acquire", "search")  # of the parameters of scans
NAMED_SCAN = re.compile(r"_x(\d{1,6})_y(\d{1,6})")
KEPT = (
    "exposure_time",
    "software_version",
    "scan_size",
    "full_scan_field_of_view",
    "cameralength",
    "camera_length",
)


def recognises(path: Path, head: bytes) -> bool:
    """Returns whether it is an XML of EMPAD, or a .raw with such an XML or of whole frames of
    EMPAD.
    """
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
    raw, xml, facts = _pair_of_files(path)
    with open_regular(raw) as file:
        length = os.fstat(file.fileno()).st_size
        is_second_generation = _is_second_generation(facts, raw, file, options)
        size = G2_FRAME_BYTES if is_second_generation else FRAME_BYTES
        count, rest = divmod(length, size)
        if not count or (rest and not options.growing):
            raise InputError(
                f"{raw} has {length} bytes, which are no whole frames of EMPAD "
                f"({size // COLUMNS // 4}x128 float32, {size} bytes): it is cut short, or of "
                "another detector: give --detector-shape and --dtype"
            )
        offsets = range(0, count * size, size)
        frames = file_frames(
            raw, file, offsets, (ROWS, COLUMNS), np.dtype("<f4"), None, G2_FRAME_BYTES
        )
        if is_second_generation:
            _check_export(facts, raw, frames[0:1,])
        layout = arrange(frames, options, raw, stated=_scan_shape(facts, raw, count))
        yield layout.recording(
            "EMPAD-G2" if is_second_generation else NAME,
            path,
            notes=_mode_notes(facts, layout.data.shape[:2]),
            pixel_mrad=_pixel_mrad(facts),
            energy_ev=_energy_ev(facts),
            metadata=_metadata(facts, count, xml),
        )


class _Files(NamedTuple):
    """The two files of a scan."""

    raw: Path
    xml: Path | None  # `None` if there is none
    facts: Mapping[str, str]  # what the .xml says, by name


def _pair_of_files(path: Path) -> _Files:
    """Returns the files of a scan, from either."""
    if path.suffix.lower() == ".xml":
        facts = _read_xml(path)
        return _Files(path.parent / _raw_name(facts, path), path, facts)
    xml = _xml_beside(path)
    if xml is None:
        return _Files(path, None, {})
    return _Files(path, xml, _read_xml(xml))


def _energy_ev(facts: Mapping[str, str]) -> float | None:
    """Returns the energy, eV; `None` if the XML does not say it."""
    high_voltage = positive(facts.get("high_voltage"))
    return high_voltage or positive(facts.get("source.get_voltage"))


def _pixel_mrad(facts: Mapping[str, str]) -> Pair | None:
    """Returns the angle of a pixel, mrad; `None` if the XML does not say it."""
    angle = positive(facts.get("calibrated_diffraction_angle"))
    return None if angle is None else (1e3 * angle, 1e3 * angle)


def _metadata(facts: Mapping[str, str], count: int, xml: Path | None) -> dict[str, object]:
    """Returns what else the XML says, with the number of frames."""
    metadata: dict[str, object] = {"frames": count, "xml": None if xml is None else xml.name}
    for name, value in facts.items():
        if any(word in name for word in KEPT):
            metadata[name] = value
    return metadata


def _is_second_generation(
    facts: Mapping[str, str], raw: Path, file: BinaryIO, options: ReadOptions
) -> bool:
    """Returns whether frames are those of EMPAD-G2: by the XML, by how many frames the scan takes,
    or, of a length that both fit, by which frames resemble one another.
    """
    sensor = facts.get("sensor.type")
    if sensor:
        return sensor.upper() in ("EMPAD2", "EMPAD-G2", "EMPADG2")
    length = os.fstat(file.fileno()).st_size
    count = math.prod(options.scan_shape or _scan_shape(facts, raw, 0) or (0,))
    if length % FRAME_BYTES:
        return count > 0 and length == count * G2_FRAME_BYTES
    if length % G2_FRAME_BYTES:
        return False
    fits_first = count * FRAME_BYTES == length
    if count and fits_first != (count * G2_FRAME_BYTES == length):
        return not fits_first
    likeness_first = _likeness(file, FRAME_BYTES, length)
    likeness_second = _likeness(file, G2_FRAME_BYTES, length)
    if abs(likeness_second - likeness_first) < UNLIKE:
        raise InputError(
            f"{raw} has {length} bytes, which are {length // FRAME_BYTES} frames of EMPAD or "
            f"{length // G2_FRAME_BYTES} of EMPAD-G2, and its patterns do not tell which: give "
            "--scan-shape, or --dtype '<f4' with --detector-shape 128x128 for EMPAD-G2"
        )
    return likeness_second > likeness_first


def _likeness(file: BinaryIO, frame_bytes: int, length: int) -> float:
    """Returns the mean correlation of the first frame with others, if frames are of so many
    bytes.
    """
    count = length // frame_bytes
    frames = []
    for frame_number in np.unique(np.linspace(0, count - 1, COMPARED).astype(int)).tolist():
        stored = np.frombuffer(read_at(file, G2_FRAME_BYTES, frame_number * frame_bytes), "<f4")
        values = np.nan_to_num(stored.astype(np.float64), posinf=0.0, neginf=0.0)
        values = values.reshape(-1, BLOCK, COLUMNS // BLOCK, BLOCK).mean(axis=(1, 3)).ravel()
        frames.append(values - values.mean())
    correlations = []
    for frame in frames[1:]:
        scale = math.sqrt(float(frames[0] @ frames[0]) * float(frame @ frame))
        correlations.append(float(frames[0] @ frame) / scale if scale > 0 else 0.0)
    return float(np.mean(correlations)) if correlations else 0.0


def _check_export(facts: Mapping[str, str], raw: Path, frame: Array) -> None:
    """Raises InputError if frames of EMPAD-G2 are its words and not numbers of electrons."""
    kind = facts.get("rawfile.datatype", "float32")
    words = np.abs(frame) >= G2_WORDS
    if kind != "float32" or words.mean() > 0.5 or not np.isfinite(frame).any():
        raise InputError(
            f"{raw} holds the words that EMPAD-G2 records (analogue and digital counts, "
            f"{shorten(kind)}), which its sensor's calibration makes numbers: export it as float32 "
            "with the detector's software"
        )


def _xml_start(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(2**16)
    except OSError:
        return b""


def _xml_beside(raw: Path) -> Path | None:
    """Returns the XML of a .raw file: of its name, or the only one in the folder that names it."""
    same_name = raw.with_suffix(".xml")
    if same_name.is_file() and recognises(same_name, b""):
        return same_name
    mention = re.compile(rb"[\">/\\]" + re.escape(raw.name.encode()) + rb"[\"<]")
    candidates = islice(siblings(raw, ".xml"), 100)
    naming = [path for path in candidates if mention.search(_xml_start(path))]
    if len(naming) == 1 and recognises(naming[0], b""):
        return naming[0]
    return None


def _read_xml(path: Path) -> dict[str, str]:
    """Returns the texts of the XML by name; "acquire." precedes those of the parameters of the
    recorded scan.
    """
    data = read_bytes(path, largest_bytes=XML_BYTES)
    if b"<!DOCTYPE" in data or b"<!ENTITY" in data:
        raise InputError(f"{path} declares entities, which no file of EMPAD does: it is not read")
    try:
        root = ElementTree.fromstring(data)
    except ElementTree.ParseError as error:
        raise InputError(f"cannot read {path} as XML: {shorten(error, 200)}") from None
    facts: dict[str, str] = {}
    for element in root.iter():
        text = _text(element)
        if element.tag == "raw_file":
            facts["raw_file"] = element.get("filename", "")
        elif element.tag in NESTED:
            facts |= _children(element, element.tag)
        elif element.tag == "scan_parameters" and element.get("mode") in MODES:
            facts |= _children(element, element.get("mode", ""))
        elif text and not len(element):
            facts.setdefault(element.tag, text)
    return facts


def _children(element: ElementTree.Element, prefix: str) -> dict[str, str]:
    """Returns the texts of an element's children by their names after a prefix."""
    return {f"{prefix}.{child.tag}": _text(child) for child in element}


def _text(element: ElementTree.Element) -> str:
    """Returns the text of an element, of bounded length; empty without one."""
    return shorten((element.text or "").strip(), 200)


def _raw_name(facts: Mapping[str, str], xml: Path) -> str:
    """Returns the name of the .raw file beside the XML; a path in it is of the machine that
    recorded it.
    """
    stored = facts.get("raw_file", facts.get("rawfile.filename", ""))
    name = PurePosixPath(stored.replace("\\", "/")).name
    if not name or name in (".", "..") or "\0" in name:
        raise InputError(f"{xml} names no .raw file: name the .raw file itself")
    return name


def _mode_resolution(facts: Mapping[str, str], mode: str) -> tuple[str | None, str | None]:
    """Returns rows and columns of the XML's parameters of scans of a mode, as texts."""
    return facts.get(f"{mode}.scan_resolution_y"), facts.get(f"{mode}.scan_resolution_x")


def _mode_notes(facts: Mapping[str, str], shape: Sequence[int]) -> tuple[str, ...]:
    """Returns a line if the scan is that of the searching mode, or of another shape of as many
    positions.
    """
    resolutions = {}
    for mode in MODES:
        texts = [text for text in _mode_resolution(facts, mode) if text and COUNT.fullmatch(text)]
        if len(texts) == 2:
            resolutions[mode] = (int(texts[0]), int(texts[1]))
    acquired = resolutions.get("acquire")
    searched = resolutions.get("search")
    if searched is None or searched == acquired or math.prod(searched) != math.prod(shape):
        return ()
    size = f"{searched[0]}x{searched[1]}"
    if searched == tuple(shape):
        return (f"scan of {size} by the XML's parameters of mode search; those of acquire differ",)
    return (
        f"the XML's parameters of mode search are of {size}, which has as many positions: give "
        "--scan-shape if it is that",
    )


def _scan_shape(facts: Mapping[str, str], raw: Path, count: int) -> tuple[int, int] | None:
    """Returns the scan's shape: of the XML, of the name, or of the parameters of acquired or of
    searching scans, which may be older than it.
    """
    candidates: list[Sequence[str | None]] = [
        re.findall(r"\d+", facts.get("scan.shape", ""))[:2],
        (facts.get("pix_y"), facts.get("pix_x")),
    ]
    match = NAMED_SCAN.search(raw.name)
    if match:
        candidates.append((match[2], match[1]))
    for mode in MODES:
        candidates.append(_mode_resolution(facts, mode))
    shapes = []
    for candidate in candidates:
        counts = [int(text) for text in candidate if text and COUNT.fullmatch(text)]
        if len(counts) == 2:
            shapes.append((counts[0], counts[1]))
    for shape in shapes:
        if math.prod(shape) == count:
            return shape
    return shapes[0] if shapes else None
