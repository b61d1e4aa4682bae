"""Pictures of scans at the head of guides, for `docs_pictures.py`.

`simulate`, `view`, `reading`, `reconstruction`, `classify` and `live` need the scan of `namsa
init`, scan.h5 in this folder; `segment` parts.h5 of docs/tasks.md; `inspection` and `parallax` the
excerpt of the measured scan of rotavirus that `namsa examples` lists. `estimate` needs a run of few
crystals and a scan of MgO:

    namsa-train configs/estimate.yaml --run-dir runs/estimate-few --set materials.limit=40 \\
        --set training.epochs=16 --set "network.filters=[16,32,48]" --set data.directory=data/few
    namsa simulate configs/estimate.yaml --crystal MgO.cif --out mgo.h5 --set scan.shape=[24,32] \\
        --set specimen.thickness_angstrom=[60] --set variation.thickness_angstrom=[10,60]
"""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle

import namsa
import train
from namsa.base.arrays import Array

SCAN = Path("scan.h5")
MGO = Path("mgo.h5")
ROTAVIRUS = Path("rotavirus_32x32x64x64_bin4_crop_uint16.h5")
ROTAVIRUS_OPTICS: dict[str, Any] = {
    "energy_ev": 300e3,
    "scan_step_angstrom": 31.25,
    "pixel_mrad": 0.066152,
}


def simulate() -> Figure:
    """Draws the sample of a simulated scan."""
    return namsa.read_sample(SCAN).show()


def view() -> Figure:
    """Draws a pattern of a scan with a ring, and the image of the ring."""
    sample = namsa.read_sample(SCAN)
    inner_mrad, outer_mrad = 25.0, 45.0
    row, column = 12, 20
    figure = Figure(figsize=(7, 3), layout="constrained")
    pattern, map_ = figure.subplots(1, 2)
    reach = sample.stack.shape[-1]  # mrad: 49 pixels of 2 mrad
    _draw_pattern(pattern, sample.stack[row, column], (-reach, reach, reach, -reach))
    pattern.set(title="pattern at the cross, with a ring", xlabel="mrad", ylabel="mrad")
    for radius_mrad in (inner_mrad, outer_mrad):
        pattern.add_patch(Circle((0, 0), radius_mrad, fill=False, edgecolor="limegreen", lw=2))
    image = sample.annular(inner_mrad, outer_mrad)
    step_y, step_x = 0.4, 0.4
    extent = (0, step_x * image.shape[1], step_y * image.shape[0], 0)
    drawn = map_.imshow(image, extent=extent, cmap="gray")
    map_.plot(step_x * (column + 0.5), step_y * (row + 0.5), "+", color="orangered", ms=12)
    map_.set(title="image of the ring, 25 to 45 mrad", xlabel="x (Å)", ylabel="y (Å)")
    figure.colorbar(drawn, ax=map_, label="fraction of the beam")
    return figure


