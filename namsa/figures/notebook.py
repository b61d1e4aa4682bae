"""Objects as HTML for a notebook: images, and a table of what they are."""

from collections.abc import Sequence

import numpy as np

from namsa.base.markup import Element, element
from namsa.base.pixels import UNITS, SampleArrays, density_grid, pattern_grid, sample_arrays
from namsa.base.text import described, plural
from namsa.figures.page_images import PageImage, image_url, limits_text, pattern_image
from namsa.figures.panels import MAX_ASPECT
from namsa.figures.sample_figure import caption, check_drawable

IMAGE_HEIGHT = 160  # CSS pixels


def sample_html(sample: SampleArrays) -> str:
    """Returns the HTML of a sample."""
    check_drawable(sample)
    provenance = sample.provenance
    mean = pattern_image(
        sample.cbed.mean(axis=0, dtype=np.float64),
        pattern_grid(provenance),
        f"Mean of {plural(len(sample.cbed), 'pattern')}",
    )
    images = [(mean, "mrad")]
    grid = density_grid(provenance)
    if min(grid.step) > 0:
        density = PageImage("Electron density", UNITS["density"], sample.density, grid, smooth=True)
        images.append((density, "Å"))
    return described_html("Sample", caption(provenance), images, _rows(sample))


def described_html(
    kind: str, text: str, images: Sequence[tuple[PageImage, str]], rows: Sequence[tuple[str, str]]
) -> str:
    """Returns the HTML of an object.

    Args:
        kind: What it is.
        text: A line about it.
        images: Images with the units of their axes.
        rows: Names and values, for a table.
    """
    return described(kind, text, rows, [_figure(image, units) for image, units in images])


def _figure(image: PageImage, length_units: str) -> Element:
    """Returns an image with its title, its height and width, and the range of its values."""
    width = round(IMAGE_HEIGHT / max(image.grid.aspect(image.image.shape), 1 / MAX_ASPECT))
    left, right, bottom, top = image.grid.extent(image.image.shape)
    low, high = limits_text(image)
    attributes = {
        "src": image_url(image),
        "alt": "",
        "width": str(width),
        "height": str(IMAGE_HEIGHT),
        "style": "image-rendering:pixelated",
    }
    caption_lines = element(
        "figcaption",
        {"style": "font-size:85%"},
        element("b", {}, image.title),
        element("br"),
        f"{bottom - top:.4g} × {right - left:.4g} {length_units}",
        element("br"),
        f"{low} to {high} {image.units}",
    )
    return element("figure", {"style": "margin:0"}, element("img", attributes), caption_lines)


def _rows(sample: SampleArrays) -> list[tuple[str, str]]:
    """Returns the rows of the table: name and value with units."""
    provenance = sample.provenance
    y, x = provenance["extent_angstrom"]
    raster = provenance.get("scan_shape")
    scan = f"{_times(raster)} raster" if raster else plural(len(sample.cbed), "position")
    rows = [
        ("energy", f"{provenance['energy_ev'] / 1e3:g} keV"),
        ("semiangle", f"{provenance['semiangle_mrad']:g} mrad"),
        ("thickness", f"{provenance['thickness_angstrom']:.2f} Å"),
        ("cell (y, x)", f"{y:.2f} × {x:.2f} Å"),
        ("scan", scan),
    ]
    pixel = _times([f"{step:.4g}" for step in provenance["detector_sampling_mrad"]])
    remarks = UNITS | {
        "cbed": f"pixels of {pixel} mrad",
        "density_by_depth": f"{UNITS['density']}; the density is its sum",
    }
    for name, array in sample_arrays(sample).items():
        rows.append((name, f"{_times(array.shape)} {array.dtype}, {remarks[name]}"))
    return rows


def _times(numbers: Sequence[object]) -> str:
    return " × ".join(map(str, numbers))
