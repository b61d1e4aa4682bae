"""The page to look through a sample: what it holds, and in headless Chromium that it shows what is
asked for.
"""

import base64
import html
import json
import re
import shutil
import subprocess
import zlib

import fake_samples
import matplotlib
import numpy as np
import pytest
from browser import BROWSER, report_of
from paths import ROOT

from namsa import Sample
from namsa.base.pixels import PixelGrid, pattern_grid
from namsa.cli.parser import main
from namsa.figures.panels import PATTERN, PATTERN_POWER
from namsa.figures.sample_figure import sample_signals
from namsa.view import page as pages
from namsa.view import page_tiles, viewer

SCAN = (4, 6)
DETECTOR = (10, 14)
CELL = (8.0, 15.0)


def sample(scan=SCAN, detector=DETECTOR, **provenance):
    """Pattern number i has one bright pixel, at the i-th pixel of the detector, and a faint
    rest.
    """
    n = scan[0] * scan[1]
    p = fake_samples.raster_provenance(scan, detector, CELL, (16, 30), 3.0)
    cbed = np.full((n, *detector), 1e-4, np.float32)
    cbed.reshape(n, -1)[np.arange(n), np.arange(n) % cbed[0].size] = 0.5
    potential = np.random.default_rng(0).random((16, 30))
    return Sample(cbed, potential, potential, p | provenance)


def colours(values, name):
    return matplotlib.colormaps[name](values, bytes=True)[..., :3]


def test_page_is_whole_in_itself_and_names_are_text():
    page = viewer.sample_page(sample(), "<b> & </script>").text
    assert "://" not in page
    assert "{{" not in page
    assert "<b> &" not in page
    assert html.escape("<b> & </script>") in page
    assert len(re.findall(r"<script", page)) == 3
    assert page.count("</script>") == 3


def test_page_holds_every_pattern_to_eleven_bits():
    s = sample()
    page = viewer.sample_page(s, "s").text
    packed = base64.b64decode(re.search(r'id="patterns">(.*?)</script>', page)[1])
    low, high = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(2, *s.cbed.shape)
    halves = (low | high.astype(np.uint16) << 8).view(np.float16).astype(np.float64)
    exponents = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])["exponents"]
    held = halves * 2.0 ** np.array(exponents)[:, None, None]
    np.testing.assert_allclose(held, s.cbed, rtol=2**-11)


def test_counts_up_to_2048_are_exact_beside_brighter_ones():
    counts = np.random.default_rng(1).integers(0, 2049, (3, 4, 5)).astype(np.float32)
    counts[1, 0, 0], counts[2] = 2**24, 0
    halves, exponents = page_tiles.as_halves(counts)
    grid = PixelGrid((1, 1), (0, 0))
    np.testing.assert_array_equal(page_tiles.Tiles(halves, exponents, grid).values(), counts)


def test_maps_are_the_virtual_images_and_the_specimen():
    s = sample()
    maps = viewer.page_maps(s, sample_signals(s))
    assert [panel.title for panel in maps] == [
        "Annular dark field 12.5–17 mrad",
        "Bright field < 10 mrad",
        "Deflection y",
        "Deflection x",
        "Integrated deflection (iCoM)",
        "Projected potential",
        "Electron density",
    ]
    for panel in maps[:5]:
        assert panel.image.shape == SCAN
    assert maps[0].image[3, 5] == pytest.approx(0.5, abs=0.02)
    assert [panel.units for panel in maps[2:]] == [
        "mrad",
        "mrad",
        "rad",
        "V·Å, square-root scale",
        "e/Å², pixels of 0.5 Å",
    ]


def test_a_reading_that_is_rounding_beside_the_others_is_zero():
    assert pages.four_digits(np.array([8.33333, -8.6e-8, np.nan])) == [8.333, 0, None]


def test_positions_of_no_raster_have_the_specimen_for_a_map():
    s = sample(scan_shape=None)
    titles = [panel.title for panel in viewer.page_maps(s, sample_signals(s))]
    assert titles == ["Projected potential", "Electron density"]
    assert '"raster": null' in viewer.sample_page(s, "s").text


def test_large_patterns_are_binned_and_keep_their_angles_and_their_beam():
    s = sample(detector=(520, 600))
    angles = pattern_grid(s.provenance)
    plan = page_tiles.plan_tiles(SCAN, (520, 600), page_tiles.MAX_PAGE_BYTES)
    tiles = viewer.sample_tiles(s.cbed, np.arange(24), angles, plan)
    shown = tiles.values()
    assert shown.shape == (24, 520 // 3, 200)
    assert shown[23].sum() == pytest.approx(s.cbed[23, :519].sum(), rel=1e-3)
    # The bright pixel, number 23 of the first row, is where it was within the three that were
    # binned.
    column = int(np.argmax(shown[23][0]))
    assert tiles.grid.origin[1] + tiles.grid.step[1] * column == pytest.approx(
        angles.origin[1] + angles.step[1] * 22
    )
    note = page_tiles.reduction_note(plan, SCAN, (520, 600))
    assert note == "3 × 3 of their 520 × 600 pixels are shown as one."


def test_too_many_patterns_are_thinned_along_the_raster_and_it_is_said(monkeypatch):
    monkeypatch.setattr(page_tiles, "MAX_SHOWN_PIXELS", 10 * 140)
    page = viewer.sample_page(sample(), "s").text
    data = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])
    assert data["raster"] == [2, 3]
    assert data["numbers"] == [0, 2, 4, 12, 14, 16]
    assert "6 of 24 positions are shown, one in 2 along y and x." in page


