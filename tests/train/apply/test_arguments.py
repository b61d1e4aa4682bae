"""Arguments that `reconstruct` refuses before it works: numbers out of range, outputs that replace
inputs, odd models.
"""

import json
import os
import resource
import shutil
import zipfile

import fake_samples
import numpy as np
import pytest

import train
from namsa import InputError, WorkError
from namsa.base.pixels import PixelGrid
from namsa.io import hdf5
from train.__main__ import main
from train.apply.models import MODELS, load_model
from train.optimization import checkpoint

MODEL = MODELS / "200kv-20mrad-fast"


@pytest.fixture
def data(tmp_path):
    """A file of namsa with a scan, whose numbers are all in their ranges."""
    positions = []
    for i in range(2):
        for j in range(3):
            positions.append([0.4 * i, 0.4 * j])
    microscope = {"energy_ev": 2e5, "semiangle_mrad": 20.0}
    sample = fake_samples.sample(
        grid_shape=[8, 10],
        scan_shape=[2, 3],
        positions_angstrom=positions,
        detector_sampling_mrad=[2.0, 2.0],
        **microscope,
    )
    hdf5.write_samples(tmp_path / "x.h5", [("one", sample)])
    return tmp_path / "x.h5"


def refusal(data, capsys, *words, out="o.h5"):
    """Returns the one line on stderr, after a check that DATA is what it was."""
    before = data.read_bytes()
    assert (
        main(["reconstruct", str(data), "--checkpoint", str(MODEL), "--out", str(out), *words]) == 2
    )
    assert data.read_bytes() == before
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def test_frames_without_a_scan_are_refused_with_the_option(tmp_path, capsys):
    """The same options for a file of any format; what they say is in tests/namsa/io."""
    np.save(tmp_path / "x.npy", np.ones((6561, 4, 4), "u1"))
    error = refusal(tmp_path / "x.npy", capsys, out=tmp_path / "o.h5")
    assert (
        "holds 6,561 frames and does not state the scan's shape: give --scan-shape SYxSX; 81x81 "
        "would fit" in error
    )
    error = refusal(
        tmp_path / "x.npy", capsys, "--scan-shape", "81x80", "--flyback", "1", out=tmp_path / "o.h5"
    )
    assert "x.npy does not state the beam's energy and the probe's semiangle" in error
    assert "give --energy-ev, --semiangle-mrad, --scan-step-angstrom, --pixel-mrad" in error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "--energy-ev 0",
            "energy_ev is 0: give a positive number from 10000 to 1e+06 with --energy-ev",
        ),
        ("--energy-ev 200", "with --energy-ev. Is it in keV? Then give 200e3"),
        ("--energy-ev nan", "energy_ev is nan"),
        ("--semiangle-mrad 1e300", "semiangle_mrad is 1e+300"),
        ("--scan-step-angstrom 0", "--scan-step-angstrom is 0.0: give one positive number"),
        ("--scan-step-angstrom nan", "--scan-step-angstrom is nan: give one positive number"),
        (
            "--scan-step-angstrom 1 2 3",
            "--scan-step-angstrom is 1.0 2.0 3.0: give one positive number, or two",
        ),
        ("--pixel-mrad inf", "pixel_mrad is inf"),
        ("--centre-pixels 1 inf", "centre_pixels is inf: give a number from -100000 to 100000"),
        ("--rotation-deg 1e30", "rotation_deg is 1e+30: give a number from -720 to 720"),
        ("--beam-intensity 0", "beam_intensity is 0.0: give a number from 1e-15 to 1e+18"),
        ("--beam-intensity nan", "beam_intensity is nan"),
        ("--thickness-angstrom 0", "thickness_angstrom is 0.0: give a number from 0.1 to 10000"),
        ("--thickness-angstrom inf", "thickness_angstrom is inf"),
        ("--passes -1", "passes is -1: give a number from 0 to 1000"),
        ("--passes 99999999999", "passes is 99999999999"),
        ("--refine-steps 99999999999 --thickness-angstrom 80", "refine_steps is 99999999999"),
    ],
)
def test_numbers_out_of_range_are_refused(data, capsys, words, message):
    assert message in refusal(data, capsys, *words.split(), out=data.with_name("o.h5"))


def test_no_output_replaces_an_input(data, capsys):
    folder = data.parent
    (folder / "soft.h5").symlink_to(data)
    (folder / "hard.h5").hardlink_to(data)
    (folder / "y.png").symlink_to(data)
    for name in ("x.h5", "soft.h5", "hard.h5", "y.h5", "../" + folder.name + "/x.h5"):
        assert "would replace" in refusal(data, capsys, out=folder / name)
    picture = data.rename(folder / "z.png")
    assert "would replace" in refusal(picture, capsys, out=folder / "z.h5")


