"""Objects as HTML for a notebook: images, and a table of what they are."""

import html
from collections.abc import Sequence

import numpy as np

from namsa.figures.page_images import PageImage, image_url, limits_text, pattern_image
from namsa.figures.panels import MAX_ASPECT
from namsa.figures.sample_figure import caption, check_drawable
from namsa.pixels import UNITS, SampleArrays, density_grid, pattern_grid, sample_arrays
from namsa.text import described, plural

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
    if min(density_grid(provenance).step) > 0:
        grid = density_grid(provenance)
        images.append((PageImage("Electron density", UNITS["density"], sample.density, grid, smooth=True), "Å"))
    return described_html("Sample", caption(provenance), images, _rows(sample))


def described_html(
    kind: str, text: str, images: Sequence[tuple[PageImage, str]], rows: Sequence[tuple[str, str]]
) -> str:
    """Returns the HTML of an object: what it is, images with the units of their axes, and a table."""
    return described(kind, text, rows, "".join(_figure(image, units) for image, units in images))


def _figure(image: PageImage, length_units: str) -> str:
    """Returns the HTML of an image with its title, its height and width, and the range of its values."""
    width = round(IMAGE_HEIGHT / max(image.grid.aspect(image.image.shape), 1 / MAX_ASPECT))
    left, right, bottom, top = image.grid.extent(image.image.shape)
    low, high = limits_text(image)
    lines = (
        f"<b>{html.escape(image.title)}</b>",
        f"{bottom - top:.4g} × {right - left:.4g} {length_units}",
        f"{low} to {high} {html.escape(image.units)}",
    )
    return (
        f'<figure style="margin:0"><img src="{image_url(image)}" alt="" width="{width}" height="{IMAGE_HEIGHT}" '
        f'style="image-rendering:pixelated">'
        f'<figcaption style="font-size:85%">{"<br>".join(lines)}</figcaption></figure>'
    )


def _rows(sample: SampleArrays) -> list[tuple[str, str]]:
    """Returns the rows of the table: name and value with units."""
    p = sample.provenance
    raster = p.get("scan_shape")
    y, x = p["extent_angstrom"]
    pixel = _times([f"{step:.4g}" for step in p["detector_sampling_mrad"]])
    remarks = {
        "cbed": f"pixels of {pixel} mrad",
        "density_by_depth": f"{UNITS['density']}; the density is its sum",
    }
    return [
        ("energy", f"{p['energy_ev'] / 1e3:g} keV"),
        ("semiangle", f"{p['semiangle_mrad']:g} mrad"),
        ("thickness", f"{p['thickness_angstrom']:.2f} Å"),
        ("cell (y, x)", f"{y:.2f} × {x:.2f} Å"),
        ("scan", _times(raster) + " raster" if raster else plural(len(sample.cbed), "position")),
        *(
            (name, f"{_times(array.shape)} {array.dtype}, {remarks.get(name) or UNITS[name]}")
            for name, array in sample_arrays(sample).items()
        ),
    ]


def _times(numbers: Sequence[object]) -> str:
    return " × ".join(map(str, numbers))
