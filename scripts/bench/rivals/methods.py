"""Each method's images of a stack: ptychography by workers in environments of their own, iCoM here."""

import argparse
import hashlib
import json
import os
import subprocess
import time
import venv
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import BoundedSemaphore
from typing import Any

import numpy as np
import xxhash

from namsa.errors import WorkError
from namsa.physics import density_target as target
from namsa.physics import virtual_detectors as virtual
from namsa.physics.grid import Grid
from namsa.physics.optics import wavelength_angstrom
from namsa.pixels import pattern_grid, scan_grid
from rivals.folders import WRITERS, write_folder
from rivals.stacks import Image, Stack

Settings = dict[str, Any]

BENCH = Path(__file__).parents[1]
PACKAGES = {
    "quantem": ("torch==2.13.0", "quantem==0.1.10"),
    "py4dstem": ("py4DSTEM==0.14.18",),
    "ptyrad": ("torch==2.13.0", "ptyrad==1.0.0", "scikit-image"),
    "phaser": ("phaserEM[jax]==0.3.1", "scikit-image"),
}
# PtyRAD 1.0.0 nests quotes in an f-string, which Python before 3.12 cannot read.
REPAIRS = {"ptyrad": {"ptyrad/plotting/basic.py": ("lr_iters['niter'][-1]", 'lr_iters["niter"][-1]')}}
MULTISLICE = {"identical_slices": (True, False), "slice_angstrom": (20.0, 10.0, 5.0)}
UPDATES = (("sgd", 0.5), ("sgd", 1.0), ("adam", 3e-3), ("adam", 1e-2), ("adam", 3e-2))
PTYRAD_RATES = (2e-3, 5e-4, 1e-2)  # of phase and amplitude; 5e-4 is its default
PTYRAD = {
    "object": ("complex", "pure_phase"),
    "positivity": (True, False),
    "sparsity": (0.0, 0.1),
    "modes": (1, 4),
    "probe_rate": (1e-4, 0.0, 1e-3),
    "position_rate": (5e-4, 0.0),
    "batch": (32, 128),
    "plane": (0.5, 0.0),
}
PHASER_UPDATES = (("epie", 1.0), ("epie", 0.3), ("lsqml", 0.5), ("adam", 3e-3), ("adam", 1e-2))
PHASER = {
    "amplitude": (1.1, 1.0),
    "noise": ("amplitude", "anscombe"),
    "modes": (1, 4),
    "probe": (True, False),
    "positions": (0.0, 1e-2),  # part of a step of "lsqml", or Å of "adam"; phaser's ePIE moves none
    "illumination": (1e-3, 0.1),  # which regularises "lsqml", in electrons of a pattern
    "blur_weight": (0.0, 0.1),
    "batch": (32, 128),
    "plane": (0.5, 0.0),
}
# The first of each is what the search begins with; the settings in front matter most. "plane": where the slices lie
# within their thickness, 0 at the front.
SEARCH: dict[str, dict[str, tuple[Any, ...]]] = {
    "quantem, single slice": {
        "update": UPDATES,
        "batch": (128, 32),
        "plane": (0.5, 0.0),
        "object": ("potential", "pure_phase", "complex"),
        "probe_rate": (0.0, 1e-3),
        "tv_weight_xy": (0.0, 0.5, 5.0),
    },
    "quantem, multislice": {
        "update": UPDATES,
        "batch": (32, 128),
        **MULTISLICE,
        "object": ("complex", "potential", "pure_phase"),
        "tv_weight_xy": (0.0, 0.5, 5.0),
        "tv_weight_z": (0.0, 5.0, 50.0),
        "probe_rate": (0.0, 1e-3),
        "plane": (0.5, 0.0),
    },
    "py4DSTEM, single slice": {
        "rate": (1.0, 0.5, 0.1),
        "batch": (128, 32),
        "plane": (0.5, 0.0),
        "object": ("potential", "complex"),
        "object_positivity": (True, False),
        "probe": (False, True),
    },
    "py4DSTEM, multislice": {
        "rate": (1.0, 0.5, 0.2, 0.1),
        "batch": (32, 128),
        **MULTISLICE,
        "object": ("complex", "potential"),
        "object_positivity": (True, False),
        "kz_regularization_gamma": (None, 1.0),
        "probe": (False, True),
        "plane": (0.5, 0.0),
    },
    "PtyRAD, single slice": {
        "rate": PTYRAD_RATES,
        **PTYRAD,
    },
    "PtyRAD, multislice": {
        "rate": PTYRAD_RATES,
        "slice_angstrom": (10.0, 5.0, 20.0),
        "zblur": (1.0, None),
        **PTYRAD,
    },
    "phaser, single slice": {
        "update": PHASER_UPDATES,
        **PHASER,
    },
    "phaser, multislice": {
        "update": PHASER_UPDATES,
        "slice_angstrom": (10.0, 5.0, 20.0),
        "layers_weight": (0.8, 0.0),
        **PHASER,
    },
}
NOT_FOR_WORKERS = ("slice_angstrom", "thickness_angstrom")
PERFECT = "true potential"  # what it is worth as a density, under a line as any phase