def test_an_output_that_cannot_be_written_is_refused_before_the_work(data, capsys):
    folder = data.parent
    (folder / "o.png").mkdir()
    for out, message in (
        (folder, "is a folder"),
        (folder / "o.h5", "o.png is a folder"),
        (folder / "p.png", "the picture is written beside it"),
        (data / "o.h5", "x.h5 is no folder that can be written to"),
        (folder / ("a" * 250), "a file's name of 1 to 200 bytes"),
    ):
        assert message in refusal(data, capsys, out=out)


@pytest.fixture
def result():
    image = np.ones((4, 5), np.float32)
    pixels = PixelGrid((1.0, 1.0), (0.0, 0.0))
    provenance = {"notes": [], "model": "m", "data": "d", "semiangle_mrad": 20.0}
    return train.Reconstruction(image, None, None, image, image, pixels, pixels, pixels, provenance)


def test_a_file_that_cannot_be_finished_is_not_there(tmp_path, result):
    """As on a full disk: the limit on the size of files ends the writing at several places."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for size in (0, 100, 3000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            for write, name in ((result.save, "o.h5"), (result.show, "o.png")):
                with pytest.raises(WorkError, match=rf"cannot write .*{name}: File too large$"):
                    write(tmp_path / name)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert list(tmp_path.iterdir()) == []


def test_a_picture_replaces_a_link_and_not_what_it_names(tmp_path, result):
    (tmp_path / "precious").write_text("data")
    (tmp_path / "o.png").symlink_to("precious")
    result.show(tmp_path / "o.png")
    assert (tmp_path / "precious").read_text() == "data"
    assert not (tmp_path / "o.png").is_symlink()
    with pytest.raises(InputError, match=r"o\.odd does not end as a picture: .*\.png"):
        result.show(tmp_path / "o.odd")


# ---- Models
# --------------------------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path):
    shutil.copytree(MODEL, tmp_path / "model")
    (tmp_path / "model/digests.json").unlink()  # with it, every change is refused
    return tmp_path / "model"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 5000, "nested more than"),
        ("[]", "no JSON object"),
        ('{"uncertainty_factor": "x"}', "uncertainty_factor is x, not a positive number"),
        ('{"transmitted_fraction": 0}', "transmitted_fraction is 0, not a positive number"),
        ('{"uncertainty_factor": 1e999}', "not a finite number"),
    ],
)
def test_an_odd_calibration_is_refused(model, text, message):
    (model / "calibration.json").write_text(text)
    with pytest.raises(InputError, match=rf"calibration\.json.*{message}"):
        load_model(model)


def array(shape, dtype="<f4", data=b""):
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


def header(**changes):
    text = json.dumps(
        {"format": checkpoint.FORMAT, "variables": [], "network": {}, "digest": ""} | changes
    ).encode()
    return array((len(text),), "|u1", text)


@pytest.mark.parametrize(
    ("members", "packed", "message"),
    [
        (
            {"header.npy": array((10**12,))},
            zipfile.ZIP_STORED,
            r"declares float32 of shape \(1000000000000,\), and 0 bytes follow",
        ),
        (
            {"header.npy": array((10**5,), data=bytes(4 * 10**5))},
            zipfile.ZIP_DEFLATED,
            "its arrays have more than",
        ),
        (
            {"header.npy": array((1,), "|O")},
            zipfile.ZIP_STORED,
            "Python objects, which are never read",
        ),
        ({"header.npy": b"not NumPy"}, zipfile.ZIP_STORED, "magic"),
        ({"header.npy": header(format="x")}, zipfile.ZIP_STORED, "its format is x"),
        ({"header.npy": header(variables=7)}, zipfile.ZIP_STORED, "no list of variables"),
        ({"header.npy": header(network=None)}, zipfile.ZIP_STORED, "no network"),
        ({"header.npy": header(step=-1)}, zipfile.ZIP_STORED, "step -1, not a count"),
        ({"header.npy": array((5000,), "|u1", b"[" * 5000)}, zipfile.ZIP_STORED, "nested"),
        ({}, zipfile.ZIP_STORED, "header"),
    ],
)
def test_odd_weights_are_refused(data, capsys, model, members, packed, message):
    with zipfile.ZipFile(model / "weights.npz", "w", packed) as file:
        for name, content in members.items():
            file.writestr(name, content)
    with pytest.raises(checkpoint.BROKEN, match=message):
        checkpoint.read(model / "weights.npz")


def test_members_that_overlap_are_refused(model):
    """A small archive that names the same bytes many times would fill the memory."""
    content = array((1000,), data=bytes(4000))
    with zipfile.ZipFile(model / "weights.npz", "w") as file:
        for name in "abc":
            file.writestr(f"{name}.npy", content)
        for member in file.infolist():
            member.header_offset = 0
    with pytest.raises(checkpoint.BROKEN):
        checkpoint.read(model / "weights.npz")


def test_nothing_of_a_file_is_unpickled(tmp_path):
    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "evil"),)

    np.savez(tmp_path / "weights.npz", header=np.array([Bomb()], object))
    with pytest.raises(checkpoint.BROKEN):
        checkpoint.read(tmp_path / "weights.npz")
    assert not (tmp_path / "evil").exists()
