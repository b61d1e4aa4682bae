"""The plugin in py4D-browser, without a screen. The browser is in an environment of
`scripts/other_programs.sh`.
"""

from pathlib import Path

import h5py
import numpy as np
import pytest

import train
from namsa import InputError

pytest.importorskip("py4D_browser")

KNOWN = {"energy_ev": 200e3, "semiangle_mrad": 20.0, "scan_step_angstrom": 0.4, "pixel_mrad": 2.0}
NETWORK = "200kv-20mrad-fast"


@pytest.fixture(scope="module")
def window(tmp_path_factory):
    """The browser's window, with a plugin from the namespace package of this checkout."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QT_QPA_PLATFORM", "offscreen")
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("settings")))
        patch.syspath_prepend(str(Path(train.__file__).parents[1]))
        import py4D_browser
        from PyQt5.QtWidgets import QApplication

        application = QApplication.instance() or QApplication(["browser"])
        window = py4D_browser.DataViewer()
        yield window
        window.close()
        application.processEvents()


@pytest.fixture
def plugin(window):
    (namsa_plugin,) = [entry["plugin"] for entry in window.loaded_plugins if entry["id"] == "namsa"]
    return namsa_plugin


@pytest.fixture(scope="module")
def scan(tmp_path_factory):
    """A file of 40 × 36 patterns whose axes say step and pixel, and the patterns."""
    k = np.arange(53) - 26
    rate = (
        3.0 * (np.hypot(k[:, None], k) < 10) * (1 + 0.5 * np.cos(np.arange(36) / 4)[:, None, None])
    )
    counts = (
        np.random.default_rng(3).poisson(np.broadcast_to(rate, (40, *rate.shape))).astype(np.uint16)
    )
    path = tmp_path_factory.mktemp("scan") / "scan.h5"
    with h5py.File(path, "w") as file:
        group = file.create_group("scan")
        group["data"] = counts
        axes = [("nm", 0.04, 0.0), ("nm", 0.04, 0.0), ("mrad", 2.0, -52.0), ("mrad", 2.0, -52.0)]
        for index, (units, scale, offset) in enumerate(axes):
            group.create_group(f"axis-{index}").attrs.update(
                {"units": units, "scale": scale, "offset": offset}
            )
    return path, counts


def test_a_file_is_opened_with_its_calibration(window, plugin, scan):
    path, counts = scan
    plugin.open(path)
    np.testing.assert_array_equal(window.datacube.data, counts)
    calibration = window.datacube.calibration
    assert (calibration.get_R_pixel_size(), calibration.get_R_pixel_units()) == (
        pytest.approx(0.4),
        "A",
    )
    assert (calibration.get_Q_pixel_size(), calibration.get_Q_pixel_units()) == (2.0, "mrad")


def test_the_result_is_the_density_of_the_selected_region(window, plugin, scan, monkeypatch):
    path, counts = scan
    plugin.open(path)
    beam = {name: KNOWN[name] for name in ("energy_ev", "semiangle_mrad")}
    plugin.show_density(NETWORK, **beam)
    known = train.CalibrationOverrides(**KNOWN, centre_pixels=(26.0, 26.0))
    np.testing.assert_array_equal(
        window.unscaled_fft_image, train.reconstruct(counts, NETWORK, known).density
    )
    assert window.fft_scale_bar.pixel_size == pytest.approx(0.4)
    monkeypatch.setattr(
        window, "get_virtual_image_detector", lambda: {"slice": [slice(3, 37), slice(0, 34)]}
    )
    plugin.show_density(NETWORK, **beam)
    density = train.reconstruct(counts[3:37, :34], NETWORK, known).density
    np.testing.assert_array_equal(window.unscaled_fft_image, density)


def test_a_data_cube_of_the_browser_has_its_own_calibration(window, plugin, scan):
    import py4DSTEM

    cube = py4DSTEM.DataCube(data=scan[1])
    for space, size, units in (("R", 0.4, "A"), ("Q", 2.0, "mrad")):
        getattr(cube.calibration, f"set_{space}_pixel_size")(size)
        getattr(cube.calibration, f"set_{space}_pixel_units")(units)
    window.set_datacube(cube, "another")
    plugin.show_density(NETWORK, energy_ev=200e3, semiangle_mrad=20.0)
    expected = train.reconstruct(scan[1], NETWORK, train.CalibrationOverrides(**KNOWN)).density
    np.testing.assert_array_equal(window.unscaled_fft_image, expected)
    with pytest.raises(InputError, match="energy"):
        plugin.show_density(NETWORK, energy_ev=80e3, semiangle_mrad=20.0)
