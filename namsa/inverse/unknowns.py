"""The unknowns of refinement as one vector, in units of their priors' standard deviations.

All unknowns are Gaussian about the middles of their priors, the electrons by their logarithm.
"""

from typing import NamedTuple

import numpy as np

from namsa.base.arrays import Array, Floats
from namsa.inverse.column_model import ColumnDensity, ColumnValues
from namsa.inverse.microscope import NUMBERS, MicroscopeValues

# Standard deviations of the priors.
POSITION_ANGSTROM = 0.05
LOG_ELECTRONS = 0.1  # of one column, where the density's error is not known
LOG_ELECTRONS_RANGE = (0.05, 0.3)  # of one column, from the density's error
LOG_AMOUNT = 0.3  # of all columns together
DISPLACEMENT_ERROR = 0.07**2  # Å²
MICROSCOPE_ERRORS = MicroscopeValues(
    lens=np.array([20.0, 10.0, 10.0, 200.0, 200.0]),
    thickness=np.nan,  # relative: it is the scan's
    tilt=np.array([3e-3, 3e-3]),
    scan_change=np.full((2, 2), 1e-3),
    source=0.03,
)
DISPLACEMENT = 0.07**2  # mean square along one axis that the fit begins with, Å²
SOURCE = 0.03  # variance that the fit begins with, Å²: 0.4 Å full width at half maximum
LARGEST_SCAN_CHANGE = 0.02


class State(NamedTuple):
    """Values of the unknowns."""

    columns: ColumnValues
    microscope: MicroscopeValues


class Parts(NamedTuple):
    """A vector of the unknowns by what its numbers are, in the order of the vector."""

    yx: Floats  # positions of the columns, `(n, 2)`
    electrons: Floats  # logarithms of each column's, `(n,)`
    displacements: Floats  # of each element
    microscope: MicroscopeValues
    amount: float  # logarithm of the electrons of all columns

    def to_vector(self) -> Floats:
        """Returns the vector."""
        return np.concatenate(
            [
                self.yx.ravel(),
                self.electrons,
                self.displacements,
                self.microscope.to_vector(),
                [self.amount],
            ]
        )


