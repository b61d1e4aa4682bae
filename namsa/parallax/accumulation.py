"""Sums of shifted bright-field images on pixels that are finer than the scan's step.

The intensity that a detector's pixel has at a position of the scan is divided among the four fine
pixels about the place where its ray crosses the specimen. The sum of all pixels is divided by what
a specimen without contrast would give: the mean intensity of each pixel, divided likewise.
"""

import numpy as np

from namsa.base.arrays import Array, Booleans, Floats

LEAST_SHARE = 0.1  # of the mean intensity, in a fine pixel whose value counts


class FineImage:
    """A sum of intensities on fine pixels. The first one lies at the first position of the scan,
    the last one at the last position.

    Attributes:
        values: The sum, `(ny, nx)`.
        upsampling: Fine pixels per step of the scan.
    """

    def __init__(self, scan_shape: tuple[int, int], upsampling: int) -> None:
        rows, columns = scan_shape
        self.upsampling = upsampling
        self.values = np.zeros((upsampling * (rows - 1) + 1, upsampling * (columns - 1) + 1))

    def add(self, image: Array, position: tuple[int, int], shift_steps: Floats) -> None:
        """Adds the image of one pixel of the detector.

        Args:
            image: Its intensity at a block of positions, `(n, m)`.
            first: Row and column of the first position.
            shift_steps: From the probe's positions to the ray's, (y, x), steps of the scan.
        """
        fine = shift_steps * self.upsampling
        pixel = np.floor(fine).astype(int)
        fraction = fine - pixel
        for down in (0, 1):
            for right in (0, 1):
                weight_y = fraction[0] if down else 1 - fraction[0]
                weight_x = fraction[1] if right else 1 - fraction[1]
                if weight_y * weight_x == 0:
                    continue
                start_y = self.upsampling * position[0] + int(pixel[0]) + down
                start_x = self.upsampling * position[1] + int(pixel[1]) + right
                self._add_at(weight_y * weight_x * image, start_y, start_x)

    def _add_at(self, image: Array, start_y: int, start_x: int) -> None:
        """Adds an image whose positions lie `upsampling` fine pixels apart; what lies outside is
        left out.
        """
        ny, nx = self.values.shape
        rows = _inside(start_y, image.shape[0], ny, self.upsampling)
        columns = _inside(start_x, image.shape[1], nx, self.upsampling)
        if not rows or not columns:
            return
        every = self.upsampling
        top = start_y + every * rows.start
        left = start_x + every * columns.start
        bottom = start_y + every * (rows.stop - 1) + 1
        right = start_x + every * (columns.stop - 1) + 1
        visible = image[rows.start : rows.stop, columns.start : columns.stop]
        self.values[top:bottom:every, left:right:every] += visible


def _inside(start: int, count: int, length: int, every: int) -> range:
    """Returns which of `count` places, `every` apart from `start` on, lie in an image of a
    length.
    """
    low = max(0, -(start // every))
    high = min(count, (length - 1 - start) // every + 1)
    return range(low, max(low, high))


def expected(recorded: Booleans, means: Floats, shifts_steps: Floats, upsampling: int) -> FineImage:
    """Returns the sum of a specimen without contrast.

    Args:
        recorded: Positions whose pattern was recorded, `(sy, sx)`.
        means: Mean intensity of each pixel of the detector over these positions, `(n,)`.
        shifts_steps: From the probe's positions to the rays', (y, x), `(n, 2)`.
        upsampling: Fine pixels per step of the scan.
    """
    rows, columns = recorded.shape
    total = FineImage((rows, columns), upsampling)
    flat = recorded.astype(np.float64)
    for mean, shift in zip(means, shifts_steps, strict=True):
        total.add(mean * flat, (0, 0), shift)
    return total


def has_gaps(shifts_steps: Floats, upsampling: int) -> bool:
    """Returns whether some fine pixels in the middle of a large scan would get no intensity: the
    rays lie too close together, or at the same fractions of a step.
    """
    fine = shifts_steps * upsampling
    pixel = np.floor(fine).astype(int)
    fraction = fine - pixel
    covered = np.zeros((upsampling, upsampling))
    for down in (0, 1):
        for right in (0, 1):
            rows = (pixel[:, 0] + down) % upsampling
            columns = (pixel[:, 1] + right) % upsampling
            weights = np.abs(1 - down - fraction[:, 0]) * np.abs(1 - right - fraction[:, 1])
            np.add.at(covered, (rows, columns), weights)
    return bool(covered.min() < LEAST_SHARE * covered.mean())