def reading() -> Figure:
    """Draws a region of a scan, and the crop of its mean pattern, binned."""
    region, crop, binning = "8:32,12:40", "4:44,4:44", 2
    figure = Figure(figsize=(8, 2.8), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    with namsa.read(SCAN) as scan:
        patterns = scan.read(slice(0, scan.shape[0]), slice(0, scan.shape[1]))
    left.imshow(patterns.sum(axis=(2, 3)), cmap="gray")
    left.add_patch(Rectangle((11.5, 7.5), 28, 24, fill=False, edgecolor="orangered", lw=2))
    left.set(title=f"scan, region {region}", xlabel="column", ylabel="row")
    _draw_pattern(middle, patterns.mean(axis=(0, 1)))
    middle.add_patch(Rectangle((3.5, 3.5), 40, 40, fill=False, edgecolor="orangered", lw=2))
    middle.set(title=f"mean pattern, crop {crop}", xlabel="detector x", ylabel="detector y")
    with namsa.read(SCAN, region=region, crop=crop, binning=binning) as recording:
        rows, columns, *_ = recording.shape
        mean = recording.read(slice(0, rows), slice(0, columns)).mean(axis=(0, 1))
        shape = " × ".join(str(extent) for extent in recording.shape)
    _draw_pattern(right, mean)
    right.set(title=f"read with binning {binning}:\n{shape}", xlabel="detector x")
    return figure


def inspection() -> Figure:
    """Draws what inspection finds in a measured scan."""
    return namsa.draw_inspection(namsa.inspect(ROTAVIRUS, **ROTAVIRUS_OPTICS))


def reconstruction() -> Figure:
    """Draws the reconstruction of the guide."""
    return train.reconstruct(SCAN, "200kv-20mrad-reality").show()


def classify() -> Figure:
    """Draws the thickness of a scan by its classes."""
    return train.classify(SCAN, "200kv-20mrad-thickness").show()


def segment() -> Figure:
    """Draws the grains of parts.h5, the scan of docs/tasks.md."""
    return train.segment("parts.h5", "200kv-20mrad-segment").show()


def estimate() -> Figure:
    """Draws the estimates of a scan by a network of few crystals."""
    return train.estimate(MGO, "runs/estimate-few").show()


def live() -> Figure:
    """Draws the density of a scan while its rows arrive."""
    with namsa.read(SCAN) as scan:
        rows, columns, *_ = scan.shape
        pieces = (scan.read(slice(row, row + 1), slice(0, columns))[0] for row in range(rows))
        calibration: dict[str, Any] = {
            "energy_ev": 200e3,
            "semiangle_mrad": 20,
            "scan_step_angstrom": 0.4,
        }
        updates = train.reconstruct_live(
            pieces,
            "200kv-20mrad-fast",
            train.CalibrationOverrides(pixel_mrad=2, centre_pixels=(24, 24), **calibration),
            scan_shape=(rows, columns),
            beam_intensity=1,
        )
        states = [(update.rows_read, np.array(update.result.density)) for update in updates]
    figure = Figure(figsize=(8, 2.4), layout="constrained")
    shown = (states[0], states[len(states) // 2], states[-1])
    highest = np.nanmax(shown[-1][1])
    for axes, (rows_read, density) in zip(figure.subplots(1, 3), shown, strict=True):
        axes.set_facecolor("0.85")
        extent = (0, 0.4 * columns, 0.4 * rows, 0)
        drawn = axes.imshow(density, extent=extent, cmap="viridis", vmin=0, vmax=highest)
        axes.set(title=f"{rows_read} of {rows} rows read", xlabel="x (Å)")
    figure.colorbar(drawn, ax=axes, label="density (e/Å²)")
    return figure


def parallax() -> Figure:
    """Draws the bright field of a measured scan, and what parallax makes of it."""
    with namsa.read(ROTAVIRUS) as scan:
        patterns = scan.read(slice(0, scan.shape[0]), slice(0, scan.shape[1]))
    image = namsa.parallax_image(ROTAVIRUS, upsampling=3, **ROTAVIRUS_OPTICS)
    figure = Figure(figsize=(8, 2.7), layout="constrained")
    sums = patterns.sum(axis=(2, 3))
    cases = {
        "sum of each pattern,\n31 Å pixels": sums / sums.mean(),
        "aligned bright field,\n10 Å pixels": image.bright_field.array,
        "phase-flipped,\n10 Å pixels": image.phase_flipped.array,
    }
    for axes, (title, shown) in zip(figure.subplots(1, 3), cases.items(), strict=True):
        darkest, brightest = np.quantile(shown, (0.005, 0.99))
        extent = (0, 100, 100, 0)
        drawn = axes.imshow(shown, extent=extent, cmap="gray", vmin=darkest, vmax=brightest)
        axes.set(title=title, xlabel="x (nm)")
        figure.colorbar(drawn, ax=axes)
    return figure


def _draw_pattern(
    axes: Axes, pattern: Array, extent: tuple[float, float, float, float] | None = None
) -> None:
    """Draws a pattern on a root scale, on which the dark field can be seen."""
    axes.imshow(np.asarray(pattern) ** 0.3, extent=extent, cmap="magma")
