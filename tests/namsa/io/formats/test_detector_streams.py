"""NorPix .seq, FRMS6 of PNDetector, K2 IS, and .emi of TIA, in files that are written by their
descriptions.
"""

import struct

import numpy as np
import pytest
from measured_files import (
    assert_reads,
    assert_refused,
    frames_of,
    patterns,
    write_mrc,
    write_ser,
)

import namsa

DATA = patterns(largest=4000)  # (3, 4, 6, 8)


# ---- NorPix


def write_seq(path, data, version=5, compression=0, padding=24, declared=None):
    """Writes frames, each with a footer, behind the header of a version."""
    frames = frames_of(data)
    rows, columns = frames.shape[1:]
    size = rows * columns * data.itemsize
    head = bytearray(8192 if version >= 5 else 1024)
    struct.pack_into("<I", head, 0, 0xFEED)
    head[4:24] = "Norpix seq".encode("utf-16-le")
    struct.pack_into("<ii", head, 28, version, 1024)
    bits = 8 * data.itemsize
    declared = len(frames) if declared is None else declared
    sizes = (columns, rows, bits, bits, size, 100, declared, 0, size + padding)
    struct.pack_into("<9I", head, 548, *sizes)
    struct.pack_into("<I", head, 620, compression)
    with path.open("wb") as file:
        file.write(head)
        for frame in frames:
            file.write(frame.tobytes() + b"\xff" * padding)


@pytest.mark.parametrize("version", [3, 5])
@pytest.mark.parametrize("dtype", ["u1", "u2"])
def test_a_sequence_of_norpix_has_frames_with_footers(tmp_path, version, dtype):
    data = patterns(dtype)
    write_seq(tmp_path / "a.seq", data, version)
    known = {"format": "NorPix", "dtype": np.dtype(dtype)}
    assert_reads(tmp_path / "a.seq", data, known, scan_shape=(3, 4))
    assert_refused("give --scan-shape", tmp_path / "a.seq")


def test_references_beside_a_sequence_are_applied_and_noted(tmp_path):
    write_seq(tmp_path / "a.seq", DATA, declared=13)
    dark = np.arange(48, dtype="f4").reshape(1, 1, 6, 8)
    write_mrc(tmp_path / "a.seq.dark.mrc", dark, mode=2)
    write_mrc(tmp_path / "a.seq.gain.mrc", dark / 10 + 1, mode=2)
    expected = ((DATA - dark) * (dark / 10 + 1)).astype("f4")
    with namsa.read(tmp_path / "a.seq", scan_shape=(3, 4)) as scan:
        np.testing.assert_allclose(scan.data[...], expected, rtol=1e-6)
        np.testing.assert_allclose(scan.data[1:, 1, 2:, ::3], expected[1:, 1, 2:, ::3], rtol=1e-6)
        assert "a.seq.dark.mrc subtracted" in scan.notes
        assert "the header states 13 frames, and 12 are there" in scan.notes
    write_mrc(tmp_path / "a.seq.gain.mrc", dark[..., :4], mode=2)
    assert_refused("has an image of 6x4 pixels", tmp_path / "a.seq", scan_shape=(3, 4))


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"compression": 2}, "compression 2"), ({"padding": -4}, "frames of 6x8 pixels take more")],
)
def test_sequences_that_are_not_read_are_one_line(tmp_path, changes, message):
    write_seq(tmp_path / "a.seq", DATA, **changes)
    assert_refused(message, tmp_path / "a.seq", scan_shape=(3, 4))


def test_a_sequence_that_is_cut_short_loses_its_last_frames(tmp_path):
    write_seq(tmp_path / "a.seq", DATA)
    with (tmp_path / "a.seq").open("r+b") as file:
        file.truncate(8192 + 100)
    assert_refused("holds no frame", tmp_path / "a.seq", scan_shape=(3, 4))


# ---- FRMS6

HDR = """[measurementInfo]
dataFileName = scan_
stemImageSize = {shape}
readoutMode = "bin: {binning}, windowing: 264 x 264"
darkFrames = 2
signalFrames = 12
gain = 1
"""


