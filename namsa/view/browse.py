"""An interactive page of a sample, a scan or a file."""

from pathlib import Path
from typing import Any

import numpy.typing as npt

from namsa.io.reading import read
from namsa.io.recording import Recording
from namsa.samples.sample import Sample
from namsa.view.page import Page
from namsa.view.page_tiles import MAX_PAGE_BYTES
from namsa.view.recording_page import recording_page
from namsa.view.viewer import sample_page


def browse(
    data: Sample | Recording | str | Path | npt.ArrayLike,
    *,
    title: str | None = None,
    overlay: str | Path | None = None,
    max_megabytes: float = MAX_PAGE_BYTES / 1e6,
    **options: Any,
) -> Page:
    """Returns an interactive page: maps of a scan, its patterns, and a virtual detector to draw.

    A notebook shows the page where it stands last in a cell, in a frame of its own and without a
    server. A file is read once, piece by piece. Patterns are binned, and then positions left out,
    until the page is not too large; it says so.

    Args:
        data: Sample, recording, path of a file that `namsa.read` opens, or patterns `(sy, sx, dy,
            dx)`.
        title: Title of the page. Default: the name of the data.
        overlay: File of `namsa-train reconstruct`, whose density, uncertainty and trust are
            shown over the scan.
        max_megabytes: Largest size of the page, MB.
        options: What `namsa.read` takes for a file or an array: `energy_ev=300e3`.

    Returns:
        The page, with a method `save`.

    Raises:
        InputError: If the data are no scan of patterns, or if the overlay is none of this scan.
        WorkError: If a file is damaged.

    Example:
        >>> page = namsa.browse(sample)
        >>> page.save("sample.html")
        PosixPath('sample.html')
    """
    overlay_path = None if overlay is None else Path(overlay)
    max_bytes = int(1e6 * max_megabytes)
    if isinstance(data, Sample):
        name = title or str(data.provenance.get("id") or data.provenance.get("formula") or "sample")
        return sample_page(data, name, overlay=overlay_path, max_bytes=max_bytes)
    if isinstance(data, Recording):
        return recording_page(data, title or data.name, overlay=overlay_path, max_bytes=max_bytes)
    with read(data, **options) as recording:
        name = title or (Path(data).name if isinstance(data, str | Path) else "array")
        return recording_page(recording, name, overlay=overlay_path, max_bytes=max_bytes)