class Unknowns:
    """The unknowns of a fit: their values by a vector, gradients, bounds and scales."""

    def __init__(
        self,
        columns: ColumnDensity,
        microscope: MicroscopeValues,
        thickness_error: float,
        column_errors: Floats | None = None,
    ) -> None:
        """Takes the middles of the priors.

        Args:
            columns: The columns.
            microscope: The microscope.
            thickness_error: Relative standard deviation of its thickness.
            column_errors: Relative standard deviation of the electrons of each column, `(n,)`;
                `None` takes `LOG_ELECTRONS`.
        """
        self.columns = columns
        self.log_electrons = np.full(len(columns.electrons), LOG_ELECTRONS)
        if column_errors is not None:
            self.log_electrons = np.clip(column_errors, *LOG_ELECTRONS_RANGE)
        self.microscope = microscope
        self.errors = MICROSCOPE_ERRORS._replace(thickness=microscope.thickness * thickness_error)
        self.count = len(columns.electrons)
        lengths = (2 * self.count, self.count, len(columns.numbers), NUMBERS, 1)
        self._ends = np.cumsum(lengths)[:-1]
        self.size = sum(lengths)
        self.shared = slice(3 * self.count, self.size)  # unknowns that are no single column's
        self.low = self._low().to_vector()
        self.high = self._high().to_vector()

    def parts(self, vector: Floats) -> Parts:
        """Returns a vector by what its numbers are."""
        yx, electrons, displacements, microscope, amount = np.split(vector, self._ends)
        return Parts(
            yx.reshape(self.count, 2),
            electrons,
            displacements,
            MicroscopeValues.from_vector(microscope),
            float(amount[0]),
        )

    def _low(self) -> Parts:
        """Returns the least values of the unknowns."""
        free = self.parts(np.full(self.size, -np.inf))
        return free._replace(
            displacements=np.full(len(free.displacements), -DISPLACEMENT / DISPLACEMENT_ERROR),
            microscope=free.microscope._replace(
                scan_change=-LARGEST_SCAN_CHANGE / MICROSCOPE_ERRORS.scan_change,
                source=-SOURCE / MICROSCOPE_ERRORS.source,
            ),
        )

    def _high(self) -> Parts:
        """Returns the largest values of the unknowns."""
        free = self.parts(np.full(self.size, np.inf))
        largest = LARGEST_SCAN_CHANGE / MICROSCOPE_ERRORS.scan_change
        return free._replace(microscope=free.microscope._replace(scan_change=largest))

    def state(self, vector: Floats) -> State:
        """Returns the values of a vector."""
        parts = self.parts(vector)
        columns = ColumnValues(
            self.columns.yx + POSITION_ANGSTROM * parts.yx,
            self.columns.electrons
            * np.exp(self.log_electrons * parts.electrons + LOG_AMOUNT * parts.amount),
            np.maximum(DISPLACEMENT + DISPLACEMENT_ERROR * parts.displacements, 0),
        )
        errors = self.errors.to_vector()
        change = errors * parts.microscope.to_vector()
        return State(columns, MicroscopeValues.from_vector(self.microscope.to_vector() + change))

    def gradient(
        self, state: State, by_columns: ColumnValues, by_microscope: MicroscopeValues
    ) -> Floats:
        """Returns the gradient by the vector from those by the values."""
        relative = state.columns.electrons * by_columns.electrons
        by_numbers = self.errors.to_vector() * by_microscope.to_vector()
        return Parts(
            POSITION_ANGSTROM * by_columns.yx,
            self.log_electrons * relative,
            DISPLACEMENT_ERROR * by_columns.displacements,
            MicroscopeValues.from_vector(by_numbers),
            LOG_AMOUNT * relative.sum(),
        ).to_vector()

    def directions(self) -> Floats:
        """Returns directions of the vector, `(directions, size)`.

        They are all columns along y, all along x, then each of the shared unknowns.
        """
        shared = self.size - self.shared.start
        directions = np.zeros((2 + shared, self.size))
        directions[0, : 2 * self.count : 2] = 1
        directions[1, 1 : 2 * self.count : 2] = 1
        directions[2:, self.shared] = np.eye(shared)
        return directions

    @property
    def source_direction(self) -> int:
        """The number of the source's direction among `directions`: the last but the amount's."""
        return 2 + self.size - self.shared.start - 2

    def column_curvature(self, curvature: Floats, inside: Array) -> tuple[Floats, Floats]:
        """Returns the curvature by each column's place, `(n, 2)`, and by its electrons, `(n,)`.

        A column has its part of the curvature that all have, by the square of its electrons.

        Args:
            curvature: Along `directions`, `(directions, directions)`.
            inside: Which columns the objective depends on, `(n,)`.
        """
        squares = inside * self.columns.electrons**2
        weights = squares / squares.sum()
        diagonal = np.diagonal(curvature)
        by_electrons = diagonal[-1] * (self.log_electrons / LOG_AMOUNT) ** 2 * weights
        return np.outer(weights, diagonal[:2]), by_electrons

    def scales(self, curvature: Floats, inside: Array, shared_alone: bool = False) -> "Scales":
        """Returns coordinates in which the objective's curvature is about one.

        Columns (`column_curvature`) all together take half of a step, for the amount, the tilt and
        the coma move them, too.

        Args:
            curvature: Along `directions`, `(directions, directions)`.
            inside: Which columns the objective depends on, `(n,)`.
            shared_alone: Whether columns and their amount stay as they are.
        """
        by_places, by_electrons = self.column_curvature(curvature, inside)
        by_shared = np.diagonal(curvature)[2:]
        of_columns = 4 * np.concatenate([by_places.ravel(), by_electrons])
        diagonal = 1 / np.sqrt(np.concatenate([of_columns, by_shared]) + 1)
        unbounded = np.isinf(self.low[self.shared]) & np.isinf(self.high[self.shared])
        free = np.ones(self.size)
        if shared_alone:
            free[: self.shared.start] = 0
            free[-1] = 0
            unbounded[-1] = False
        mixed = np.flatnonzero(unbounded)
        block = curvature[2:, 2:][np.ix_(mixed, mixed)] + np.eye(len(mixed))
        mixing = np.linalg.inv(np.linalg.cholesky(block)).T
        return Scales(self, free, diagonal, self.shared.start + mixed, mixing)


class Scales(NamedTuple):
    """Coordinates of a fit: unknowns over their scales, those without bounds mixed."""

    unknowns: Unknowns
    free: Floats  # 1 of unknowns that may change, 0 of the others, `(size,)`
    diagonal: Floats  # scale of each unknown, `(size,)`
    mixed: Array  # indices of the unknowns that are mixed, `(m,)`
    mixing: Floats  # their changes by their coordinates, `(m, m)`

    def times(self, factor: float) -> "Scales":
        """Returns coordinates that are smaller by a factor."""
        return self._replace(diagonal=factor * self.diagonal, mixing=factor * self.mixing)

    def change(self, coordinates: Floats) -> Floats:
        """Returns the change of the unknowns' vector at some coordinates."""
        change = self.diagonal * coordinates
        change[self.mixed] = self.mixing @ coordinates[self.mixed]
        return self.free * change

    def gradient(self, by_vector: Floats) -> Floats:
        """Returns the gradient by the coordinates from that by the unknowns' vector."""
        by_coordinates = self.diagonal * by_vector
        by_coordinates[self.mixed] = self.mixing.T @ by_vector[self.mixed]
        return self.free * by_coordinates

    def bounds(self, begin: Floats) -> list[tuple[float, float]]:
        """Returns the coordinates' bounds about a vector."""
        low = (self.unknowns.low - begin) / self.diagonal
        high = (self.unknowns.high - begin) / self.diagonal
        return list(zip(low, high, strict=True))
