"""What every task's network finds in a scan: maps with their pixels and provenance, to save and to look at."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from namsa.arrays import Array
from namsa.io import hdf5
from namsa.pixels import PixelGrid

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Maps = Mapping[str, tuple[Array, str]]  # (..., y, x) and units, by name


class ScanResult(ABC):
    """What a network finds in a scan."""

    pixels: PixelGrid  # pixels of the maps, Å
    provenance: dict[str, Any]  # data, network, and under "said" the notes; JSON types only
    group: ClassVar[str]  # group of the maps in a file

    @property
    def notes(self) -> list[str]:
        """One line about each thing that was done to the data or assumed about them."""
        return list(self.provenance["said"])

    @property
    def lines(self) -> Sequence[str]:
        """The result in a few lines, if it is not in the maps alone."""
        return ()

    def save(self, path: str | Path) -> None:
        """Writes the maps as HDF5 (EMD 1.0) with axes, units and provenance.

        Args:
            path: The file; replaced if it exists.

        Raises:
            WorkError: If the file cannot be written.
        """
        facts = self.provenance | self._facts()
        hdf5.write_images(Path(path), self.group, self._maps(), self.pixels, facts, self._large_arrays())

    def show(self, path: str | Path | None = None) -> "Figure":
        """Draws the maps.

        Args:
            path: Where the picture is also written; the suffix names the format. `None` writes none.

        Returns:
            The Matplotlib figure.

        Raises:
            InputError: If Matplotlib does not know the format.
            WorkError: If the file cannot be written.
        """
        from namsa.figures.panels import write_figure

        figure = self._figure(f"{Path(self.provenance['data']).name}  ·  {self.provenance['model']}")
        if path is not None:
            write_figure(figure, Path(path))
        return figure

    @abstractmethod
    def _maps(self) -> Maps:
        """Returns the maps that are written, by their names in the file."""

    def _large_arrays(self) -> Mapping[str, hdf5.Bands]:
        """Returns arrays that are written beside the maps, with axes of their own."""
        return {}

    def _facts(self) -> dict[str, Any]:
        """Returns facts that are written beside the provenance; JSON types only."""
        return {}

    @abstractmethod
    def _figure(self, title: str) -> "Figure":
        """Draws the maps under a title."""
