"""`namsa info` and `show`: what a dataset or a file holds, in words and in pictures."""

import argparse
import os
from pathlib import Path
from typing import TypedDict

import numpy as np

from namsa.base.errors import InputError
from namsa.base.names import check_name
from namsa.base.outputs import check_output
from namsa.base.text import shorten
from namsa.cli.calibration_options import calibration_overrides, layout, refuse_stated
from namsa.cli.commands.output import print_json, print_line
from namsa.dataset import shards
from namsa.dataset.empty import check_not_empty
from namsa.exchange import stemdl
from namsa.figures.density_figure import MapPanel, density_figure
from namsa.figures.page_images import PageImage
from namsa.figures.panels import write_figure
from namsa.figures.sample_figure import show as show_sample
from namsa.io.formats import frame_files, zarr_store
from namsa.io.frames import UnknownScanShapeError
from namsa.io.reading import read
from namsa.samples import sample_file
from namsa.samples.sample import Sample
from namsa.view import info_text
from namsa.view.browse import browse
from namsa.view.info import DatasetInfo, FileInfo, describe_dataset, describe_file
from namsa.view.page_overlay import read_images
from namsa.view.recording_info import RecordingInfo, describe_recording


def info(options: argparse.Namespace) -> None:
    """Prints what a dataset or a file holds, with the first sample's axes and units; or only the
    samples' names.
    """
    described: DatasetInfo | FileInfo | RecordingInfo
    if os.path.isfile(options.path / stemdl.DATA_FILE) or stemdl.is_hdf5(options.path):
        _print_stemdl(options)
        return
    if os.path.isfile(options.path) and holds_images(options.path):
        _print_density(options)
        return
    if _is_folder_of_patterns(options.path) or (
        os.path.isfile(options.path) and not _has_samples(options.path)
    ):
        described = _described_recording(options)
    else:
        if options.path.is_dir():
            described = describe_dataset(options.path)
        else:
            described = describe_file(options.path)
        refuse_stated(options, options.path)
    if options.ids and isinstance(described, RecordingInfo):
        raise InputError(
            f"--ids lists the samples of a dataset or of a file of namsa, which {options.path} is "
            "not"
        )
    names = [] if isinstance(described, RecordingInfo) else described.ids
    if options.json:
        print_json(names if options.ids else described.as_json())
    else:
        for line in names if options.ids else info_text.describe(described).split("\n"):
            print_line(line)


def _print_stemdl(options: argparse.Namespace) -> None:
    """Prints what a file in a layout of the paper's authors holds."""
    refuse_stated(options, options.path)
    with stemdl.open_stemdl(options.path) as file:
        first_sample = file.read(file.names[0])
        arrays = {"patterns": first_sample.patterns, "potential": first_sample.potential}
        facts: dict[str, object] = {"samples": len(file.names)}
        for name, array in arrays.items():
            if array is not None:
                facts[name] = f"{list(array.shape)} {array.dtype}"
        if first_sample.attributes:
            facts["attributes"] = first_sample.attributes
        facts["notes"] = list(file.notes)
        if options.json:
            print_json(list(file.names) if options.ids else facts)
        elif options.ids:
            for name in file.names:
                print_line(name)
        else:
            print_line(str(options.path))
            for name, value in facts.items():
                for line in _lines_of(value):
                    print_line(f"  {name:9} {line}")


def _lines_of(value: object) -> list[object]:
    """Returns a fact in lines: attributes and notes have one each."""
    if isinstance(value, dict):
        return [f"{key} = {shorten(str(stated), 120)}" for key, stated in value.items()]
    if isinstance(value, list):
        return value
    return [value]


def _described_recording(options: argparse.Namespace) -> RecordingInfo:
    """Describes a file of patterns; frames of a scan whose shape is not known as one row."""
    try:
        with read(options.path, dataset=options.dataset, **layout(options)) as recording:
            return describe_recording(recording, options.path)
    except UnknownScanShapeError as unknown:
        one_row = {"scan_shape": (1, unknown.frames), "flyback": 0}
        with read(options.path, dataset=options.dataset, **layout(options) | one_row) as recording:
            return describe_recording(
                recording, options.path, f"{unknown.frames:,} frames, of which {unknown.fits}"
            )


def _print_density(options: argparse.Namespace) -> None:
    """Prints the maps of a reconstruction, and their notes."""
    refuse_stated(options, options.path)
    maps = read_images(options.path)
    with sample_file.open_samples(options.path) as trees:
        provenance = next(iter(trees.values())).provenance()
    facts = {image.title.lower(): _map_facts(image) for image in maps}
    if options.json:
        print_json({"path": str(options.path), "maps": facts, "provenance": provenance})
        return
    print_line(
        f"{options.path}: a reconstruction of {provenance.get('data')} by {provenance.get('model')}"
    )
    for name, fact in facts.items():
        ny, nx = fact["shape"]
        dy, dx = fact["pixel_angstrom"]
        low, mean, high = fact["least_mean_most"]
        numbers = f"{low:.4g} to {high:.4g}, mean {mean:.4g} {fact['units']}".rstrip()
        print_line(f"  {name:12} {ny} × {nx} pixels of {dy:.4g} × {dx:.4g} Å, {numbers}")
    earlier_notes: list[str] = provenance.get("said", [])  # the key of files of earlier versions
    for note in provenance.get("notes", earlier_notes):
        print_line(f"  note: {note}")


