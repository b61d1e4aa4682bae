"""Rotation, centre and disk that are set by hand in a page: the script's numbers, by Node, and the
page, by headless Chromium.
"""

import json
import shlex
import shutil
import subprocess

import numpy as np
import pytest
from browser import BROWSER, report_of
from paths import ROOT

import namsa
from namsa.cli.parser import build_parser
from namsa.inspection.curl import rotated
from namsa.io.calibration_file import read_calibration
from namsa.view import page_by_hand

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="Node is not installed")
STATED = {"energy_ev": 200e3, "semiangle_mrad": 8.0, "scan_step_angstrom": (0.5, 0.4)}
DETECTOR = (24, 28)
CENTRE = (13.2, 11.6)
RADIUS = 6.0
CHOSEN = {
    "centre_pixels": [13.25, 11.5],
    "disk_radius_pixels": 6.25,
    "pixel_mrad": [1.28, 1.28],
    "rotation_deg": -35,
    "mirrored": True,
}


def patterns():
    y, x = np.indices(DETECTOR) - np.reshape(CENTRE, (2, 1, 1))
    disk = 100.0 * (np.hypot(y, x) < RADIUS)
    return np.random.default_rng(0).poisson(disk + np.zeros((5, 6, 1, 1))).astype(np.uint16)


def of_script(expression):
    """The value of an expression in which the functions of the script are known."""
    script = (ROOT / "namsa/view/by_hand.js").read_text(encoding="utf-8")
    page = "const data = { hand: null }, document = { querySelectorAll: () => [] };"
    program = f"{page}\n{script}\nconsole.log(JSON.stringify({expression}))"
    done = subprocess.run([NODE, "-e", program], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@needs_node
def test_the_script_turns_deflections_as_the_program_does_and_the_curl_shows_the_rotation():
    y, x = np.meshgrid(np.linspace(0, 3, 9), np.linspace(0, 2, 11), indexing="ij")
    step = (3 / 8, 0.2)
    field = np.stack(np.gradient(np.sin(y) * np.cos(2 * x), *step), axis=-1)
    on_detector = rotated(field, -40.0, False)[..., ::-1]  # turned back, and mirrored
    answer = of_script(
        f"""(() => {{
            const field = {json.dumps(on_detector.reshape(-1, 2).tolist())};
            const share = (degrees, mirrored) => {{
                const pairs = field.map(([y, x]) => turned(y, x, degrees, mirrored));
                const [down, along] = [0, 1].map(axis => pairs.map(pair => pair[axis]));
                return curlOverDivergence(down, along, [9, 11], {json.dumps(step)});
            }};
            return {{
                turned: field.map(([y, x]) => turned(y, x, 40, true)),
                shares: [[40, true], [10, true], [40, false], [130, true]]
                    .map(one => share(...one)),
            }};
        }})()"""
    )
    assert np.array(answer["turned"]).reshape(field.shape) == pytest.approx(field)
    right, turned_off, not_mirrored, across = answer["shares"]
    assert right < 0.1
    assert min(turned_off, not_mirrored) > 0.3
    assert across > 10


@needs_node
def test_what_is_set_by_hand_is_a_calibration_file_and_options_of_the_commands(tmp_path):
    with namsa.read(patterns(), calibration=None, **STATED) as recording:
        angles = namsa.PixelGrid((1.0, 1.0), (-CENTRE[0], -CENTRE[1]))
        stated = page_by_hand.as_json(page_by_hand.by_hand_of(recording, angles, RADIUS))
    answer = of_script(
        f"""(() => {{
            const stated = {json.dumps(stated)}, chosen = {json.dumps(CHOSEN)};
            return {{ file: calibrationOf(stated, chosen), options: optionsOf(chosen) }};
        }})()"""
    )
    (tmp_path / "hand.json").write_text(json.dumps(answer["file"]))
    known = read_calibration(tmp_path / "hand.json")
    for name, value in CHOSEN.items():
        assert known.value(name) == (tuple(value) if isinstance(value, list) else value)
        assert known.quantities[name].method == "set by hand"
    assert known.value("energy_ev") == STATED["energy_ev"]
    words = ["parallax", "scan.h5", "--out", "a.tif", *shlex.split(answer["options"])]
    options = build_parser().parse_args(words)
    assert options.centre_pixels == CHOSEN["centre_pixels"]
    assert (options.rotation_deg, options.mirrored) == (-35, True)


@needs_node
def test_the_disk_gives_the_pixel_or_else_the_semiangle():
    scale = "scaleByDisk({ pixel_mrad: %s, semiangle_mrad: %s }, 10)"
    by_semiangle = of_script(scale % ("[2, 8]", "20"))["pixel_mrad"]
    assert np.sqrt(by_semiangle[0] * by_semiangle[1]) == pytest.approx(2)
    assert by_semiangle[1] / by_semiangle[0] == pytest.approx(4)
    assert of_script(scale % ("[2, 8]", "null")) == {"semiangle_mrad": 40}
    assert of_script(scale % ("null", "null")) == {}


@pytest.mark.parametrize("options", [{}, {"binning": 2}, {"crop": "2:24,4:26", "binning": 2}])
def test_the_numbers_are_those_of_the_stored_detector(options):
    with namsa.read(patterns(), centre_pixels=CENTRE, pixel_mrad=(1.5, 1.2), **options) as scan:
        pixel = scan.pixel_mrad
        centre = scan.centre_pixels
        angles = namsa.PixelGrid(pixel, (-centre[0] * pixel[0], -centre[1] * pixel[1]))
        by_hand = page_by_hand.by_hand_of(scan, angles, RADIUS * np.sqrt(1.5 * 1.2))
    assert by_hand.centre_pixels == pytest.approx(CENTRE)
    assert by_hand.pixel_mrad == pytest.approx((1.5, 1.2))
    assert by_hand.page_step == pytest.approx((1.5, 1.2))
    assert by_hand.disk_radius_pixels == pytest.approx(RADIUS)


def test_only_the_page_of_a_scan_has_the_controls():
    page = namsa.browse(patterns(), **STATED).text
    assert '<fieldset id="by-hand" >' in page
    assert '"disk_radius_pixels"' in page


@pytest.mark.skipif(BROWSER is None, reason="Chromium is not installed")
def test_a_browser_takes_centre_and_disk_from_the_ring_and_turns_the_deflection(tmp_path):
    page = namsa.browse(patterns(), **STATED).text
    script = """
        Object.assign(detector, { y: 1.5, x: -2, outer: 7 });
        takeRing();
        handInput("rotation").value = "30";
        handInput("rotation").dispatchEvent(new Event("input"));
        const circle = document.querySelector(".detector svg circle");
        const report = {
            options: byId("hand-options").textContent,
            circle: ["cy", "cx", "r"].map(name => Number(circle.getAttribute(name))),
            titles: buttons.map(item => item.querySelector("b").textContent),
            centre: hand.centre_pixels,
        };
    """
    report = report_of(page, script, tmp_path, "")
    y, x = report["centre"]
    assert (y, x) == pytest.approx(CENTRE, abs=0.1)
    words = report["options"].split()
    assert [float(word) for word in words[1:3]] == pytest.approx([y + 1.5, x - 2], abs=1e-3)
    assert words[3:] == [
        "--pixel-mrad",
        "1.14286",
        "1.14286",
        "--rotation-deg",
        "30",
        "--no-mirrored",
    ]
    assert report["circle"] == pytest.approx([1.5, -2, 7], abs=1e-3)
    assert report["titles"][-2:] == ["Deflection y", "Deflection x"]