def images(method: str, stack: Stack, settings: Settings, options: argparse.Namespace) -> dict[str, Any]:
    """ "images" (legs, 2, H, W), without and with the window, at the target's pixels; "cpu_seconds"; "losses".

    Of positions that are kept out, by their numbers in `options`, "kept_out": patterns measured and by the model.
    """
    if method == "iCoM":
        started = time.thread_time()
        return {"images": [icom(stack)], "cpu_seconds": [time.thread_time() - started], "losses": []}
    if method == PERFECT:
        return {"images": [[stack.truth["potential"]] * 2], "cpu_seconds": [0.0], "losses": []}
    found = reconstruct(method, stack, settings, options)
    y, x = (step * np.arange(n) for step, n in zip(stack.frame.step, stack.truth["density"].shape, strict=True))
    pictures = []
    for phase in found["phases"]:
        grid = Grid(phase.shape, tuple(np.multiply(phase.shape, found["step"])))
        coefficients = (target.band_limited(phase.astype(np.float64), grid, q) for q in (np.inf, stack.max_q))
        pictures.append(
            [target.at_positions(c, grid, found["first"][0] + y, found["first"][1] + x) for c in coefficients]
        )
    return found | {"images": pictures}


def icom(stack: Stack) -> list[Image]:
    p, angles, scan = stack.provenance, pattern_grid(stack.provenance), scan_grid(stack.provenance)
    deflection = virtual.centre_of_mass(stack.patterns, angles).reshape(*p["scan_shape"], 2)
    wavelength = wavelength_angstrom(p["energy_ev"])
    phase = virtual.integrated_centre_of_mass(deflection, tuple(scan.step), wavelength, periodic=False)
    mirrored = np.block([[phase, phase[:, ::-1]], [phase[::-1], phase[::-1, ::-1]]])
    grid = Grid(mirrored.shape, tuple(np.multiply(mirrored.shape, scan.step)))
    window = target.on_grid(target.band_limited(mirrored, grid, stack.max_q))
    return [phase, window[: phase.shape[0], : phase.shape[1]]]


