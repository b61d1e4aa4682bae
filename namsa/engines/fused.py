"""The fused engine: multislice by compiled loops that keep a wave in the cache of a core.

This module lays the data out for fused.c and calls it. `namsa.engines.multislice` computes the same
with plain FFTs.

`namsa.engines.fused_layout` says how arrays are stored. Groups of columns where both lens and
propagator are zero are left out. Transforms leave their output digit-reversed. Whatever is
multiplied with it is put in the same order once, here. The propagator includes the normalisation of
the inverse transforms.
"""

import copy
import ctypes
import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Array
from namsa.base.errors import InputError
from namsa.engines.fused_layout import (
    Complexes,
    Integers,
    Reals,
    aligned,
    as_waves,
    central_zeros,
    conjugated_rows,
    digit_reversed,
    radices,
    transform_plan,
    twiddle_factors,
)
from namsa.engines.fused_library import FusedPlan, available, compiled, vector_bytes
from namsa.engines.interface import BatchedProbes, waves_per_batch
from namsa.physics.grid import Grid
from namsa.physics.potential import Slices


def supports(shape: tuple[int, int], dtype: npt.DTypeLike = np.complex64) -> bool:
    """Returns whether the engine supports a grid (ny, nx), which must have no prime factors beyond
    7; all types are.
    """
    return available() and all(n > 1 and int(np.prod(radices(n))) == n for n in shape)


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
        if compiled is None:
            raise InputError(
                "namsa was installed without its compiled engine: use the plain engine"
            )
        if not supports(grid.shape):
            raise InputError(
                f"grid_shape {grid.shape} has prime factors beyond 7: use the plain engine"
            )
        self.library = compiled
        self.grid = grid
        self.fresnel = fresnel.reshape(-1, *grid.shape)
        self.real = fresnel.real.dtype
        self.lanes = (vectors or vector_bytes()) // self.real.itemsize
        self.padded_y, self.padded_x = (-(-n // self.lanes) * self.lanes for n in grid.shape)
        self.order_y, order_x = (digit_reversed(n) for n in grid.shape)
        self.twiddles = [twiddle_factors(n, fresnel.dtype) for n in grid.shape]
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
        self.transmissions = aligned(layout, self.real)
        for waves, t in zip(self.transmissions, slices.transmissions, strict=True):
            conjugated_rows(t, order_x, waves)

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
            propagators.append(as_waves(normalised, lanes, engine.real, group))
        zeros_y = []
        for kept_group in group.tolist():
            passed_by_group = passed[:, kept_group * lanes : (kept_group + 1) * lanes]
            zeros_y.append(central_zeros(passed_by_group.any(axis=1)))
        arrays: tuple[Array, ...] = (
            np.array(zeros_y, dtype=np.intc),
            group,
            np.where(kept, np.cumsum(kept) - 1, -1).astype(np.intc),
            ((order_y + ny // 2) % ny).astype(np.intc),
            engine.slice_order,
            np.array([t.ctypes.data for t in engine.transmissions], dtype=np.uintp),
            engine.slice_distances,
            np.array([p.ctypes.data for p in propagators], dtype=np.uintp),
            as_waves(lens[order_y], lanes, engine.real, group),
        )
        self._engine = engine
        self._group = group
        self._arrays = (*arrays, *propagators)  # kept alive: the plan only holds their addresses
        self._plan = FusedPlan(
            transform_plan(ny, engine.twiddles[0]),
            transform_plan(nx, engine.twiddles[1]),
            engine.real.itemsize,
            lanes,
            engine.padded_y,
            engine.padded_x,
            len(group),
            len(engine.slice_order),
            central_zeros(read),
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

    def ramps(self, along_y: Array, along_x: Array) -> tuple[Complexes, Reals]:
        """Returns ramps (n, ny) and (n, nx) as `call` takes them."""
        engine = self._engine
        in_order = along_y[:, engine.order_y].astype(engine.fresnel.dtype, order="C")
        return in_order, as_waves(along_x, engine.lanes, engine.real, self._group)

    def workspace(self) -> Reals:
        """Returns an empty workspace."""
        engine = self._engine
        return aligned(
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
            lens = aligned((groups, ny, 2, engine.lanes), engine.real)
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
        probes._plan = FusedPlan.from_buffer_copy(self._plan)
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
