"""The pictures of scans at the head of guides, of a thin crystal that takes seconds."""

import contextlib

import docs_pictures
import docs_scans
import matplotlib as mpl
import numpy as np
import pytest
from measured_files import MEASURED, needs_measured
from PIL import Image

import namsa
from namsa.cli.parser import main

STARTER = "first/starter.yaml"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the scan of `namsa init`, of a thinner crystal on coarser pixels."""
    folder = tmp_path_factory.mktemp("scans")
    words = ["--crystal", "first/SrTiO3.cif", "--out", str(docs_scans.SCAN)]
    for change in ("specimen.thickness_angstrom=[8]", "simulation.sampling_angstrom=0.12"):
        words += ["--set", change]
    with contextlib.chdir(folder):
        assert main(["init", "first"]) == 0
        assert main(["simulate", STARTER, *words]) == 0
    return folder


@pytest.fixture
def sample(folder, monkeypatch):
    """The scan, with its folder as the current one."""
    monkeypatch.chdir(folder)
    return namsa.read_sample(docs_scans.SCAN)


@pytest.mark.slow
def test_the_ring_of_the_view_has_its_image(sample):
    pattern, image, _ = docs_scans.view().axes
    np.testing.assert_allclose(pattern.images[0].get_array(), sample.stack[12, 20] ** 0.3)
    assert [patch.get_radius() for patch in pattern.patches] == [25, 45]
    np.testing.assert_allclose(image.images[0].get_array(), sample.annular(25, 45))


@pytest.mark.slow
def test_the_part_that_is_read_is_the_marked_one(sample):
    scan, detector, binned = docs_scans.reading().axes
    np.testing.assert_allclose(scan.images[0].get_array(), sample.stack.sum(axis=(2, 3)), rtol=1e-5)
    mean = sample.stack.mean(axis=(0, 1), dtype=float)
    np.testing.assert_allclose(detector.images[0].get_array(), mean**0.3, rtol=1e-5)
    assert binned.get_title() == "read with binning 2:\n24 × 28 × 20 × 20"
    region = sample.stack[8:32, 12:40, 4:44, 4:44].mean(axis=(0, 1), dtype=float)
    sums = region.reshape(20, 2, 20, 2).sum(axis=(1, 3))
    np.testing.assert_allclose(binned.images[0].get_array(), sums**0.3, rtol=1e-5)


@pytest.mark.slow
def test_the_density_of_a_live_scan_fills_row_after_row(sample):
    first, _, last = docs_scans.live().axes[:3]
    assert last.get_title() == "40 of 40 rows read"
    rows_read = int(first.get_title().split()[0])
    assert rows_read < 40
    early = np.ma.getmaskarray(first.images[0].get_array()).all(axis=1)
    assert early[rows_read:].all()
    assert not np.ma.getmaskarray(last.images[0].get_array()).any()


@pytest.mark.slow
@needs_measured
def test_the_bright_field_of_the_measured_scan_has_smaller_pixels(folder, monkeypatch):
    monkeypatch.setattr(docs_scans, "ROTAVIRUS", MEASURED / "rotavirus" / docs_scans.ROTAVIRUS.name)
    sums, aligned, flipped = (axes.images[0].get_array() for axes in docs_scans.parallax().axes[:3])
    assert sums.shape == (32, 32)
    assert aligned.shape == flipped.shape
    assert 2.8 * 32 < min(aligned.shape) <= 3 * 32  # in pixels a third as large
    assert sums.mean() == pytest.approx(1)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "file"), [("simulate", "simulate.jpg"), ("view", "view.png")])
def test_a_picture_of_a_scan_is_written(name, file, sample, monkeypatch, tmp_path):
    monkeypatch.setattr(docs_pictures, "IMAGES", tmp_path)
    with mpl.rc_context():
        docs_pictures.main([name])
    assert [path.name for path in tmp_path.iterdir()] == [file]
    with Image.open(tmp_path / file) as picture:
        assert 400 < picture.width <= docs_pictures.WIDTH
        colours = picture.convert("RGB").getcolors(2**24)
    assert len(colours) > 100