def reconstruct(method: str, stack: Stack, settings: Settings, options: argparse.Namespace) -> dict[str, Any]:
    """What the method's worker answers; kept, so that it is asked once, and not again for fewer iterations."""
    p, program = stack.provenance, program_of(method)
    thickness = p["thickness_angstrom"] if "thickness_angstrom" in p else settings["thickness_angstrom"]
    given = {key: value for key, value in settings.items() if key not in NOT_FOR_WORKERS}
    if stack.c10:
        given["C10"] = stack.c10
    if "slice_angstrom" in settings:
        given["slices"] = max(2, round(thickness / settings["slice_angstrom"]))
    job = {
        "energy_ev": p["energy_ev"],
        "semiangle_mrad": p["semiangle_mrad"],
        "step_angstrom": list(stack.frame.step),
        "pixel_mrad": p["detector_sampling_mrad"],
        "thickness_angstrom": thickness,
        "settings": given,
        **({"kept_out": options.kept_out} if getattr(options, "kept_out", None) else {}),
    }
    bits = xxhash.xxh3_64_hexdigest(np.ascontiguousarray(stack.patterns).data)
    asked = json.dumps([PACKAGES[program], stack.id, bits, job])
    answers = (options.work / "answers").absolute()  # a worker may change its directory
    answer = answers / f"{stack.id}-{program}-{hashlib.sha256(asked.encode()).hexdigest()[:12]}.json"
    result, iterations = answer.with_suffix(".npz"), options.iterations
    if not answer.exists() or not {*iterations} <= {*json.loads(answer.read_text())["iterations"]}:
        answer.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=answer.parent) as folder:
            if program in WRITERS:
                slices, plane = given.get("slices", 1), given["plane"]
                lens = {"thickness_angstrom": thickness, "slices": slices, "plane": plane, "c10": stack.c10}
                write_folder(program, stack, Path(folder), iterations=iterations[-1], **lens)
            else:
                np.save(f"{folder}/patterns.npy", stack.patterns.reshape(*p["scan_shape"], *stack.patterns.shape[1:]))
            places = {"folder": folder, "stack": f"{folder}/patterns.npy", "result": str(result)}
            run = {"iterations": iterations, "threads": options.threads}
            said = options.programs.ask(program, json.dumps(job | places | run))
        answer.write_text(json.dumps(said | {"settings": given, "iterations": iterations}))
    with np.load(result) as file:
        said = json.loads(answer.read_text()) | dict(file)
    legs = [said["iterations"].index(count) for count in iterations]
    return said | {
        "phases": said["phases"][legs],
        "cpu_seconds": [said["cpu_seconds"][leg] for leg in legs],
        "losses": said["losses"][: iterations[-1]],
    }


def program_of(method: str) -> str:
    return method.partition(",")[0].lower()


class Programs:
    """The workers, each a process that takes one job after the other; no more than `count` work at a time."""

    def __init__(self, work: Path, count: int, threads: int) -> None:
        self.work, self.places = work, BoundedSemaphore(count)
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        self.surroundings = os.environ | dict.fromkeys(names, str(threads))
        self.idle: defaultdict[str, list[subprocess.Popen[str]]] = defaultdict(list)

    def ask(self, program: str, job: str) -> dict[str, Any]:
        """The answer to `job`.

        Raises:
            WorkError: If the program ends without one.
        """
        with self.places:
            try:
                worker = self.idle[program].pop()
            except IndexError:
                worker = self._start(program)
            assert worker.stdin
            assert worker.stdout
            worker.stdin.write(job + "\n")
            worker.stdin.flush()
            said = worker.stdout.readline()
            if not said:
                raise WorkError(f"{program} failed on {job}: see {self._log(program)}")
            self.idle[program].append(worker)
        return dict(json.loads(said))

    def stop(self) -> None:
        for worker in (worker for workers in self.idle.values() for worker in workers):
            worker.communicate()  # it has no more jobs to read, and ends

    def _start(self, program: str) -> subprocess.Popen[str]:
        command = [python(program, self.work), BENCH / "workers" / f"{program}_ptychography.py"]
        pipe = subprocess.PIPE
        with self._log(program).open("a") as log:
            return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, text=True, env=self.surroundings)

    def _log(self, program: str) -> Path:
        return self.work / f"{program}.log"


def python(program: str, work: Path) -> Path:
    return (work / "environments" / program / "bin/python").absolute()


def install(program: str, work: Path) -> None:
    """The program's environment, made by pip where it is not there; torch comes as pip's default has it."""
    home = work / "environments" / program
    if not (home / "ready").exists():
        venv.create(home, with_pip=True)
        subprocess.run([python(program, work), "-m", "pip", "install", "-q", *PACKAGES[program]], check=True)
        for name, (wrong, right) in REPAIRS.get(program, {}).items():
            (module,) = home.glob(f"lib/python*/site-packages/{name}")
            module.write_text(module.read_text(encoding="utf-8").replace(wrong, right), encoding="utf-8")
        (home / "ready").touch()
