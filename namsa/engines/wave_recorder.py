"""Exit waves: the complex waves behind the specimen, kept while their patterns are added.

A simulation averages intensities, never waves. It therefore has one wave per position for each
state: each thermal configuration of the atoms with each coherent probe of the source and the focal
spread. The patterns are the sums over the states of the intensities of the waves.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from namsa.base.errors import InputError
from namsa.base.memory import check_memory_for
from namsa.base.text import plural
from namsa.config.numerics import Simulation
from namsa.engines import multislice
from namsa.engines.dispatch import Implementation
from namsa.physics.backend import fft_module, run_in_batches, to_host
from namsa.physics.detector import bin_patterns
from namsa.physics.grid import Array, Grid
from namsa.physics.potential import Slices


def check_waves(simulation: Simulation, has_sink: bool) -> None:
    """Checks that a simulation can keep its exit waves.

    Args:
        has_sink: Whether patterns go to a file, which has no room for waves.

    Raises:
        InputError: If method or engine have no waves of probes, or patterns go to a file.
    """
    if simulation.method == "prism":
        raise InputError(
            "waves=True propagates every probe, and method is 'prism': use 'multislice' or 'auto'"
        )
    if simulation.interpolation > 1:
        raise InputError(
            f"waves=True propagates every probe, and interpolation is {simulation.interpolation}: "
            "leave it out"
        )
    if simulation.engine == "fused":
        raise InputError(
            "waves=True takes the plain engine, and engine is 'fused': use 'plain' or 'auto'"
        )
    if has_sink:
        raise InputError(
            "waves=True keeps the waves in memory, and patterns go to a sink: leave sink out"
        )


class WaveRecorder:
    """Engines that keep the waves that they propagate.

    Args:
        grid: The sampling of the waves.
        states: Thermal configurations times coherent probes.
        positions: Number of probe positions.
        dtype: Complex type of the waves.

    Attributes:
        waves: Exit waves (states, n, ny, nx) in real space. Σ|ψ|² over states and pixels is the
            fraction of the beam behind the specimen.

    Raises:
        OutOfMemoryError: If the waves do not fit into memory.
    """

    def __init__(
        self, grid: Grid, configurations: int, modes: int, positions: int, dtype: npt.DTypeLike
    ) -> None:
        states = configurations * modes
        shape = (states, positions, *grid.shape)
        check_memory_for(
            float(np.prod(shape)) * np.dtype(dtype).itemsize,
            f"exit waves of {plural(positions, 'position')} in {plural(states, 'state')} of "
            f"{grid.shape[0]}×{grid.shape[1]} pixels",
            "use fewer positions, configurations or points of the source, or leave waves out",
        )
        self.waves: npt.NDArray[np.complexfloating] = np.zeros(shape, dtype)
        self._configurations = configurations
        self._recorded = 0  # states

    @property
    def implementation(self) -> Implementation:
        """The plain engine, whose probes are recorded."""
        return Implementation("plain", self._engine, multislice.PlainEngine)

    def _engine(self, grid: Grid, slices: Slices, fresnel: Array) -> "_RecordingEngine":
        return _RecordingEngine(grid, slices, fresnel, self)

    def next_state(self) -> npt.NDArray[np.complexfloating]:
        """Returns where the waves (n, ny, nx) of the next state go."""
        state = self.waves[self._recorded]
        self._recorded += 1
        return state

    @property
    def amplitude(self) -> float:
        """Factor of the waves of one configuration, by which intensities add up to the mean."""
        return float(1 / np.sqrt(self._configurations))


@dataclass(frozen=True)
class _RecordingEngine(multislice.PlainEngine):
    """The plain engine for one configuration of the atoms."""

    recorder: WaveRecorder

    def prepare(self, lens: Array) -> "_RecordingProbes":
        """Returns the probes of `lens` (ny, nx); see `namsa.engines.interface.Engine.prepare`."""
        return _RecordingProbes(self, lens)


class _RecordingProbes(multislice.PlainProbes):
    """The probes of one lens, whose waves are kept."""

    def __init__(self, engine: _RecordingEngine, lens: Array) -> None:
        super().__init__(engine, lens)
        self._recorder = engine.recorder

    def add_patterns(
        self,
        cbed: npt.NDArray[np.floating],
        positions: npt.NDArray[np.float64],
        binning: tuple[Array, Array] | None,
        on_probes: Callable[[int, int], None],
    ) -> None:
        """Adds the patterns that the detector records to `cbed`, and keeps the waves."""
        state = self._recorder.next_state()
        amplitude = self._recorder.amplitude

        def work(rows: slice) -> None:
            waves = self.exit_waves(positions[rows])
            cbed[rows] += bin_patterns(multislice.intensity(waves), binning)
            in_real_space = fft_module(waves).ifft2(waves, norm="ortho")
            state[rows] = amplitude * to_host(in_real_space)

        run_in_batches(work, len(positions), self.batch, self.on_host, on_probes)