def test_command_writes_the_page_alone_or_beside_the_picture(tmp_path, monkeypatch, capsys):
    sample(id="s").save(tmp_path / "x.h5")
    monkeypatch.chdir(tmp_path)
    assert main(["show", "x.h5", "--out", "page.html"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "x.h5"]
    assert main(["show", "x.h5", "--html"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "page.html",
        "x.h5",
        "x.html",
        "x.png",
    ]
    assert capsys.readouterr().out.split() == ["page.html", "x.png", "x.html"]


@pytest.mark.parametrize(
    "option", [["--calibration", "broken.json"], ["--scan-shape", "2x3"], ["--energy-ev", "1e5"]]
)
def test_options_for_files_of_patterns_are_refused_of_samples(
    tmp_path, monkeypatch, capsys, option
):
    sample(id="s").save(tmp_path / "x.h5")
    monkeypatch.chdir(tmp_path)
    assert main(["show", "x.h5", *option]) == 2
    assert capsys.readouterr().err == (
        f"error: x.h5 holds samples of namsa, which say how they were made: leave out {option[0]}\n"
    )
    assert main(["show", "y.mib", *option]) == 2
    assert capsys.readouterr().err.startswith("error: there is no file y.mib")


def test_an_overlay_without_a_page_is_refused(tmp_path, monkeypatch, capsys):
    sample(id="s").save(tmp_path / "x.h5")
    monkeypatch.chdir(tmp_path)
    assert main(["show", "x.h5", "--overlay", "density.h5"]) == 2
    assert capsys.readouterr().err == (
        "error: --overlay density.h5 is drawn on the page alone: add --html, or name a page with "
        "--out\n"
    )


SCRIPT = """
  const report = [], note = () => report.push({
    where: byId("where").textContent, title: byId("map-title").textContent, slider: byId("slider").value,
    pressed: buttons.filter(one => one.getAttribute("aria-pressed") === "true").map(one => one.dataset.key),
    hash: location.hash, pattern: [...canvas.getContext("2d").getImageData(0, 0, width, height).data] });
  const pointer = (kind, row, column) => {
    const box = byId("map").getBoundingClientRect();
    byId("map").dispatchEvent(new PointerEvent(kind, { bubbles: true,
      clientX: box.left + (column + 0.5) / 6 * box.width, clientY: box.top + (row + 0.5) / 4 * box.height }));
  };
  const key = name => byId("map").dispatchEvent(new KeyboardEvent("keydown", { key: name }));
  note();
  pointer("pointermove", 3, 1); note();
  byId("map").dispatchEvent(new PointerEvent("pointerleave")); note();
  pointer("click", 2, 4); note();
  key("ArrowDown"); key("ArrowDown"); key("ArrowLeft"); note();
  buttons.find(one => one.dataset.key === "projected-potential").click(); note();
  byId("slider").value = 1; byId("slider").dispatchEvent(new Event("input")); note();
"""  # noqa: E501


CONTRAST = """
  const set = (id, value) => { byId(id).value = value; byId(id).dispatchEvent(new Event("input")); };
  const saved = [], report = { view: getComputedStyle(document.querySelector(".detector svg")).overflow, saved };
  HTMLAnchorElement.prototype.click = function () { saved.push([this.download, this.href.slice(0, 22)]); };
  set("scale", "logarithm"); set("brightest", -1);
  report.pattern = [...canvas.getContext("2d").getImageData(0, 0, width, height).data];
  set("map-low", 0.25); set("map-high", 0.5); await drawMap();
  report.map = [...(await pixelsOf(byId("map-image").src)).image.data];
  report.ends = [...byId("map-bar").querySelectorAll(".bar > span")].map(end => end.textContent);
  byId("save-pattern").click(); await saveMap();
"""  # noqa: E501


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
def test_a_browser_changes_scale_and_contrast_and_saves_pictures(tmp_path):
    s = sample()
    page = viewer.sample_page(s, "s").text
    report = report_of(page, CONTRAST, tmp_path, "#position=3&map=projected-potential", 20_000)
    level = np.clip(
        1 + np.log10(np.maximum(s.cbed[3] / 0.05, 1e-4)) / 4, 0, 1
    )  # the brightest is a tenth of 0.5
    pattern = np.reshape(report["pattern"], (*DETECTOR, 4))[..., :3]
    np.testing.assert_allclose(pattern, colours(np.round(255 * level).astype(int), PATTERN), atol=6)
    # The potential is drawn as its root: a quarter of the scale is 1/16 of the largest value.
    potential = s.projected_potential
    level = np.clip(4 * (np.round(255 * np.sqrt(potential / potential.max())) / 255 - 0.25), 0, 1)
    shown = np.reshape(report["map"], (*potential.shape, 4))[..., :3]
    np.testing.assert_allclose(shown, colours(np.round(255 * level).astype(int), "viridis"), atol=6)
    assert [float(end) for end in report["ends"]] == pytest.approx(
        [potential.max() / 16, potential.max() / 4], rel=5e-3
    )
    assert report["view"] == "hidden"  # the ring stays in its panel
    assert sorted(report["saved"], reverse=True) == [
        ["s Projected potential.png", "data:image/png;base64,"],
        ["s Pattern 3.png", "data:image/png;base64,"],
    ]


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
def test_a_browser_shows_the_position_that_is_asked_for(tmp_path):
    s = sample()
    report = report_of(
        viewer.sample_page(s, "s").text, SCRIPT, tmp_path, "#position=13&map=deflection-y"
    )
    numbers = [13, 19, 13, 16, 21, 21, 1]
    for position, seen in zip(numbers, report, strict=True):
        y, x = s.provenance["positions_angstrom"][position]
        assert seen["where"].startswith(
            f"Position {position}: y {y:.2f} Å, x {x:.2f} Å · Annular dark field 12.5–17 mrad: "
        )
        assert seen["slider"] == str(position)
        level = np.round(255 * (s.cbed[position] / 0.5) ** PATTERN_POWER).astype(int)
        pattern = np.reshape(seen["pattern"], (*DETECTOR, 4))[..., :3]
        np.testing.assert_array_equal(pattern, colours(level, PATTERN))
    assert [seen["pressed"] for seen in report] == [["deflection-y"]] * 5 + [
        ["projected-potential"]
    ] * 2
    assert report[0]["title"] == "Deflection y"
    assert report[-1]["hash"] == "#position=1&map=projected-potential"


def test_the_page_shows_the_band_limit_of_a_simulation_where_patterns_reach_it():
    """Of 200 keV and pixels of 0.5 Å, 2/3 of the Nyquist frequency is 16.72 mrad; the detector
    reaches 20 along x.
    """
    page = viewer.sample_page(sample(), "s").text
    assert json.loads(re.search(r'id="data">(.*?)</script>', page)[1])["limit"] == 16.72
    assert page.count('<circle class="limit" r="16.72"/>') == 2
    assert "the simulation&#x27;s band limit of 16.7 mrad" in page
    finer = viewer.sample_page(sample(grid_shape=[32, 60]), "s").text
    assert json.loads(re.search(r'id="data">(.*?)</script>', finer)[1])["limit"] is None
    assert 'class="limit"' not in finer


def test_a_dark_field_beyond_the_band_limit_is_no_map():
    s = sample(semiangle_mrad=14.0)  # from 17.5 mrad on
    assert (
        next(panel.title for panel in viewer.page_maps(s, sample_signals(s)))
        == "Bright field < 14 mrad"
    )


REGION = """
const listeners = {}, map = {
  addEventListener: (name, listener) => { listeners[name] = listener; },
  removeEventListener: name => { delete listeners[name]; },
};
const pixels = 2, exponents = [0, 1, 2];
const halves = [0, 1, 2, 3, 4, 5], halfValues = [1, 2, 3, 4, 5, 6];
const marks = [[0, 0], [0, 1], [1, 1]], selected = 0, byId = () => map;
const pointIn = (element, event) => [event.y, event.x], showPattern = () => {};
let region = null;
drawRegion({ shiftKey: true, y: -0.1, x: -0.1 });
listeners.pointermove({ y: 0.5, x: 1.2 });
const report = { indices: region.indices, mean: [...meanPattern(region.indices)] };
listeners.pointermove({ y: -0.05, x: -0.05 });
listeners.pointerup();
console.log(JSON.stringify({ ...report, empty: region, listens: "pointermove" in listeners }));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_a_rectangle_on_the_map_has_the_mean_pattern_of_its_positions():
    script = (ROOT / "namsa/view/viewer.js").read_text()
    functions = []
    for name in ("meanPattern", "drawRegion"):
        start = script.index(f"function {name}(")
        functions.append(script[start : script.index("\n}\n", start) + 3])
    done = subprocess.run(
        ["node", "-e", "".join(functions) + REGION], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == {
        "indices": [0, 1],
        "mean": [(1 + 2 * 3) / 2, (2 + 2 * 4) / 2],  # each has a power of two
        "empty": None,
        "listens": False,
    }
