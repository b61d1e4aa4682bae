"""The numbers that all positions of a scan share: lens, thickness, tilt, scan and source."""

from typing import NamedTuple

import numpy as np

from namsa.base.arrays import Floats

LENS = ("C10", "C12_x", "C12_y", "C21_x", "C21_y")  # x: along x; y: at 45° for C12, along y for C21
LENGTHS = (len(LENS), 1, 2, 4, 1)  # numbers of each field of `Microscope`, in their order
NUMBERS = sum(LENGTHS)


class MicroscopeValues(NamedTuple):
    """Numbers of the microscope and the specimen, or their errors or gradients."""

    lens: Floats  # coefficients of `LENS`, `(5,)`, Å
    thickness: float  # Å
    tilt: Floats  # of the specimen, (y, x), rad
    scan_change: Floats  # affine change of the positions, `(2, 2)`, rows and columns (y, x)
    source: float  # variance of the source along one axis, Å²

    def to_vector(self) -> Floats:
        """Returns all numbers, `(NUMBERS,)`, in the order of the fields."""
        return np.concatenate(
            [self.lens, [self.thickness], self.tilt, self.scan_change.ravel(), [self.source]]
        )

    @classmethod
    def from_vector(cls, numbers: Floats) -> "MicroscopeValues":
        """Returns the microscope of numbers in the order of `to_vector`."""
        ends = np.cumsum(LENGTHS[:-1])
        lens, thickness, tilt, scan_change, source = np.split(numbers, ends)
        return cls(lens, float(thickness[0]), tilt, scan_change.reshape(2, 2), float(source[0]))
