"""HDF5: py4DSTEM (0.12 to 0.14), HyperSpy (.hspy and EMD), EMD in general, NeXus, NSID, USID, Nion
Swift, Velox, MATLAB 7.3, fpd, namsa's own files, plain datasets.

A plain HDF5 file has no units, and neither has a file whose axes are in pixels: there the caller
must give them. A dataset of three axes is a stack of frames, whose scan the caller states. Units
say which axes are the scan's; without them the scan comes first. Velox counts frames along the last
axis, and MATLAB lists axes backwards. fpd stores the detector's counters as a fifth axis; the first
one is read.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from namsa.base.errors import InputError
from namsa.base.pixels import UNITS, detector_grid
from namsa.base.text import shorten
from namsa.io.file_axes import FileAxis, axis_order
from namsa.io.formats import dectris, usid, velox
from namsa.io.formats.matlab import matlab_order
from namsa.io.hdf5_items import Hdf5Dataset, Hdf5Group
from namsa.io.layout import AxesView, arrange
from namsa.io.mask import stored_mask
from namsa.io.read_options import ReadOptions
from namsa.io.recording import PatternArray, Recording
from namsa.io.safe_hdf5 import SIGNATURE, Hdf5File, open_hdf5
from namsa.io.stored_axes import stored_axes
from namsa.io.stored_calibration import stored_beam, stored_calibration

NAME = "HDF5"
SUFFIXES = (".h5", ".hdf5", ".emd", ".hspy", ".nxs")

MAX_CHOICES = 12  # datasets that a message names
FPD = "fpd_expt/fpd_data/data"
# numbers of axes
STACK = 3
SCAN = 4
SERIES = 5
DETECTOR_FIRST = ("dy", "dx", "sy", "sx")
USER_BLOCKS = (512, 1024, 2048)  # bytes before the first ones of HDF5, in the head of a file


def recognises(path: Path, head: bytes) -> bool:
    """Returns whether the first bytes are those of HDF5, or follow a user block as in MATLAB's
    files.
    """
    return any(head[at : at + len(SIGNATURE)] == SIGNATURE for at in (0, *USER_BLOCKS))


@contextmanager
def open_recording(path: Path, options: ReadOptions) -> Iterator[Recording]:
    """Opens the scan in an HDF5 file: a dataset of four axes, a master file of Dectris, or a stack
    of frames.
    """
    with open_hdf5(path) as file:
        if options.dataset is None and dectris.is_master(file):
            yield dectris.describe(file, path, options)
            return
        data = _find_scan(file, path, options)
        if 0 in data.shape:
            raise InputError(
                f"{path} holds no patterns in {shorten(data.name)}: its shape is {data.shape}"
            )
        if usid.is_matrix(data):
            yield usid.describe(data, path, options)
        elif velox.is_image(data):
            yield velox.describe(data, path, options)
        else:
            yield _describe(data, path, options)


def _find_scan(file: Hdf5File, path: Path, options: ReadOptions) -> Hdf5Dataset:
    """Returns the dataset that is named, fpd's, NeXus' default one, or the only one of four axes,
    or five or three.
    """
    if options.dataset is not None:
        item = file.find(options.dataset)
        if isinstance(item, Hdf5Group):
            item = item.get("data")
        if usid.is_matrix(item):
            return cast(Hdf5Dataset, item)
        if (
            not isinstance(item, Hdf5Dataset)
            or len(item.shape) not in (STACK, SCAN, SERIES)
            or not item.is_numeric
        ):
            raise InputError(
                f"{path} has no dataset {shorten(options.dataset)} of four axes: "
                f"{_choices(*file.scans())}"
            )
        return item
    for item in (file.find(FPD), _default_signal(file)):
        if (
            isinstance(item, Hdf5Dataset)
            and len(item.shape) in (STACK, SCAN, SERIES)
            and item.is_numeric
        ):
            return item
    scans, refused = file.scans()
    candidates = scans or file.scans(SERIES)[0] or usid.matrices(file) or file.scans(STACK)[0]
    item = file.find(candidates[0]) if len(candidates) == 1 else None
    if not isinstance(item, Hdf5Dataset):
        reason = "several" if scans else "no"
        raise InputError(
            f"{path} holds {reason} datasets of four axes: {_choices(scans, refused, candidates)}"
        )
    return item


def _default_signal(file: Hdf5File) -> Hdf5Dataset | Hdf5Group | None:
    """Returns what a NeXus file names as its data: the attributes `default` of its groups, and
    `signal` of the last.
    """
    group = file.find("/")
    for _ in range(4):
        if not isinstance(group, Hdf5Group):
            return None
        if isinstance(signal := group.attribute("signal"), str):
            return group.get(signal)
        default = group.attribute("default")
        group = group.get(default) if isinstance(default, str) else None
    return None


def _choices(scans: list[str], refused: list[str], others: list[str] | None = None) -> str:
    """Returns what to do about the choice of a scan."""
    if scans or others:
        choices = scans or others or []
        names = ", ".join(shorten(scan.removeprefix("/")) for scan in choices[:MAX_CHOICES])
        also = "" if scans or all(map(velox.is_name, choices)) else " and give --scan-shape"
        more = " and more" * (len(choices) > MAX_CHOICES)
        return f"choose one with --dataset{also}: {names}{more}"
    return "; ".join(
        (
            "a scan is stored as (y, x, detector y, detector x)",
            *(shorten(line, 160) for line in refused[:3]),
        )
    )


def _describe(data: Hdf5Dataset, path: Path, options: ReadOptions) -> Recording:
    """Returns the scan with what the file says of it."""
    axes = stored_axes(data)
    beam = stored_beam(data)
    counters = data.name == f"/{FPD}" and len(data.shape) == SERIES
    notes: tuple[str, ...] = ()
    order: tuple[str, ...] | None
    patterns: PatternArray = data
    if data.attribute("MATLAB_class") is not None:  # whose axes HDF5 lists backwards
        patterns = AxesView(data, tuple(reversed(range(len(data.shape)))))
        order, notes = matlab_order(patterns.shape, path, options)
    elif _is_of_ptychoshelves(data) and options.axes is None:
        order = ("n", "dx", "dy")
        notes = (
            "dp as MATLAB writes it for PtychoShelves: each pattern's columns are stored as rows; "
            "--axes n,dy,dx says another order",
        )
    elif counters:
        order = ("sy", "sx", "t", "dy", "dx")
    else:
        order = _order(data, axes)
    layout = arrange(patterns, options, path, order=order, counters=counters)
    stored = stored_calibration(data, layout.arranged(axes), layout.data.shape)
    masked, unfit = stored_mask(
        data.file, (f"{data.parent.name.rstrip('/')}/pixel_mask",), layout.data.shape[2:]
    )
    shape = layout.data.shape[2:]
    centre = stored.centre_pixels or tuple((n - 1) / 2 for n in shape)
    empty = stored.pixel_mrad and detector_grid(
        stored.pixel_mrad, centre, beam.limit_mrad
    ).emptiness(shape)
    return layout.recording(
        NAME,
        path,
        notes=(*notes, *_axis_notes(axes), *unfit, *filter(None, (empty, beam.note))),
        limit_mrad=beam.limit_mrad,
        energy_ev=beam.energy_ev,
        semiangle_mrad=beam.semiangle_mrad,
        thickness_angstrom=beam.thickness_angstrom,
        aperture_edge=beam.aperture_edge,
        normalised=data.attribute("units") == UNITS["cbed"],
        bad_pixels=masked,
        metadata={
            "dataset": data.name.removeprefix("/"),
            **({"counters": data.shape[2]} if counters else {}),
        },
        **layout.calibration(axes, stored),
    )


def _is_of_ptychoshelves(data: Hdf5Dataset) -> bool:
    """Returns whether a dataset is PtychoShelves' `dp`, which MATLAB writes with `h5write`."""
    return data.name == "/dp" and len(data.shape) == STACK


def _axis_notes(axes: Sequence[FileAxis]) -> list[str]:
    """Returns the notes on the axes' coordinates, one for each axis."""
    return list(dict.fromkeys(axis.note for axis in axes if axis.note))


def _order(data: Hdf5Dataset, axes: Sequence[FileAxis]) -> tuple[str, ...] | None:
    """Returns which axis is which, by the units, and in EMD of HyperSpy without names backwards."""
    order = axis_order(axes)
    unnamed = not any(axis.name for axis in axes)
    if order == DETECTOR_FIRST and unnamed and data.parent.get("axis-0") is None:
        return ("dx", "dy", "sx", "sy")
    return order
