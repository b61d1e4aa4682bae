"""Results of every task's network for a scan: maps with their pixels and provenance, to save and to
look at.
"""

import argparse
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from namsa.base.arrays import Array
from namsa.base.console import output_console
from namsa.base.errors import InputError
from namsa.base.markup import element
from namsa.base.outputs import check_output
from namsa.base.pixels import PixelGrid
from namsa.base.provenance_values import Provenance
from namsa.base.text import described, printable
from namsa.cli.calibration_options import calibration_overrides, layout
from namsa.io import hdf5
from namsa.io.calibration import CalibrationOverrides
from namsa.io.calibration_file import with_calibration_file
from namsa.samples.image import image_or_array

from ..ranks.signals import Stopped

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Maps = Mapping[str, tuple[Array, str]]  # (..., y, x) and units, by name


class ScanResult(ABC):
    """The result of a network for a scan."""

    pixels: PixelGrid  # pixels of the maps, Å
    provenance: Provenance  # data, network, and under "notes" the notes; JSON types only
    group: ClassVar[str]  # group of the maps in a file

    @property
    def notes(self) -> list[str]:
        """One line about each thing that was done to the data or assumed about them."""
        return list(self.provenance["notes"])

    @property
    def lines(self) -> Sequence[str]:
        """The result in a few lines, if it is not in the maps alone."""
        return ()

    @property
    def images(self) -> dict[str, Array]:
        """The maps as `namsa.Image`, by name."""
        return {
            name: image_or_array(np.asarray(values), self.pixels, name, units)
            for name, (values, units) in self._maps().items()
        }

    def save(self, path: str | Path) -> None:
        """Writes the maps as HDF5 (EMD 1.0) with axes, units and provenance.

        Args:
            path: The file; replaced if it exists.

        Raises:
            WorkError: If the file cannot be written.
        """
        facts = self.provenance | self._facts()
        hdf5.write_images(
            Path(path), self.group, self._maps(), self.pixels, facts, self._large_arrays()
        )

    def show(self, path: str | Path | None = None) -> "Figure":
        """Draws the maps.

        Args:
            path: Where the picture is also written; the suffix names the format. `None` writes
                none.

        Returns:
            The Matplotlib figure.

        Raises:
            InputError: If Matplotlib does not know the format.
            WorkError: If the file cannot be written.
        """
        from namsa.figures.panels import write_figure

        figure = self._figure(
            f"{Path(self.provenance['data']).name}  ·  {self.provenance['model']}"
        )
        if path is not None:
            write_figure(figure, Path(path))
        return figure

    def _repr_html_(self) -> str:
        """Returns the HTML that a notebook shows: the picture, the range of each map, and the
        notes.
        """
        from ..reports.figures import data_uri

        source = data_uri(self.show(), "png")
        picture = element("img", {"src": source, "alt": "", "style": "max-width:100%"})
        rows = []
        for name, (image, unit) in self._maps().items():
            rows.append((name, f"{np.nanmin(image):.4g} to {np.nanmax(image):.4g} {unit}"))
        for line in self.lines:
            rows.append(("result", line))
        for line in self.notes:
            rows.append(("note", line))
        return described(type(self).__name__, self._summary, rows, [picture])

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._summary}>"

    @property
    @abstractmethod
    def _summary(self) -> str:
        """The result and its scan, in a line."""

    @abstractmethod
    def _maps(self) -> Maps:
        """Returns the maps that are written, by their names in the file."""

    def _large_arrays(self) -> Mapping[str, hdf5.Bands]:
        """Returns arrays that are written beside the maps, with axes of their own."""
        return {}

    def _facts(self) -> dict[str, object]:
        """Returns facts that are written beside the provenance; JSON types only."""
        return {}

    @abstractmethod
    def _figure(self, title: str) -> "Figure":
        """Draws the maps under a title."""


def write_result(
    options: argparse.Namespace, compute: Callable[..., ScanResult], /, **settings: object
) -> None:
    """Computes what a network finds in a scan, writes arrays and picture, and prints where they
    are.

    Args:
        compute: See `train.tasks.scan_command.ScanCommand.function`.
    """
    console = output_console()
    picture = picture_beside(options.out, (options.data, Path(options.checkpoint)))
    try:
        result = compute(
            options.data, options.checkpoint, **scan_arguments(options), console=console, **settings
        )
        result.save(options.out)
        result.show(picture)
    except KeyboardInterrupt:
        raise Stopped(f"interrupted; {options.out} was not written") from None
    for line in (*result.lines, f"{options.out} and {picture}"):
        console.print(printable(line), highlight=False, soft_wrap=True)


def scan_arguments(options: argparse.Namespace) -> dict[str, object]:
    """Returns what the options say about the scan, as keywords of the functions that apply a
    network.
    """
    return {
        "calibration": calibration_overrides(options),
        "beam_intensity": beam_intensity(options),
        "layout": layout(options),
    }


def beam_intensity(options: argparse.Namespace) -> float | None:
    """Returns the sum of a pattern without specimen, as the options or the calibration file say
    it.
    """
    given: float | None = options.beam_intensity
    if given is None:
        return with_calibration_file(CalibrationOverrides(), options.calibration)[1]
    return given


def picture_beside(out: Path, inputs: Sequence[Path]) -> Path:
    """Returns the picture beside `out`, after checks that both can be written and replace none of
    the inputs.
    """
    check_output(out, inputs, makes_folders=True)
    picture = out.with_suffix(".png")
    if picture == out:
        raise InputError(
            f"--out {out} is for the arrays, as OUT.h5; the picture is written beside it as OUT.png"
        )
    check_output(picture, inputs, f"--out {out}: the picture", makes_folders=True)
    return picture
