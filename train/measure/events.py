"""TensorBoard's events, written without TensorFlow: scalars by step.

A file is a sequence of records, each a protocol buffer `Event` between its length and checksums
(tensorflow/core/lib/io/record_writer.h and tensorflow/core/util/event.proto).
"""

import platform
import struct
import time
from collections.abc import Mapping
from pathlib import Path

from namsa.files import Closing

_START = 1  # SessionLog.START: TensorBoard drops the steps from this event's on


def _crc_table() -> list[int]:
    table = list(range(256))
    for _ in range(8):
        table = [value >> 1 ^ 0x82F63B78 * (value & 1) for value in table]
    return table


_TABLE = _crc_table()  # of CRC-32C (Castagnoli)


class EventFile(Closing):
    """A new file of events in a folder.

    Args:
        folder: Is made if it does not exist. TensorBoard reads its files in the order of their names.
        first_step: Steps of earlier files from this one on are dropped by TensorBoard.
    """

    def __init__(self, folder: Path, first_step: int) -> None:
        folder.mkdir(exist_ok=True)
        seconds, nanoseconds = divmod(time.time_ns(), 10**9)
        self._file = (folder / f"events.out.tfevents.{seconds}.{nanoseconds:09d}.{platform.node()}").open("wb")
        self._write(_bytes(3, b"brain.Event:2"))
        self._write(_integer(2, first_step) + _bytes(7, _integer(1, _START)))

    def close(self) -> None:
        self._file.close()

    def add(self, step: int, numbers: Mapping[str, float | None]) -> None:
        """Writes numbers of a step. Those that are `None` are left out."""
        values = [
            _bytes(1, _bytes(1, tag.encode()) + struct.pack("<Bf", 2 << 3 | 5, number))
            for tag, number in numbers.items()
            if number is not None
        ]
        self._write(_integer(2, step) + _bytes(5, b"".join(values)))

    def _write(self, content: bytes) -> None:
        event = struct.pack("<Bd", 1 << 3 | 1, time.time()) + content
        length = struct.pack("<Q", len(event))
        self._file.write(length + _checksum(length) + event + _checksum(event))
        self._file.flush()


def _integer(field: int, value: int) -> bytes:
    """Returns a field with a whole number that is not negative."""
    return bytes([field << 3]) + _varint(value)


def _bytes(field: int, content: bytes) -> bytes:
    """Returns a field with text or a message."""
    return bytes([field << 3 | 2]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    digits = []
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    return bytes([*digits, value])


def _checksum(data: bytes) -> bytes:
    """Returns the masked CRC-32C of a record."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