class MapFacts(TypedDict):
    """A map of a reconstruction."""

    shape: list[int]
    units: str
    pixel_angstrom: list[float]
    least_mean_most: list[float]


def _map_facts(image: PageImage) -> MapFacts:
    """Returns shape, units and values of a map."""
    values = image.image
    return {
        "shape": list(values.shape),
        "units": image.units,
        "pixel_angstrom": [float(step) for step in image.grid.step],
        "least_mean_most": [
            float(np.nanmin(values)),
            float(np.nanmean(values)),
            float(np.nanmax(values)),
        ],
    }


def _is_folder_of_patterns(path: Path) -> bool:
    """Returns whether it is a Zarr store, a folder of frames, or a pattern of their names."""
    if os.path.isdir(path):
        return zarr_store.recognises(path, b"") or frame_files.recognises(path, b"")
    return not os.path.exists(path) and frame_files.is_pattern(path)


def _has_samples(path: Path) -> bool:
    """Returns whether namsa wrote the file's samples or images."""
    try:
        with sample_file.open_samples(path):
            return True
    except InputError:
        return False


def show(options: argparse.Namespace) -> None:
    """Writes pictures of one sample, or an interactive page of a sample or of any file of patterns.

    Of a sample, the page is written if --out ends in .html, and beside the picture with --html. Of
    other files there is no picture of that kind, so that the page is all that is written.
    """
    is_file = os.path.isfile(options.sample)
    if is_file and holds_images(options.sample):
        _show_density(options)
        return
    if _is_folder_of_patterns(options.sample) or (is_file and not holds_samples(options.sample)):
        _show_recording(options)
        return
    name, sample = find_sample(options.sample)
    refuse_stated(options, options.sample)
    if is_file:
        picture_name = options.sample.stem
    else:
        picture_name = check_name(name, "the sample", "name the picture with --out")
    out = options.out or Path(f"{picture_name}.png")
    page = out.with_suffix(".html")
    inputs = [options.sample, *([options.overlay] if options.overlay else [])]
    if options.overlay and not (options.html or out.suffix == ".html"):
        raise InputError(
            f"--overlay {options.overlay} is drawn on the page alone: add --html, or name a page "
            "with --out"
        )
    check_output(out, inputs)
    if options.html:
        check_output(page, inputs, f"--out {out}: the page")
    if out.suffix != ".html":
        show_sample(sample, out)
        print_line(str(out))
    if options.html or out.suffix == ".html":
        written = browse(sample, title=name, overlay=options.overlay, max_megabytes=options.page_mb)
        print_line(str(written.save(page)))


def _show_density(options: argparse.Namespace) -> None:
    """Draws what a reconstruction has written."""
    refuse_stated(options, options.sample)
    out = options.out or Path(f"{options.sample.stem}.png")
    if options.html or options.overlay or out.suffix == ".html":
        raise InputError(
            f"{options.sample} is a reconstruction, which is drawn as a picture; a page shows it "
            f"over its scan: namsa show SCAN --overlay {options.sample}"
        )
    check_output(out, [options.sample])
    panels = [
        MapPanel(i.title, i.image, i.grid, i.units, i.colours, i.smooth)
        for i in read_images(options.sample)
    ]
    write_figure(density_figure(panels, options.sample.name), out)
    print_line(str(out))


def _show_recording(options: argparse.Namespace) -> None:
    """Writes the page of a file of patterns."""
    out = options.out or Path(options.sample.name).with_suffix(".html")
    if out.suffix != ".html":
        raise InputError(
            f"--out {out}: of a file of patterns an interactive page is written, as "
            f"{out.stem}.html; `namsa inspect` draws pictures"
        )
    check_output(out, [options.sample, *([options.overlay] if options.overlay else [])])
    page = browse(
        options.sample,
        overlay=options.overlay,
        max_megabytes=options.page_mb,
        calibration=calibration_overrides(options),
        **layout(options),
    )
    print_line(str(page.save(out)))


def holds_images(path: Path) -> bool:
    """Returns whether it is the file of a reconstruction: maps without patterns."""
    try:
        return not holds_samples(path) and bool(read_images(path))
    except InputError:
        return False


def holds_samples(path: Path) -> bool:
    """Returns whether namsa wrote the file's samples, with their patterns; other files hold
    patterns alone.
    """
    try:
        with sample_file.open_samples(path) as samples:
            return any(sample.group.get("cbed") for sample in samples.values())
    except InputError:
        return False


def find_sample(path: Path) -> tuple[str, Sample]:
    """Returns name and sample of `path`: the first of a file or dataset, or DIR/ID. Raises
    InputError for none.
    """
    if os.path.isfile(path):  # false for what cannot be a path, too
        return next(sample_file.read_samples(path))
    directory, requested = (path, None) if os.path.isdir(path) else (path.parent, path.name)
    with shards.Dataset(directory) as data:
        if not data.ids and requested:
            raise InputError(f"there is no file {path}, and {directory} holds no sample yet")
        check_not_empty(directory, data)
        name = requested or data.ids[0]
        if name not in data.ids:
            missing = f"no file {path}, and no sample {shorten(name)} in {directory}"
            raise InputError(f"{missing}; `namsa info {directory} --ids` lists them")
        return name, data.read_sample(name)
