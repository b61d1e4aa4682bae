"""The page to look through a sample: what it holds, and in headless Chromium that it shows what is asked for."""

import base64
import html
import io
import json
import re
import shutil
import subprocess

import matplotlib
import numpy as np
import pytest
from matplotlib.image import imread

from namsa import Sample
from namsa.cli.parser import main
from namsa.errors import WorkError
from namsa.pixels import pattern_grid
from namsa.view import viewer
from namsa.view.signals import sample_signals

SCAN, DETECTOR, CELL = (4, 6), (10, 14), (8.0, 15.0)
BROWSER = shutil.which("chromium")


def sample(scan=SCAN, detector=DETECTOR, **provenance):
    """Pattern number i has one bright pixel, at the i-th pixel of the detector, and a faint rest."""
    n = scan[0] * scan[1]
    step = [length / count for length, count in zip(CELL, scan, strict=True)]
    y, x = (s * np.arange(count) for s, count in zip(step, scan, strict=True))
    p = {
        "scan_shape": list(scan),
        "positions_angstrom": np.stack(np.meshgrid(y, x, indexing="ij"), -1).reshape(-1, 2).tolist(),
        "extent_angstrom": list(CELL),
        "grid_shape": [16, 30],
        "detector_sampling_mrad": [3.0, 3.0],
        "detector_origin_mrad": [-(count - 1) * 1.5 for count in detector],
        "density_sampling_angstrom": [0.5, 0.5],
        "density_origin_angstrom": [0.0, 0.0],
        "energy_ev": 200e3,
        "semiangle_mrad": 10.0,
        "thickness_angstrom": 20.0,
    }
    cbed = np.full((n, *detector), 1e-4, np.float32)
    cbed.reshape(n, -1)[np.arange(n), np.arange(n) % cbed[0].size] = 0.5
    potential = np.random.default_rng(0).random((16, 30))
    return Sample(cbed, potential, potential, p | provenance)


def picture(url):
    """The image (H, W, 3) in 8 bits of a PNG's data URL."""
    return np.round(255 * imread(io.BytesIO(base64.b64decode(url.removeprefix("data:image/png;base64,"))))[..., :3])


def colours(values, name):
    return matplotlib.colormaps[name](values, bytes=True)[..., :3]


def test_page_is_whole_in_itself_and_names_are_text():
    page = viewer.page(sample(), "<b> & </script>")
    assert "://" not in page
    assert "{{" not in page
    assert "<b> &" not in page
    assert html.escape("<b> & </script>") in page
    assert len(re.findall(r"<script", page)) == 2
    assert page.count("</script>") == 2


def test_sheet_holds_every_pattern_in_its_place():
    s = sample()
    page = viewer.page(s, "s")
    sheet = picture(re.search(r'src: "([^"]+)"', page)[1])
    columns = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])["columns"]
    for number in (0, 7, 23):
        row, column = divmod(number, columns)
        tile = sheet[row * 10 : row * 10 + 10, column * 14 : column * 14 + 14]
        level = np.round(255 * (s.cbed[number] / 0.5) ** viewer.PATTERN_POWER).astype(int)
        np.testing.assert_array_equal(tile, colours(level, viewer.PATTERN))


def test_maps_are_the_virtual_images_and_the_specimen():
    s = sample()
    maps = viewer.page_maps(s, sample_signals(s))
    assert [panel.title for panel in maps] == [
        "Dark field > 12.5 mrad",
        "Bright field < 10 mrad",
        "Deflection y",
        "Deflection x",
        "Integrated deflection (iCoM)",
        "Projected potential",
        "Electron density",
    ]
    assert all(panel.image.shape == SCAN for panel in maps[:5])
    assert maps[0].image[3, 5] == pytest.approx(0.5, abs=0.02)
    assert [panel.units for panel in maps[2:]] == ["mrad", "mrad", "rad", "V·Å", "e/Å²"]


def test_positions_of_no_raster_have_the_specimen_for_a_map():
    s = sample(scan_shape=None)
    assert [panel.title for panel in viewer.page_maps(s, sample_signals(s))] == [
        "Projected potential",
        "Electron density",
    ]
    assert '"raster": null' in viewer.page(s, "s")


