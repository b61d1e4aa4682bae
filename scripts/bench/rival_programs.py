"""The programs of ptychography that `rivals.py` runs, and their settings."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import frame
import numpy as np
from reality_cases import ENERGY_EV, SEMIANGLE_MRAD
from rival_cases import PIXEL_MRAD, STEP

from namsa.base.arrays import Floats
from namsa.base.pixels import PixelGrid
from namsa.exchange.export import export_ptychography
from namsa.io.calibration import CalibrationOverrides
from namsa.physics import density_target
from namsa.physics.grid import Grid

KNOWN = CalibrationOverrides(
    energy_ev=ENERGY_EV,
    semiangle_mrad=SEMIANGLE_MRAD,
    scan_step_angstrom=STEP,
    pixel_mrad=PIXEL_MRAD,
)
WINDOWS = (1.25, 2.0, np.inf)  # 1/Å, of the filter of phases
Settings = dict[str, Any]


class Program(NamedTuple):
    """A program of ptychography.

    Attributes:
        name: For the table.
        packages: Of its environment.
        module: That can be imported there.
        axes: Values of each setting; a search begins with the first of each, and goes through the
            settings in this order.
        iterations: After which images are looked at; the last is what the table shows.
        window: Value of `WINDOWS`, 1/Å, for the table.
        chosen: Settings in place of the first ones, for the table.
    """

    name: str
    packages: tuple[str, ...]
    module: str
    axes: dict[str, tuple[Any, ...]]
    iterations: tuple[int, ...]
    window: float
    chosen: Settings


class Answer(NamedTuple):
    """Images of a reconstruction after each of its iterations that are looked at."""

    phases: Floats  # (iterations, ny, nx), rad
    step: Floats  # (y, x), Å
    first: Floats  # position of the scan's first position from the first pixel, (y, x), Å
    cpu_seconds: list[float]
    losses: list[float]  # of all iterations

    def at(self, index: int, pixels: PixelGrid, shape: tuple[int, int], max_q: float) -> Floats:
        """Returns one of the images at pixels of the scan's frame, under the window of a band."""
        phase = self.phases[index].astype(np.float64)
        if not np.isfinite(phase).all():
            return np.zeros(shape)
        rows, columns = phase.shape
        grid = Grid((rows, columns), (rows * self.step[0], columns * self.step[1]))
        limited = density_target.band_limited(phase, grid, max_q)
        y, x = pixels.coordinates(shape)
        return density_target.at_positions(limited, grid, self.first[0] + y, self.first[1] + x)


PTYRAD = Program(
    name="PtyRAD 1.0.0",
    packages=("ptyrad==1.0.0", "torch==2.13.0"),
    module="ptyrad",
    axes={
        "rate": (5e-3, 2e-3, 1e-2),
        "blur": (1.0, 0.0),
        "modes": (2, 4),
        "slice_angstrom": (20.0, 10.0),
        "sparsity": (0.0, 0.1),
        "probe_rate": (1e-3,),
        "amplitude_rate": (0.0,),
        "batch": (16,),
        "position_rate": (0.0,),
        "thickness_rate": (0.0,),
        "positive": (True,),
    },
    iterations=(3, 6, 12),
    window=1.25,
    chosen={"rate": 1e-2, "blur": 0.0, "modes": 4, "slice_angstrom": 10.0, "sparsity": 0.1},
)
PY4DSTEM = Program(
    name="py4DSTEM 0.14.18",
    packages=("py4DSTEM==0.14.18",),
    module="py4DSTEM",
    axes={
        "rate": (0.5, 1.0),
        "object": ("potential", "complex"),
        "identical": (False, True),
        "kz": (1.0,),
        "modes": (2, 3),
        "slice_angstrom": (20.0, 10.0),
        "batch": (16,),
        "blur": (0.0,),
        "positive": (True,),
    },
    iterations=(2, 4),
    window=1.25,
    chosen={"rate": 1.0, "modes": 3, "slice_angstrom": 10.0},
)
PROGRAMS = {"ptyrad": PTYRAD, "py4dstem": PY4DSTEM}


class Runner:
    """Runs a program, in an environment that uv makes, and keeps what it answers."""

    def __init__(self, key: str, work: Path) -> None:
        self.program = PROGRAMS[key]
        self.key = key
        self.work = work.absolute()
        self.worker: Any = None

    def run(
        self,
        scan: Path,
        c10: float,
        thickness: float,
        settings: Settings,
        iterations: Sequence[int],
    ) -> Answer:
        """Reconstructs a scan, or returns what was answered before.

        Args:
            scan: File of the patterns.
            c10: Defocus of the first probe at the entrance, Å.
            thickness: Of the object, Å.
            settings: Values of `Program.axes`.
            iterations: After which images are wanted.
        """
        slices = max(2, round(thickness / settings["slice_angstrom"]))
        job: dict[str, Any] = {
            "energy_ev": ENERGY_EV,
            "semiangle_mrad": SEMIANGLE_MRAD,
            "step_angstrom": STEP,
            "pixel_mrad": PIXEL_MRAD,
            # slices lie in the middle of their thickness
            "c10": c10 + thickness / slices / 2,
            "thickness_angstrom": thickness,
            "slices": slices,
            "settings": settings,
            "iterations": list(iterations),
        }
        asked = json.dumps([scan.stem, self.program.packages, job], sort_keys=True)
        digest = hashlib.sha256(asked.encode()).hexdigest()[:12]
        folder = self.work / "answers" / f"{scan.stem}-{self.key}-{digest}"
        result = folder / "result.npz"
        answered = folder / "answer.json"
        if not answered.exists():
            folder.mkdir(parents=True, exist_ok=True)
            if self.key == "ptyrad":
                export_ptychography(
                    scan,
                    "ptyrad",
                    folder / "scan",
                    overrides=KNOWN,
                    defocus_angstrom=-job["c10"],
                    thickness_angstrom=thickness,
                    slices=slices,
                    iterations=iterations[-1],
                )
            places = {"patterns": scan, "folder": folder / "scan", "result": result}
            job |= {name: str(path.absolute()) for name, path in places.items()}
            answer = frame.ask(self._process(), job)
            answered.write_text(json.dumps(answer), encoding="utf-8")
        answer = json.loads(answered.read_text(encoding="utf-8"))
        with np.load(result) as file:
            return Answer(
                file["phases"],
                file["step"],
                file["first"],
                answer["cpu_seconds"],
                answer["losses"],
            )

    def stop(self) -> None:
        """Ends the worker."""
        if self.worker:
            self.worker.communicate()

    def _process(self) -> Any:
        """Returns the worker, started once."""
        if not self.worker:
            command = frame.environment(self.program.packages, self.program.module)
            script = frame.WORKERS / f"{self.key}_ptychography.py"
            self.worker = frame.start([*command, script])
        return self.worker


def first_settings(program: Program) -> Settings:
    """Returns where a search begins."""
    return {name: values[0] for name, values in program.axes.items()}
