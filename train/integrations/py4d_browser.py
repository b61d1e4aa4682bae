"""py4D-browser (1.5, GPL): opens any file that `namsa.read` does, and shows the density of the
selected region.

The browser finds the plugin in the namespace package `py4d_browser_plugin`. It has a menu of its
own, and the browser's view of results. The browser, py4DSTEM and Qt are imported when they are
there.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from namsa.base.errors import InputError, WorkError
from namsa.base.installation import EXTRAS, command
from namsa.base.memory import available_memory_bytes
from namsa.io.calibration import LIMITS, REQUIRED, CalibrationOverrides, override
from namsa.io.file_axes import FileAxis
from namsa.io.reading import read
from namsa.io.recording import ArrayPatterns, Recording
from namsa.io.stored_calibration import calibration_of_axes

NAME = "namsa"


def _density_networks(energy_ev: float) -> list[str]:
    """Returns the names of the shipped networks of the task density, the nearest energy first."""
    from ..apply.models import shipped

    networks = [model for model in shipped() if model.experiment.training.task == "density"]
    networks.sort(key=lambda model: abs(model.conditions.energy_ev - energy_ev))
    return [model.name for model in networks]


class NamsaPlugin:
    """The menu `Plugins > namsa`.

    Args:
        parent: The browser's window.
        plugin_menu: The menu that the browser has made.
    """

    plugin_id = NAME
    display_name = NAME
    uses_plugin_menu = True

    def __init__(self, parent: Any, plugin_menu: Any, **_: Any) -> None:
        self._window = parent
        self._opened: tuple[Any, Recording] | None = None  # a data cube, and what its file says
        actions: dict[str, Callable[[], None]] = {
            "Open...": self.open,
            "Density of the selection...": self.show_density,
        }
        for text, action in actions.items():
            plugin_menu.addAction(text).triggered.connect(
                lambda _checked, action=action: self._with_messages(action)
            )

    def close(self) -> None:
        """Is called when the browser ends."""

    def open(self, path: str | Path | None = None) -> None:
        """Opens a scan in the browser, whole in memory.

        Args:
            path: The file; `None` asks for it.

        Raises:
            InputError: If it is no scan, or larger than the memory.
        """
        import py4DSTEM
        from PyQt5.QtWidgets import QFileDialog

        path = path or QFileDialog.getOpenFileName(self._window, "Open a scan with namsa")[0]
        if not path:
            return
        with read(path) as recording:
            needed, (rows, columns) = (
                math.prod(recording.shape) * recording.dtype.itemsize,
                recording.shape[:2],
            )
            if needed > available_memory_bytes():
                raise InputError(
                    f"{path} takes {needed / 1e9:.1f} GB, more memory than there is: crop or bin it"
                )
            patterns = recording.read(slice(0, rows), slice(0, columns))
        cube = py4DSTEM.DataCube(data=patterns)
        for pair, space, units in (
            (recording.scan_step_angstrom, "R", "A"),
            (recording.pixel_mrad, "Q", "mrad"),
            (None if recording.pixel_mrad else recording.pixel_inverse_angstrom, "Q", "A^-1"),
        ):
            if pair:
                getattr(cube.calibration, f"set_{space}_pixel_size")(pair[0])
                getattr(cube.calibration, f"set_{space}_pixel_units")(units)
        self._opened = cube, recording
        self._window.set_datacube(cube, str(path))

    def show_density(self, network: str | None = None, **known: Any) -> None:
        """Reconstructs the selected rectangle, or the whole scan, and shows its density as the
        browser's result.

        Args:
            network: What `train.load_model` finds a network by; `None` asks for it.
            known: Numbers of the scan by the names of `train.CalibrationOverrides`. The user is
                asked for those that nobody knows.

        Raises:
            InputError: If no scan is open, or it does not fit the network.
        """
        from PyQt5.QtWidgets import QInputDialog

        from ..tasks.density.scan.application import reconstruct

        window = self._window
        cube = self._window.datacube
        if cube is None:
            raise InputError("no scan is open: open one first")
        recording = override(self._recording(cube), CalibrationOverrides(**known))
        for name, what in REQUIRED.items():
            if getattr(recording, name) is None and not (
                name == "pixel_mrad" and recording.pixel_inverse_angstrom
            ):
                unit = name.rpartition("_")[2]
                low, high, _ = LIMITS[name]
                value, given = QInputDialog.getDouble(
                    window, NAME, f"{what}, {unit}:", low, low, high, 6
                )
                if not given:
                    return
                recording = override(recording, CalibrationOverrides(**{name: value}))
        if network is None:
            names = _density_networks(recording.energy_ev or 0.0)
            network, given = QInputDialog.getItem(window, NAME, "network:", names, 0, False)
            if not given:
                return
        region = tuple(window.get_virtual_image_detector().get("slice", (slice(None), slice(None))))
        window.statusBar().showMessage(f"{NAME}: reconstructing ...")
        window.qtapp.processEvents()
        scan: Any = replace(recording, data=ArrayPatterns(cube.data[region]))
        result = reconstruct(scan, network)
        density = np.where(np.isfinite(result.density), result.density, np.nanmin(result.density))
        window.register_result_callback(NAME, cleanup=None)
        # By default the browser's scaling is the square root, which has no sign.
        for scaling in window.result_scaling_group.actions():
            scaling.setChecked(scaling.text().replace("&", "") == "Linear")
        title = f"density, e/Å²{', not reliable' if result.outside else ''}"
        step = result.step_angstrom[0]
        window.set_result_image(density, reset=True, pixel_size=step, pixel_units="Å", title=title)
        window.statusBar().showMessage(f"{NAME}: {result.notes[-1]}")

    def _recording(self, cube: Any) -> Recording:
        """Returns a data cube as a recording: what its file says, or py4DSTEM's calibration."""
        if self._opened is not None and self._opened[0] is cube:
            return self._opened[1]
        known = cube.calibration
        step = FileAxis(str(known.get_R_pixel_units()), float(known.get_R_pixel_size()), math.nan)
        pixel = FileAxis(str(known.get_Q_pixel_units()), float(known.get_Q_pixel_size()), math.nan)
        calibration = calibration_of_axes([step, step, pixel, pixel], cube.data.shape)
        return Recording(
            ArrayPatterns(cube.data), format="array", name="the data cube", **vars(calibration)
        )

    def _with_messages(self, action: Callable[[], None]) -> None:
        """Does what a menu asks for, and shows in a window what it cannot do."""
        from PyQt5.QtWidgets import QMessageBox

        try:
            action()
        except (InputError, WorkError) as error:
            QMessageBox.warning(self._window, NAME, str(error))
        except ModuleNotFoundError as error:
            if error.name not in EXTRAS:
                raise
            QMessageBox.warning(
                self._window, NAME, f"{error.name} is not installed: {command(error.name)}"
            )
