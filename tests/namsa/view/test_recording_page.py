"""The page of measured patterns: what it holds, its size, and in headless Chromium its virtual
detector and overlay.
"""

import json
import re
import tracemalloc
import warnings

import h5py
import numpy as np
import pytest
from browser import BROWSER, report_of, reported
from page_data import data_of, numbers_of
from paths import ROOT

import namsa
from namsa.base.errors import InputError
from namsa.base.pixels import PixelGrid
from namsa.cli.parser import main
from namsa.io.hdf5 import write_images
from namsa.io.recording import ArrayPatterns, Recording
from namsa.view import page_overlay, page_tiles, recording_page

SCAN = (5, 7)
DETECTOR = (12, 16)
CALIBRATION = {
    "energy_ev": 200e3,
    "semiangle_mrad": 8.0,
    "scan_step_angstrom": (0.5, 0.4),
    "pixel_mrad": (2.0, 2.5),
}
ROTAVIRUS = ROOT.parent / "shared/data/measured/rotavirus/rotavirus_32x32x64x64_bin4_crop_uint16.h5"


def counts(scan=SCAN, detector=DETECTOR):
    """Poisson counts of a disk that lies beside the detector's middle, brighter from position to
    position.
    """
    y, x = np.indices(detector) - np.array([5.0, 8.5])[:, None, None]
    disk = 20.0 * (np.hypot(2.0 * y, 2.5 * x) < 8) + 1
    brightness = np.linspace(0.5, 1.5, scan[0] * scan[1]).reshape(*scan, 1, 1)
    return np.random.default_rng(0).poisson(disk * brightness).astype(np.uint16)


def file_of(tmp_path, patterns, name="scan.h5", **options):
    with h5py.File(tmp_path / name, "w") as file:
        file.create_dataset("counts", data=patterns, **options)
    return tmp_path / name


def density_file(path, shape=(9, 12), step=(0.25, 0.2), origin=(0.0, 0.0), notes_key="notes"):
    """A reconstruction on other pixels than the scan's; its density rises along y and x, a part is
    not known.
    """
    grid = PixelGrid(step, origin)
    y, x = grid.coordinates(shape)
    density = 10 * y[:, None] + x
    trust = np.full(shape, 0.25)
    trust[0, 0] = np.nan
    images = {
        "density": (density, "e/Å²"),
        "uncertainty": (density / 10, "e/Å²"),
        "trust": (trust, ""),
    }
    write_images(path, "reconstruction", images, grid, {notes_key: ["of the scan"]})
    return path


# ---- What the page holds