def test_large_patterns_are_binned_and_keep_their_angles_and_their_beam():
    s = sample(detector=(260, 300))
    shown = viewer.page_patterns(s.cbed, s.provenance)
    assert shown.tiles.shape == (24, 260 // 3, 100)
    assert shown.tiles[23].sum() == pytest.approx(s.cbed[23, :258].sum(), rel=1e-5)
    # The bright pixel, number 23 of the first row, is where it was within the three that were binned.
    angles = pattern_grid(s.provenance)
    column = int(np.argmax(shown.tiles[23][0]))
    assert shown.grid.origin[1] + shown.grid.step[1] * column == pytest.approx(angles.origin[1] + angles.step[1] * 22)
    assert "3 × 3 of their 260 × 300 pixels" in shown.note


def test_too_many_patterns_are_thinned_along_the_raster_and_it_is_said(monkeypatch):
    monkeypatch.setattr(viewer, "MAX_SHEET_PIXELS", 10 * 140)
    s = sample()
    shown = viewer.page_patterns(s.cbed, s.provenance)
    assert shown.raster == (2, 3)
    assert shown.numbers.tolist() == [0, 2, 4, 12, 14, 16]
    np.testing.assert_array_equal(shown.tiles, s.cbed[shown.numbers])
    assert "6 of 24 positions are shown, one in 2 along y and x." in shown.note


def test_a_page_that_cannot_be_written_is_an_error(tmp_path):
    with pytest.raises(WorkError, match="cannot write the page"):
        viewer.write_page(sample(), tmp_path / "no" / "page.html", "s")


def test_command_writes_the_page_alone_or_beside_the_picture(tmp_path, monkeypatch, capsys):
    s = sample()
    monkeypatch.setattr("namsa.cli.commands.view.find_sample", lambda path: ("s", s))
    monkeypatch.chdir(tmp_path)
    assert main(["show", "x", "--out", "page.html"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html"]
    assert main(["show", "x", "--html"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "s.html", "s.png"]
    assert capsys.readouterr().out.split() == ["page.html", "s.png", "s.html"]


SCRIPT = """
<script>
sheet.decode().then(() => {
  const report = [], note = () => report.push({
    where: byId("where").textContent, title: byId("map-title").textContent, slider: byId("slider").value,
    pressed: buttons.filter(one => one.getAttribute("aria-pressed") === "true").map(one => one.dataset.key),
    hash: location.hash, pattern: [...draw.getImageData(0, 0, width, height).data] });
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
  const answer = Object.assign(document.createElement("pre"), { id: "report", textContent: JSON.stringify(report) });
  document.body.append(answer);
});
</script>
"""


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
def test_a_browser_shows_the_position_that_is_asked_for(tmp_path):
    s = sample()
    (tmp_path / "page.html").write_text(viewer.page(s, "s") + SCRIPT, encoding="utf-8")
    options = "--headless --no-sandbox --disable-gpu --disable-background-networking --disable-component-update"
    command = [BROWSER, *options.split(), "--disable-sync", f"--user-data-dir={tmp_path / 'browser'}"]
    command += ["--virtual-time-budget=5000", "--dump-dom", f"file://{tmp_path}/page.html#position=13&map=deflection-y"]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    report = json.loads(html.unescape(re.search(r'id="report">(.*?)</pre>', dom)[1]))
    numbers = [13, 19, 13, 16, 21, 21, 1]
    for number, seen in zip(numbers, report, strict=True):
        y, x = s.provenance["positions_angstrom"][number]
        assert seen["where"].startswith(f"Position {number}: y {y:.2f} Å, x {x:.2f} Å · Dark field > 12.5 mrad: ")
        assert seen["slider"] == str(number)
        level = np.round(255 * (s.cbed[number] / 0.5) ** viewer.PATTERN_POWER).astype(int)
        pattern = np.reshape(seen["pattern"], (*DETECTOR, 4))[..., :3]
        np.testing.assert_array_equal(pattern, colours(level, viewer.PATTERN))
    assert [seen["pressed"] for seen in report] == [["deflection-y"]] * 5 + [["projected-potential"]] * 2
    assert report[0]["title"] == "Deflection y"
    assert report[-1]["hash"] == "#position=1&map=projected-potential"
