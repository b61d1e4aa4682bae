"""The fused engine: multislice by compiled loops that keep a wave in the cache of a core.

This module lays the data out for fused.c and calls it. `namsa.engines.multislice` computes the same
with plain FFTs.

Columns of lens and propagator, and rows of a transmission, are stored as `waves`: neighbouring
columns (rows) are the lanes of the processor's vectors, and real and imaginary parts are separate,
(groups, length, 2, lanes). Groups of columns where both lens and propagator are zero are left out.
Transforms leave their output digit-reversed. Whatever is multiplied with it is put in the same
order once, here. The propagator includes the normalisation of the inverse transforms.
"""

import copy
import ctypes
import importlib.util
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from namsa.base.errors import InputError, WorkError
from namsa.engines.interface import BatchedProbes, waves_per_batch
from namsa.physics.grid import Grid
from namsa.physics.potential import Slices

Reals = npt.NDArray[np.floating[Any]]
Complexes = npt.NDArray[np.complexfloating[Any, Any]]
Integers = npt.NDArray[np.integer[Any]]

LIBRARY = "_namsa_fused"  # the name that hatch_build.py installs
_LEVELS = 32  # MAX_LEVELS in fused.c
_ALIGNMENT = 64  # of the widest vectors, and of a cache line


class _Transform(ctypes.Structure):
    """`Transform` of fused.c."""

    _fields_ = (
        ("n", ctypes.c_int),
        ("radix", ctypes.c_int * _LEVELS),
        ("block", ctypes.c_int * _LEVELS),
        ("offset", ctypes.c_long * _LEVELS),
        ("twiddles", ctypes.c_void_p),
    )


class _FusedPlan(ctypes.Structure):
    """`Plan` of fused.c."""

    _fields_ = (
        ("y", _Transform),
        ("x", _Transform),
        ("number_bytes", ctypes.c_int),
        ("lanes", ctypes.c_int),
        ("padded_y", ctypes.c_int),
        ("padded_x", ctypes.c_int),
        ("groups", ctypes.c_int),
        ("slices", ctypes.c_int),
        ("zeros_x", ctypes.c_int),
        ("zeros_y", ctypes.c_void_p),
        ("group", ctypes.c_void_p),
        ("group_of", ctypes.c_void_p),
        ("row_of", ctypes.c_void_p),
        ("order", ctypes.c_void_p),
        ("transmissions", ctypes.c_void_p),
        ("distance", ctypes.c_void_p),
        ("fresnel", ctypes.c_void_p),
        ("lens", ctypes.c_void_p),
    )


def _load() -> ctypes.CDLL | None:
    """Loads the compiled part. Returns `None` if it is not installed."""
    spec = importlib.util.find_spec(LIBRARY)
    if spec is None or spec.origin is None:
        return None
    library = ctypes.CDLL(spec.origin)  # its calls release the interpreter's lock
    pointer = ctypes.c_void_p
    library.fused_patterns.argtypes = (
        ctypes.POINTER(_FusedPlan),
        ctypes.c_int,
        pointer,
        pointer,
        pointer,
        pointer,
    )
    library.fused_patterns.restype = None
    if library.fused_plan_bytes() != ctypes.sizeof(_FusedPlan):
        raise WorkError(
            f"{spec.origin} is of another namsa: install it again (in a checkout: scripts/uv sync)"
        )
    return library


_library = _load()


def available() -> bool:
    """Returns whether the compiled part is installed. It is missing if there was no C compiler at
    installation.
    """
    return _library is not None


def vector_bytes() -> int:
    """Returns the width of the widest vectors that processor and compiled part support: 16, 32 or
    64 bytes.

    It is 0 without the compiled part.
    """
    if _library is None:
        return 0
    return int(_library.fused_vector_bytes())


def supports(shape: tuple[int, int], dtype: npt.DTypeLike = np.complex64) -> bool:
    """Returns whether the engine supports a grid (ny, nx), which must have no prime factors beyond
    7; all types are.
    """
    return available() and all(n > 1 and int(np.prod(radices(n))) == n for n in shape)


def radices(n: int) -> list[int]:
    """Returns the radices of a transform of n values; their product is n if it has no prime factors
    beyond 7.
    """
    factors = []
    for radix in (7, 5, 3, 8, 4, 2):
        # Radix 2 moves as much memory as radix 8 and computes less, so 16 is 4·4, not 8·2.
        while n % radix == 0 and (radix, n) != (8, 16):
            factors.append(radix)
            n //= radix
    return factors