def test_one_pass_gives_the_sums_of_the_whole_scan_whatever_its_pieces(monkeypatch):
    patterns = counts()
    recording = Recording(ArrayPatterns(patterns), "array", "a")
    y, x = np.indices(DETECTOR)
    for piece_bytes in (1, patterns.nbytes // 3, 2**24):
        monkeypatch.setattr(recording_page, "PIECE_BYTES", piece_bytes)
        sums = recording_page.read_sums(recording, page_tiles.TilePlan(2, 1))
        np.testing.assert_allclose(sums.mean, patterns.mean(axis=(0, 1)))
        np.testing.assert_array_equal(sums.totals, patterns.sum(axis=(2, 3)).ravel())
        moments = [(patterns * along).sum(axis=(2, 3)).ravel() for along in (y, x)]
        np.testing.assert_array_equal(sums.moments.T, moments)
        tiles = page_tiles.Tiles(sums.halves, sums.exponents, PixelGrid((1, 1), (0, 0)))
        expected = patterns.reshape(-1, 6, 2, 8, 2).sum(axis=(2, 4))
        np.testing.assert_array_equal(tiles.values(), expected)


@pytest.mark.parametrize("chunk", [(1, 1), (2, 3), (5, 7)])
def test_left_out_positions_are_the_same_whatever_the_pieces_of_the_file(tmp_path, chunk):
    patterns = counts()
    path = file_of(tmp_path, patterns, chunks=(*chunk, *DETECTOR))
    with namsa.read(path) as recording:
        sums = recording_page.read_sums(recording, page_tiles.TilePlan(1, 3))
    np.testing.assert_array_equal(sums.totals, patterns[::3, ::3].sum(axis=(2, 3)).ravel())
    np.testing.assert_allclose(sums.mean, patterns[::3, ::3].mean(axis=(0, 1)))


def test_pixels_that_are_not_finite_are_counted_and_shown_as_nothing():
    patterns = counts().astype(np.float32)
    patterns[1, 2, 3, 4], patterns[0, 0, 0, 0] = np.nan, np.inf
    page = namsa.browse(patterns)
    assert "2 pixels are not finite, or exceed 1e+30, and are shown as 0." in page.text
    numbers = numbers_of(page.text, "Intensity")
    assert numbers[9] == patterns[1, 2].sum(where=np.isfinite(patterns[1, 2]))


@pytest.mark.parametrize("suffix", ["npy", "h5"])
@pytest.mark.parametrize(
    ("dtype", "value"), [("f4", 1e38), ("f8", 1e38), ("f8", -1e300), ("f2", np.inf)]
)
def test_a_row_of_enormous_values_is_counted_and_left_out(tmp_path, suffix, dtype, value):
    patterns = counts().astype(dtype)
    patterns[1] = value
    path = tmp_path / f"scan.{suffix}"
    if suffix == "npy":
        np.save(path, patterns)
    else:
        with h5py.File(path, "w") as file:
            file["data"] = patterns
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        page = namsa.browse(path)
    assert f"{patterns[1].size} pixels are not finite, or exceed 1e+30" in page.text


@pytest.mark.parametrize("value", [2**63 - 1, 2**62])
def test_the_largest_integers_are_shown(value):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        page = namsa.browse(np.full((2, 3, 12, 16), value, np.int64))
    numbers = numbers_of(page.text, "Intensity")
    assert numbers == pytest.approx([12 * 16 * float(value)] * 6, rel=1e-3)


def test_deflection_is_that_of_the_disk_in_the_scans_frame():
    patterns = np.zeros((2, 2, 11, 11))
    patterns[:, :, 5, 5] = 1
    patterns[0, 1] = 0
    patterns[0, 1, 7, 5] = 1  # 2 pixels along the detector's y
    page = namsa.browse(patterns, pixel_mrad=3.0, centre_pixels=(5, 5), rotation_deg=90.0)
    assert numbers_of(page.text, "Deflection y") == pytest.approx([0, 0, 0, 0])
    assert numbers_of(page.text, "Deflection x") == pytest.approx([0, 6, 0, 0])
    assert "Deflection y on the detector" in namsa.browse(patterns).text


# ---- Size and memory


def test_page_keeps_to_its_size_whether_or_not_the_sample_of_patterns_tells_it():
    noise = np.random.default_rng(3).random((24, 24, 64, 64), np.float32)
    for patterns in (
        noise,
        np.where(np.isin(np.arange(24), [0, 12, 23])[:, None, None, None], 0, noise),
    ):
        page = namsa.browse(patterns, max_megabytes=4)
        assert 1e6 < page.bytes <= 4e6
    with pytest.raises(
        InputError, match="a page of 1 MB has no room for patterns: give 2 MB or more"
    ):
        namsa.browse(noise, max_megabytes=1)


class Made:
    """Patterns that are made when they are read: 2 GB in all."""

    shape = (256, 128, 256, 256)
    dtype = np.dtype(np.uint8)
    chunks = None

    def __getitem__(self, index):
        rows, columns = (
            len(range(*selected.indices(size)))
            for selected, size in zip(index, self.shape, strict=False)
        )
        return np.full((rows, columns, 256, 256), 3, np.uint8)


def test_memory_does_not_grow_with_the_scan(monkeypatch):
    monkeypatch.setattr(
        page_tiles, "MAX_SHOWN_PIXELS", 2**21
    )  # few positions are read, so that the test is fast
    tracemalloc.start()
    page = namsa.browse(Made(), max_megabytes=8)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert page.bytes <= 8e6
    assert peak < 400e6


# ---- Overlay


def test_overlay_is_read_with_its_pixels_and_its_values_at_the_positions(tmp_path):
    path = density_file(tmp_path / "density.h5")
    positions = np.array([[0.5, 0.4], [1.1, 0.7], [2.0, 2.2], [9.0, 0.0]])
    overlays = {}
    for overlay in page_overlay.read_overlays(path, positions):
        overlays[overlay.image.title] = overlay
    assert list(overlays) == ["Density", "Uncertainty", "Trust"]
    np.testing.assert_allclose(overlays["Density"].signal.values, [5.4, 11.7, 22.2, np.nan])
    np.testing.assert_allclose(overlays["Trust"].signal.values, [0.25, 0.25, 0.25, np.nan])
    image = overlays["Trust"].image
    assert (image.low, image.high, image.grid.step) == (0, 1, pytest.approx([0.25, 0.2]))


def test_overlay_of_another_scan_or_without_a_step_is_refused(tmp_path):
    path = density_file(tmp_path / "density.h5", origin=(100.0, 0.0))
    with pytest.raises(InputError, match="of another scan, or the scan's step is wrong"):
        namsa.browse(counts(), overlay=path, **CALIBRATION)
    with pytest.raises(
        InputError, match="does not state the scan's step, which places the overlay"
    ):
        namsa.browse(counts(), overlay=path)
    with pytest.raises(InputError, match="holds no density"):
        namsa.browse(counts(), overlay=file_of(tmp_path, counts()), **CALIBRATION)


# ---- Command


def test_command_writes_the_page_of_a_file_of_patterns(tmp_path, monkeypatch, capsys):
    file_of(tmp_path, counts())
    density_file(tmp_path / "density.h5")
    monkeypatch.chdir(tmp_path)
    known = [
        "--scan-step-angstrom",
        "0.5",
        "0.4",
        "--pixel-mrad",
        "2",
        "2.5",
        "--semiangle-mrad",
        "8",
    ]
    assert main(["show", "scan.h5", "--html", "--overlay", "density.h5", *known]) == 0
    assert capsys.readouterr().out == "scan.html\n"
    text = (tmp_path / "scan.html").read_text(encoding="utf-8")
    assert "steps of 0.5 × 0.4 Å" in text
    assert '<option value="density"' in text
    assert main(["show", "scan.h5", "--out", "scan.png"]) == 2
    assert "an interactive page is written, as scan.html" in capsys.readouterr().err
    assert main(["show", "scan.h5", "--pixel-mrad", "-1"]) == 2
    assert "--pixel-mrad is -1.0: give one positive number" in capsys.readouterr().err


@pytest.mark.parametrize("key", ["notes", "said"])  # the latter in files of earlier versions
def test_notes_of_a_reconstruction_are_shown(tmp_path, capsys, key):
    density_file(tmp_path / "density.h5", notes_key=key)
    assert main(["info", str(tmp_path / "density.h5")]) == 0
    assert "  note: of the scan\n" in capsys.readouterr().out


def test_commands_know_the_file_of_a_reconstruction(tmp_path, monkeypatch, capsys):
    density_file(tmp_path / "density.h5")
    monkeypatch.chdir(tmp_path)
    assert main(["info", "density.h5"]) == 0
    assert re.search(
        r"  density +9 × 12 pixels of 0.25 × 0.2 Å, .* e/Å²\n", capsys.readouterr().out
    )
    assert main(["info", "density.h5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["maps"]["density"][
        "pixel_angstrom"
    ] == pytest.approx([0.25, 0.2])
    assert main(["show", "density.h5"]) == 0
    assert (tmp_path / "density.png").read_bytes().startswith(b"\x89PNG")
    assert main(["show", "density.h5", "--html"]) == 2
    assert "namsa show SCAN --overlay density.h5" in capsys.readouterr().err


# ---- In a browser

SCRIPT = """
  const drawn = () => new Promise(resolve => setTimeout(resolve, 20));
  const report = [], mean = byId("mean"), box = () => mean.getBoundingClientRect();
  const note = () => report.push({ detector: { ...detector }, virtual: [...virtual], map: button.dataset.key,
    bar: byId("map-bar").textContent, where: byId("where").textContent,
    thumbnail: virtualButton.querySelector("img").src, hash: location.hash, overlay: byId("overlay-image").hidden,
    place: ["left", "top", "width", "height", "opacity"].map(name => parseFloat(byId("overlay-image").style[name])) });
  const pointer = async (kind, y, x) => {
    const [left, top, w, h] = viewOf(mean), { left: l, top: t, width, height } = box();
    mean.dispatchEvent(new PointerEvent(kind, { bubbles: true, clientX: l + (x - left) / w * width,
      clientY: t + (y - top) / h * height }));
    await drawn();
  };
  note();
  await pointer("pointerdown", detector.y, detector.x + 8); await pointer("pointermove", 0, 5.5);
  await pointer("pointerup", 0, 5.5); note();                       // the edge: a smaller disk
  await pointer("pointerdown", 1, 1); await pointer("pointermove", 3, -4); await pointer("pointerup", 3, -4); note();
  const set = (name, value) => {
    const input = ringInputs.find(one => one.name === name);
    input.value = value; input.dispatchEvent(new Event("change"));
  };
  set("y", 0); set("x", 0); set("outer", 14); set("inner", 8.5); await drawn(); note();
  await pointer("pointermove", 0, 0); note();                       // after the drag nothing moves
  buttons.find(one => one.dataset.key === "intensity").click();
  byId("overlay").value = "density"; byId("overlay").dispatchEvent(new Event("input")); note();
"""  # noqa: E501


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
def test_a_ring_that_is_drawn_on_the_pattern_gives_the_image_that_numpy_gives(tmp_path):
    patterns = counts()
    known = CALIBRATION | {"centre_pixels": (5.0, 8.5)}
    page = namsa.browse(
        file_of(tmp_path, patterns), overlay=density_file(tmp_path / "d.h5"), **known
    )
    first, small, moved, ring, after, covered = report_of(
        page.text, SCRIPT, tmp_path, "#position=9"
    )
    y, x = np.indices(DETECTOR) - np.array([5.0, 8.5])[:, None, None]
    for seen in (first, small, moved, ring):
        at = seen["detector"]
        distance = np.hypot(2 * y - at["y"], 2.5 * x - at["x"])
        inside = (distance >= at["inner"]) & (distance < at["outer"])
        expected = patterns[..., inside].sum(axis=-1).ravel()
        np.testing.assert_allclose(
            seen["virtual"], expected, rtol=1e-6
        )  # counts below 2048 are exact
        assert seen["where"].endswith(f"Virtual detector: {float(f'{expected[9]:.4g}'):g}")
        if not seen["overlay"]:  # whose colours the bar has
            continue
        low, high = (
            f"{end:.3g}" if end < 1000 else f"{end:,.0f}"
            for end in (expected.min(), expected.max())
        )
        assert seen["bar"].startswith(low)
        assert high in seen["bar"]
    assert first["detector"] == {"y": 0, "x": 0, "inner": 0, "outer": 8}
    assert small["detector"] == pytest.approx({"y": 0, "x": 0, "inner": 0, "outer": 5.5}, abs=0.1)
    assert moved["detector"] == pytest.approx({"y": 2, "x": -5, "inner": 0, "outer": 5.5}, abs=0.1)
    assert ring["detector"] == after["detector"] == {"y": 0, "x": 0, "inner": 8.5, "outer": 14}
    assert len({seen["thumbnail"] for seen in (first, small, moved, ring)}) == 4
    assert "outer=14" in ring["hash"]
    # The density of 9 × 12 pixels of 0.25 × 0.2 Å lies over the scan of 5 × 7 steps of 0.5 × 0.4 Å.
    # It is shown at first, until the reader asks for another image.
    assert [seen["overlay"] for seen in (first, small, ring, covered)] == [False, True, True, False]
    assert covered["map"] == "intensity"
    edges = [
        100 * (0.2 - 0.1) / 2.8,
        100 * (0.25 - 0.125) / 2.5,
        100 * 12 * 0.2 / 2.8,
        100 * 9 * 0.25 / 2.5,
        1,
    ]
    assert covered["place"] == pytest.approx(edges, rel=1e-3)
    assert "Density: 5.8 e/Å² · Uncertainty: 0.58 e/Å² · Trust: 0.25" in covered["where"]


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
def test_a_notebook_shows_the_page_in_a_frame_without_a_server(tmp_path):
    page = namsa.browse(counts(), title='a "quoted" <name> & more')
    probe = (
        "<script>addEventListener('message', event => document.body.append(Object.assign("
        "document.createElement('pre'), { id: 'report', textContent: event.data })));</script>"
    )
    tell = (
        "<script>ready.then(() => { selectPosition(3); "
        "parent.postMessage(document.title + byId('where').textContent, '*'); });</script>"
    )
    framed = type(page)(page.text + tell)._repr_html_()
    (tmp_path / "notebook.html").write_text(
        f"<!doctype html><body>{probe}{framed}</body>", encoding="utf-8"
    )
    report = reported(f"file://{tmp_path}/notebook.html", tmp_path)
    assert report.startswith('a "quoted" <name> & morePosition 3: y 0.00 steps, x 3.00 steps')


@pytest.mark.skipif(not ROTAVIRUS.exists(), reason="needs the measured scan")
def test_a_measured_scan_is_shown_with_its_centre_and_disk():
    page = namsa.browse(ROTAVIRUS, pixel_mrad=0.06615, max_megabytes=8)
    data = data_of(page.text)
    assert page.bytes <= 8e6
    assert data["raster"] == [32, 32]
    centre = []
    for coordinate in re.search(r"at pixel \((.*?), (.*?)\)", page.text).groups():
        centre.append(float(coordinate))
    assert centre == pytest.approx([31.2, 31.5], abs=0.5)  # a quarter of (126.3, 127.5), less 3/8
    assert data["detector"]["outer"] == pytest.approx(1.026, rel=0.25)  # scattering widens it
