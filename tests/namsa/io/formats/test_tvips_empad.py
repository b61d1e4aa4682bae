"""Streams of TVIPS, and raw files of both generations of EMPAD."""

import struct

import numpy as np
import pytest
from measured_files import (
    assert_reads,
    assert_refused,
    patterns,
)

import namsa

DATA = patterns()  # (3, 4, 6, 8)


def write_tvips(folder, data, before=5, after=2, per_file=9, version=2):
    frame_bytes = 108 if version == 2 else 12
    series = struct.pack(
        "<13i", 256, version, *data.shape[:1:-1], 16, 0, 0, 1, 1, 15500, 200, 0, frame_bytes
    )
    places = (
        [(0, 0)] * before
        + [(y, x) for y in range(data.shape[0]) for x in range(data.shape[1])]
        + [(0, 0)] * after
    )
    frames = [np.zeros(data.shape[2:], "u2")] * before + list(data.reshape(-1, *data.shape[2:]))
    frames += [np.zeros(data.shape[2:], "u2")] * after
    for start in range(0, len(frames), per_file):
        with (folder / f"run_{start // per_file:03d}.tvips").open("wb") as file:
            if not start:
                file.write(series.ljust(256, b"\0"))
            for index in range(start, min(start + per_file, len(frames))):
                y, x = places[index]
                head = struct.pack("<3I", index, 0, 0)
                head = head.ljust(68, b"\0") + struct.pack("<2f", x, y) if version == 2 else head
                file.write(head.ljust(frame_bytes, b"\0") + frames[index].astype("<u2").tobytes())


def test_a_stream_of_tvips_has_its_scan_by_the_scan_generator(tmp_path):
    write_tvips(tmp_path, DATA)
    for name in ("run_000.tvips", "run_002.tvips"):
        assert_reads(tmp_path / name, DATA, {"format": "TVIPS", "energy_ev": 200e3})
        with namsa.read(tmp_path / name) as recording:
            assert recording.notes[1:] == (
                "5 frames before the scan left out",
                "2 frames after the scan left out",
            )
    (tmp_path / "run_001.tvips").unlink()
    assert_refused("of which run_001.tvips is missing", tmp_path / "run_000.tvips")


def test_a_stream_of_version_1_needs_the_scan(tmp_path):
    write_tvips(tmp_path, DATA, version=1, per_file=99)
    assert_refused("19 frames and does not state", tmp_path / "run_000.tvips")
    assert_reads(tmp_path / "run_000.tvips", DATA, scan_shape=(3, 4), skip_frames=(5, 2))


G2 = """<root><scan><type>scan</type><shape>(3, 4)</shape></scan><sensor><type>EMPAD2</type><shape>(128,128)</shape>
</sensor><rawfile><datatype>float32</datatype><filename>scan_x4_y3.raw</filename><framecount>15</framecount></rawfile>
<iom_measurements><source.get_voltage>300000.0</source.get_voltage></iom_measurements></root>"""  # noqa: E501


def test_empad_g2_is_128_rows_and_its_words_are_refused(tmp_path):
    data = patterns("f4", detector=(128, 128), largest=5000) - 3
    raw = tmp_path / "scan_x4_y3.raw"
    xml = tmp_path / "acquisition.xml"
    raw.write_bytes(data.astype("<f4").tobytes())
    assert_reads(raw, data)  # by its name and size
    xml.write_text(G2)
    for path in (raw, xml):
        assert_reads(path, data, {"format": "EMPAD-G2", "energy_ev": 300e3})
    raw.write_bytes((np.arange(data.size, dtype="<u4") % 1000 | 1 << 30 | 1 << 29).tobytes())
    assert_refused("the words that EMPAD-G2 records", xml)


def shifted_disks(count):
    """Returns frames of a disk that stays in its place, and a specimen that changes."""
    y, x = np.mgrid[:128, :128]
    disk = np.float32(100 * (np.hypot(y - 60, x - 66) < 25) + 1)
    return disk * np.random.default_rng(0).uniform(0.8, 1.2, (count, 1, 1)).astype("f4")


@pytest.mark.parametrize("generation", ["EMPAD", "EMPAD-G2"])
def test_the_generation_of_empad_is_told_where_the_length_fits_both(tmp_path, generation):
    count = 65 if generation == "EMPAD-G2" else 128
    frames = shifted_disks(count)
    stored = frames
    if generation == "EMPAD":
        stored = np.zeros((count, 130, 128), "f4")
        stored[:, :128] = frames
    assert stored.nbytes % (130 * 128 * 4) == stored.nbytes % (128 * 128 * 4) == 0
    stored.tofile(tmp_path / "a.raw")
    shape = (5, 13) if count == 65 else (8, 16)
    data = frames.reshape(*shape, 128, 128)
    assert_reads(tmp_path / "a.raw", data, {"format": generation}, scan_shape=shape)
    assert_refused(f"holds {count} frames", tmp_path / "a.raw")


def test_a_length_that_fits_both_generations_needs_a_word_where_patterns_do_not_tell(tmp_path):
    np.zeros((65, 128, 128), "f4").tofile(tmp_path / "a.raw")
    assert_refused("64 frames of EMPAD or 65 of EMPAD-G2", tmp_path / "a.raw")


@pytest.mark.parametrize(("search", "acquire"), [("2x3", "4x4"), ("2x3", "3x2")])
def test_a_scan_of_the_searching_mode_is_noted(tmp_path, search, acquire):
    modes = "".join(
        f'<scan_parameters mode="{mode}"><scan_resolution_y>{shape[0]}</scan_resolution_y>'
        f"<scan_resolution_x>{shape[2]}</scan_resolution_x></scan_parameters>"
        for mode, shape in (("search", search), ("acquire", acquire))
    )
    (tmp_path / "a.xml").write_text(f'<root><raw_file filename="a.raw"/>{modes}</root>')
    np.zeros((6, 130, 128), "<f4").tofile(tmp_path / "a.raw")
    with namsa.read(tmp_path / "a.xml") as recording:
        expected = (2, 3) if acquire == "4x4" else (3, 2)
        assert recording.shape[:2] == expected
        assert "mode search" in recording.notes[0]