def write_frms6(path, frames, counted=True):
    """Writes frames whose lower half is stored backwards behind the rows of the upper one."""
    count, height, width = frames.shape
    head = bytearray(1024)
    struct.pack_into("<2H", head, 0, 1024, 64)
    head[7] = 6
    struct.pack_into("<2H", head, 88, 2 * width, height // 2)
    struct.pack_into("<I", head, 1020, count if counted else 0)
    with path.open("wb") as file:
        file.write(head)
        for index, frame in enumerate(frames):
            upper = frame[: height // 2]
            lower = frame[height // 2 :][::-1, ::-1]
            folded = np.concatenate([upper, lower], axis=1)
            file.write(struct.pack("<4I", 0, 0, 0, index).ljust(64, b"\0"))
            file.write(folded.astype("<u2").tobytes())


def write_measurement(folder, shape="3x4", binning=1, counted=True):
    dark = np.stack([np.full((6, 8), 10), np.full((6, 8), 13)])
    dark[:, 2, 3] += 5
    frames = frames_of(DATA)
    write_frms6(folder / "scan_000.frms6", dark, counted)
    write_frms6(folder / "scan_001.frms6", frames[:7], counted)
    write_frms6(folder / "scan_002.frms6", frames[7:], counted)
    (folder / "scan.hdr").write_text(HDR.format(shape=shape, binning=binning))
    return dark.mean(axis=0)


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("name", ["scan.hdr", "scan_000.frms6", "scan_002.frms6"])
def test_frames_of_frms6_are_unfolded_less_the_dark_ones(tmp_path, name, counted):
    dark = write_measurement(tmp_path, counted=counted)
    expected = (DATA - dark).astype("f4")
    assert_reads(tmp_path / name, expected, {"format": "FRMS6", "dtype": np.float32})


def test_what_the_hdr_of_frms6_leaves_open_is_noted(tmp_path):
    write_measurement(tmp_path, binning=2)
    with namsa.read(tmp_path / "scan.hdr") as scan:
        notes = " ".join(scan.notes)
        assert "read as rows x columns; --scan-shape 4x3 says the other way" in notes
        assert "rows are binned by 2" in notes
        assert "the mean of 2 dark frames in scan_000.frms6 is subtracted" in notes
    write_measurement(tmp_path, shape="5x5")
    assert_refused("give --scan-shape", tmp_path / "scan.hdr")


def test_frms6_that_is_damaged_is_one_line(tmp_path):
    write_measurement(tmp_path, counted=False)
    with (tmp_path / "scan_002.frms6").open("r+b") as file:
        file.truncate(1500)
    assert_refused(r"scan_002\.frms6 is cut short", tmp_path / "scan.hdr")
    (tmp_path / "scan_002.frms6").unlink()
    (tmp_path / "scan_001.frms6").unlink()
    assert_refused("has the dark frames", tmp_path / "scan.hdr")


# ---- TIA

EMI = """<ObjectInfo><Uuid>1</Uuid><ExperimentalDescription><Root><Data>
<Label>High tension</Label><Value>200</Value><Unit>kV</Unit></Data><Data>
<Label>Camera length</Label><Value>0.115</Value><Unit>m</Unit></Data>
</Root></ExperimentalDescription></ObjectInfo>"""


def test_an_emi_names_its_series_and_has_the_voltage(tmp_path):
    write_ser(tmp_path / "scan_1.ser", DATA)
    (tmp_path / "scan.emi").write_bytes(b"JL\x00\x01" + EMI.encode() + bytes(40))
    known = {"format": "TIA", "energy_ev": 200e3, "scan_step_angstrom": pytest.approx((20, 10))}
    for name in ("scan.emi", "scan_1.ser"):
        assert_reads(tmp_path / name, DATA, known)
    with namsa.read(tmp_path / "scan.emi") as scan:
        assert scan.metadata["camera_length"] == "0.115 m"
    write_ser(tmp_path / "scan_2.ser", DATA)
    assert_refused(r"several series of images: give one of scan_1\.ser", tmp_path / "scan.emi")


def test_an_emi_alone_holds_no_patterns(tmp_path):
    (tmp_path / "scan.emi").write_bytes(b"JL\x00\x01")
    assert_refused(r"there is no scan_1\.ser", tmp_path / "scan.emi")
    write_ser(tmp_path / "scan_1.ser", DATA)
    assert_reads(tmp_path / "scan.emi", DATA, {"energy_ev": None})


# ---- K2 IS


def k2_block(frame, index, sector, y, x):
    """Returns a block of 930 × 16 pixels of 12 bits, with its header."""
    head = struct.pack(
        ">I12xIHHIHHHHI", 0xFFFF0055, 32 * frame, 256, 1860, frame, x, y, x + 15, y + 929, 0x5758
    )
    base = (index * 7 + sector * 3 + y // 930 + x) % 4096
    pixels = ((np.arange(930 * 16) + base) % 4096).astype("u2")
    low, high = pixels[::2], pixels[1::2]
    packed = np.stack([low & 255, low >> 8 | (high & 15) << 4, high >> 4], axis=-1)
    return head + packed.astype("u1").tobytes(), pixels.reshape(930, 16)


def write_k2(folder, frames, lead):
    """Writes eight files, of which each begins some blocks earlier; returns the frames."""
    data = np.empty((len(frames), 1860, 2048), "u2")
    for sector in range(8):
        stored = []
        for _ in range(lead[sector]):  # the end of an earlier frame
            stored.append(k2_block(frames[0] - 1, 0, sector, 0, 0)[0])
        for index, frame in enumerate(frames):
            for place in range(32):
                y, x = 930 * (place // 16), 240 - 16 * (place % 16)
                block, pixels = k2_block(frame, index, sector, y, x)
                stored.append(block)
                left = 256 * sector + x
                data[index, y : y + 930, left : left + 16] = pixels
        (folder / f"Capture_{sector + 1}.bin").write_bytes(b"".join(stored))
    return data


def test_sectors_of_k2_are_joined_from_their_common_frame(tmp_path):
    data = write_k2(tmp_path, (41, 42), (0, 1, 0, 3, 0, 0, 5, 31))
    (tmp_path / "Capture_.gtg").write_bytes(b"gtg")
    for name in ("Capture_.gtg", "Capture_3.bin"):
        with namsa.read(tmp_path / name, scan_shape=(1, 2), crop="1000:1100,200:300") as scan:
            assert (scan.format, scan.dtype) == ("K2IS", np.uint16)
            np.testing.assert_array_equal(scan.data[0], data[:, 1000:1100, 200:300])
    (tmp_path / "Capture_8.bin").unlink()
    assert_refused("7 files of sectors", tmp_path / "Capture_3.bin")