class FusedEngine:
    """Multislice by the compiled loops of fused.c.

    Args:
        slices: The specimen's transmission functions.
        fresnel: The propagator over one slice, (ny, nx) complex, zero frequency first, or those of
            slices of several thicknesses, (m, ny, nx), which are zero at the same frequencies.
            Patterns have their precision.
        vectors: Width of the processor's vectors in bytes, at most `vector_bytes()`, which is the
            default.

    Raises:
        InputError: If the grid is not supported, or namsa was installed without its compiled
            engine.
    """

    def __init__(
        self, grid: Grid, slices: Slices, fresnel: Complexes, *, vectors: int | None = None
    ) -> None:
        if _library is None:
            raise InputError(
                "namsa was installed without its compiled engine: use the plain engine"
            )
        if not supports(grid.shape):
            raise InputError(
                f"grid_shape {grid.shape} has prime factors beyond 7: use the plain engine"
            )
        self.library = _library
        self.grid = grid
        self.fresnel = fresnel.reshape(-1, *grid.shape)
        self.real = fresnel.real.dtype
        self.lanes = (vectors or vector_bytes()) // self.real.itemsize
        self.padded_y, self.padded_x = (-(-n // self.lanes) * self.lanes for n in grid.shape)
        self.order_y, order_x = (digit_reversed(n) for n in grid.shape)
        self.twiddles = [_twiddles(n, fresnel.dtype) for n in grid.shape]
        self.slice_order = np.asarray(slices.order, dtype=np.intc)
        self.slice_distances = np.asarray(slices.propagators, dtype=np.intc)
        # One large array: NumPy asks the system for large pages.
        layout = (
            len(slices.transmissions),
            self.padded_y // self.lanes,
            grid.shape[1],
            2,
            self.lanes,
        )
        self.transmissions = _aligned(layout, self.real)
        for waves, t in zip(self.transmissions, slices.transmissions, strict=True):
            _conjugated_rows(t, order_x, waves)

    def prepare(self, lens: Complexes) -> "FusedProbes":
        """Returns the probes of `lens` (ny, nx); see `namsa.engines.interface.Engine.prepare`."""
        return FusedProbes(self, lens)


class FusedProbes(BatchedProbes):
    """The probes of one lens, propagated by a `FusedEngine`."""

    def __init__(self, engine: FusedEngine, lens: Complexes) -> None:
        super().__init__(waves_per_batch(lens), on_host=True)
        ny, nx = engine.grid.shape
        lanes = engine.lanes
        order_y = engine.order_y
        used = np.zeros(engine.padded_x, dtype=bool)
        used[:nx] = ((lens != 0) | (engine.fresnel[0] != 0)).any(axis=0)
        kept = used.reshape(-1, lanes).any(axis=1)
        group = np.flatnonzero(kept).astype(np.intc)
        # Which values of y's last level pass the propagator, (radix, nx), and which x's first level
        # reads, (radix,).
        passed = (engine.fresnel[0][order_y] != 0).reshape(-1, radices(ny)[-1], nx).any(axis=0)
        read = used[:nx].reshape(radices(nx)[0], -1).any(axis=1)
        propagators = []
        for fresnel in engine.fresnel:
            normalised = fresnel[order_y] / (ny * nx)
            propagators.append(_waves(normalised, lanes, engine.real, group))
        zeros_y = []
        for kept_group in group.tolist():
            passed_by_group = passed[:, kept_group * lanes : (kept_group + 1) * lanes]
            zeros_y.append(_central_zeros(passed_by_group.any(axis=1)))
        arrays: tuple[npt.NDArray[Any], ...] = (
            np.array(zeros_y, dtype=np.intc),
            group,
            np.where(kept, np.cumsum(kept) - 1, -1).astype(np.intc),
            ((order_y + ny // 2) % ny).astype(np.intc),
            engine.slice_order,
            np.array([t.ctypes.data for t in engine.transmissions], dtype=np.uintp),
            engine.slice_distances,
            np.array([p.ctypes.data for p in propagators], dtype=np.uintp),
            _waves(lens[order_y], lanes, engine.real, group),
        )
        self._engine = engine
        self._group = group
        self._arrays = (*arrays, *propagators)  # kept alive: the plan only holds their addresses
        self._plan = _FusedPlan(
            _transform(ny, engine.twiddles[0]),
            _transform(nx, engine.twiddles[1]),
            engine.real.itemsize,
            lanes,
            engine.padded_y,
            engine.padded_x,
            len(group),
            len(engine.slice_order),
            _central_zeros(read),
            *(array.ctypes.data for array in arrays),
        )

    def patterns(self, positions: npt.NDArray[np.float64]) -> Reals:
        """Returns the patterns (n, ny, nx) of probes at `positions` (n, 2), in the precision of the
        propagator.
        """
        ky, kx = self._engine.grid.frequencies()
        ramps_y = np.exp(-2j * np.pi * positions[:, :1] * ky[:, 0])
        return self.run(ramps_y, np.exp(-2j * np.pi * positions[:, 1:] * kx[0]))[0]

    def run(self, along_y: Complexes, along_x: Complexes) -> tuple[Reals, Reals]:
        """Propagates probes that are products of the lens and ramps along y, (n, ny), and along x,
        (n, nx).

        Returns:
            The patterns (n, ny, nx), and the workspace, which holds the last probe's exit wave.
        """
        out = np.empty((len(along_y), *self._engine.grid.shape), self._engine.real)
        workspace = self.workspace()
        self.call(*self.ramps(along_y, along_x), workspace, out)
        return out, workspace

    def ramps(
        self, along_y: npt.NDArray[Any], along_x: npt.NDArray[Any]
    ) -> tuple[Complexes, Reals]:
        """Returns ramps (n, ny) and (n, nx) as `call` takes them."""
        engine = self._engine
        in_order = along_y[:, engine.order_y].astype(engine.fresnel.dtype, order="C")
        return in_order, _waves(along_x, engine.lanes, engine.real, self._group)

    def workspace(self) -> Reals:
        """Returns an empty workspace."""
        engine = self._engine
        return _aligned(
            (len(self._group) * engine.padded_y + engine.padded_x, 2, engine.lanes), engine.real
        )

    def call(self, ramps_y: Complexes, ramps_x: Reals, workspace: Reals, out: Reals) -> None:
        """Propagates probes to patterns `out` (n, ny, nx) and to the last one's exit wave in
        `workspace`.
        """
        workspace[...] = 0
        pointers = (array.ctypes.data for array in (ramps_y, ramps_x, workspace, out))
        self._engine.library.fused_patterns(ctypes.byref(self._plan), len(out), *pointers)

    def lens_from(self, workspace: Reals, lens: Reals | None = None) -> Reals:
        """Returns the wave in a workspace as a lens for `part`, in the array `lens` if it is
        given.
        """
        engine = self._engine
        groups = len(self._group)
        ny = engine.grid.shape[0]
        if lens is None:
            lens = _aligned((groups, ny, 2, engine.lanes), engine.real)
        waves = workspace[: groups * engine.padded_y]
        lens[...] = waves.reshape(groups, engine.padded_y, 2, engine.lanes)[:, :ny]
        return lens

    def part(self, start: int, stop: int, lens: Reals | None = None) -> "FusedProbes":
        """Returns the same probes in a part of the slices.

        Args:
            stop: Number of slices up to its end.
            lens: If given, what `lens_from` returns, in place of the lens.
        """
        probes = copy.copy(self)
        probes._plan = _FusedPlan.from_buffer_copy(self._plan)
        order = self._engine.slice_order[start:stop]
        distances = self._engine.slice_distances[start:stop]
        probes._plan.slices = len(order)
        probes._plan.order = order.ctypes.data
        probes._plan.distance = distances.ctypes.data
        probes._arrays = (*self._arrays, order, distances)
        if lens is not None:
            probes._plan.lens = lens.ctypes.data
            probes._arrays = (*probes._arrays, lens)
        return probes

    def places(self, pixels: Integers) -> Integers:
        """Returns the places of pixels in a workspace that `run` has left, as one axis of real
        numbers.

        Args:
            pixels: Flat indices (p,) on the grid, zero frequency first, where the lens or the
                propagator is not zero.

        Returns:
            Indices (2, p) of the real and of the imaginary part.
        """
        engine = self._engine
        ny, nx = engine.grid.shape
        row_of_frequency = np.empty(ny, np.int64)
        row_of_frequency[engine.order_y] = np.arange(ny)
        y, x = np.divmod(pixels, nx)
        group, lane = np.divmod(x, engine.lanes)
        row = np.searchsorted(self._group, group) * engine.padded_y + row_of_frequency[y]
        real = row * 2 * engine.lanes + lane
        return np.stack([real, real + engine.lanes])


class FusedPlaneWaves:
    """Plane waves propagated by the compiled loops of fused.c.

    They must lie within the band limit: beyond it the propagator is zero, and so are their exit
    waves. Arguments and errors as `FusedEngine`.
    """

    def __init__(
        self, grid: Grid, slices: Slices, fresnel: Complexes, *, vectors: int | None = None
    ) -> None:
        self._shape = grid.shape
        self._dtype = fresnel.dtype
        engine = FusedEngine(grid, slices, fresnel, vectors=vectors)
        self._probes = engine.prepare((engine.fresnel[0] != 0).astype(fresnel.dtype))

    def exit_waves(
        self, indices: npt.NDArray[np.int64], depths: Sequence[int], pixels: npt.NDArray[np.int64]
    ) -> Complexes:
        """Returns waves (m, n, p); see `namsa.engines.interface.PlaneWaves.exit_waves`.

        A plane wave is a probe whose ramps are zero except at one frequency. Behind a depth, the
        wave that was reached takes the place of the lens, with ramps of 1. All waves use the same
        memory.
        """
        ny, nx = self._shape
        probes = self._probes
        places = probes.places(pixels).T.ravel()  # real and imaginary parts in turn
        out = np.empty((len(depths), len(indices), len(pixels)), self._dtype)
        reals = out.view(out.real.dtype)
        workspace = probes.workspace()
        pattern = np.empty((1, ny, nx), out.real.dtype)
        lens = probes.lens_from(workspace)
        layers = []
        for start, stop in itertools.pairwise((0, *depths)):
            layers.append(probes.part(start, stop, lens if start else None))
        ones = probes.ramps(np.ones((1, ny)), np.ones((1, nx)))
        for wave, index in enumerate(indices.tolist()):
            row, column = divmod(index, nx)
            ramps = probes.ramps(np.arange(ny)[None] == row, np.arange(nx)[None] == column)
            for depth, layer in enumerate(layers):
                layer.call(*ramps, workspace, pattern)
                workspace.reshape(-1).take(places, out=reals[depth, wave], mode="clip")
                if layer is not layers[-1]:
                    probes.lens_from(workspace, lens)
                ramps = ones
        return out


def digit_reversed(n: int) -> Integers:
    """Returns the frequency, in multiples of the lowest, at each place of the output of a forward
    transform.
    """
    order = np.zeros(1, dtype=np.int64)
    step = 1
    for radix in radices(n):
        order = (order[:, None] + step * np.arange(radix)).ravel()
        step *= radix
    return order


def _blocks(n: int) -> list[int]:
    """Returns how many values a block has after each level."""
    return [int(n // product) for product in np.cumprod(radices(n))]


def _central_zeros(used: npt.NDArray[np.bool_]) -> int:
    """Returns how many values in the middle of a level, its highest frequencies, are not used."""
    values = len(used)
    for count in range(values, 0, -2):
        if not used[(values - count) // 2 : (values + count) // 2].any():
            return count
    return 0


def _twiddles(n: int, dtype: npt.DTypeLike) -> Complexes:
    """Returns exp(−2πi jk/(rm)) of all levels of radix r and blocks of m, j < m slowest, 0 < k <
    r.
    """
    levels = []
    for radix, block in zip(radices(n), _blocks(n), strict=True):
        unit = -2j * np.pi / (radix * block)
        levels.append(np.exp(unit * np.arange(block)[:, None] * np.arange(1, radix)).ravel())
    return np.concatenate(levels).astype(dtype)


def _transform(n: int, twiddles: Complexes) -> _Transform:
    """Returns the plan of a transform of n values."""
    factors = radices(n)
    blocks = _blocks(n)
    offsets = [0]
    for radix, block in zip(factors, blocks, strict=True):
        offsets.append(offsets[-1] + 2 * block * (radix - 1))
    offsets.pop()
    integers = ctypes.c_int * _LEVELS
    longs = ctypes.c_long * _LEVELS
    return _Transform(
        n, integers(*factors), integers(*blocks), longs(*offsets), twiddles.ctypes.data
    )


def _waves(
    array: npt.NDArray[Any], lanes: int, real: npt.DTypeLike, group: Any = slice(None)
) -> Reals:
    """Returns an array (length, across) as waves (groups, length, 2, lanes), of the groups across
    in `group`.
    """
    length, across = array.shape
    padded = np.zeros((length, -(-across // lanes), lanes), array.dtype)
    padded.reshape(length, -1)[:, :across] = array
    picked = padded[:, group].swapaxes(0, 1)
    waves = _aligned((len(picked), length, 2, lanes), real)
    waves[:, :, 0] = picked.real
    waves[:, :, 1] = picked.imag
    return waves


def _conjugated_rows(array: Complexes, order: Integers, out: Reals) -> None:
    """Writes rows of (across, length), conjugated and in `order`, as waves, by groups that fit the
    cache of a core.
    """
    lanes = out.shape[-1]
    for group, start in zip(out, range(0, len(array), lanes), strict=True):
        rows = array[start : start + lanes].T[order]
        across = rows.shape[1]
        group[:, 0, :across] = rows.real
        group[:, 1, :across] = -rows.imag
        group[:, :, across:] = 0


def _aligned(shape: tuple[int, ...], real: npt.DTypeLike) -> Reals:
    """Returns an empty array that is aligned for vectors; NumPy itself guarantees 16 bytes only."""
    size = int(np.prod(shape)) * np.dtype(real).itemsize
    buffer = np.empty(size + _ALIGNMENT, np.uint8)
    start = -buffer.ctypes.data % _ALIGNMENT
    return buffer[start : start + size].view(real).reshape(shape)
