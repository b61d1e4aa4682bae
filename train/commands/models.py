"""What trained networks are calibrated, packed and used by."""

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from namsa.cli.calibration_options import calibration_overrides
from namsa.cli.layout_options import layout
from namsa.errors import InputError
from namsa.files import check_output
from namsa.io.calibration import CalibrationOverrides
from namsa.io.calibration_file import with_calibration_file
from namsa.text import printable

from ..apply.trust import KnownSpecimen
from ..ranks.signals import Stopped
from ..reports.markdown import pair, times
from .common import exit_code

LIST_WIDTH = 120  # columns of the list of models, also on a narrow terminal


def models(options: argparse.Namespace) -> int:
    """Lists the models that come with the package."""

    def work() -> None:
        from rich.console import Console
        from rich.table import Table

        from ..apply.models import COMMANDS, shipped

        table = Table(box=None)
        for heading in ("name", "task", "used by", "energy", "semiangle", "scan step", "detector", "size"):
            table.add_column(heading, no_wrap=True)
        for model in shipped():
            trained, task = model.conditions, model.experiment.training.task
            table.add_row(
                model.name,
                task,
                f"train {COMMANDS.get(task, task)}",
                f"{trained.energy_ev / 1e3:g} keV",
                f"{trained.semiangle_mrad:g} mrad",
                f"{pair(trained.scan_step_angstrom)} Å",
                f"{times(trained.detector_shape)} of {pair(trained.pixel_mrad)} mrad",
                f"{model.weights.stat().st_size / 1e6:.1f} MB",
            )
        Console(markup=False, width=LIST_WIDTH).print(table, highlight=False)

    return exit_code(work)


def calibrate(options: argparse.Namespace) -> int:
    """Calibrates a run's uncertainty on its held-out samples."""

    def work() -> None:
        from rich.console import Console

        from ..apply.calibrate import calibrate
        from ..apply.calibrate_estimates import calibrate_estimates, described
        from ..apply.models import load_model
        from ..measure import telemetry
        from ..tasks.reporting import write_report

        of_estimates = load_model(options.run_dir).experiment.training.task == "estimate"
        try:
            with telemetry.counter(Console(stderr=True), "samples") as count:
                if of_estimates:
                    if options.data:
                        raise InputError("--data is for networks of the density: leave it out")
                    lines = described(calibrate_estimates(options.run_dir, count))
                else:
                    calibration, scores = calibrate(
                        options.run_dir, options.passes, options.simulated, count, options.outside, options.data
                    )
        except KeyboardInterrupt:
            raise Stopped(f"interrupted; {options.run_dir} is calibrated as before") from None
        if of_estimates:
            print("\n".join(lines))
            return
        tested = calibration.get("test", calibration)
        print(
            f"uncertainty: {calibration['scale']:.3g} times the spread of {calibration['method']}; within it lie "
            f"{calibration['coverage_68']:.1%} of the dev pixels and {tested['coverage_68']:.1%} of the "
            f"test ones\nconsistency: median R {sorted(scores)[len(scores) // 2]:.3f} of {len(scores)} samples\n"
            f"{write_report(options.run_dir)}"
        )

    return exit_code(work)


def pack(options: argparse.Namespace) -> int:
    """Packs a calibrated run as a model to ship."""

    def work() -> None:
        from rich.console import Console

        from ..apply.pack import pack
        from ..measure import telemetry

        # Networks of other tasks than the density count nothing.
        with telemetry.counter(Console(stderr=True), "doses and thicknesses") as count:
            weights = pack(options.run_dir, options.out, count).weights
        print(
            f"{options.out}: {weights['bytes'] / 1e6:.2f} MB of weights ({weights['dtype']}), and {options.out}/CARD.md"
        )

    return exit_code(work)


def reconstruct(options: argparse.Namespace) -> int:
    """Reconstructs the density in a microscope's 4D-STEM file."""

    def work() -> None:
        from ..apply.reconstruct import ReconstructionOptions, reconstruct

        if options.refine_steps and options.thickness_angstrom is None:
            raise InputError("--refine-steps simulates the specimen, which takes --thickness-angstrom, too")
        settings = ReconstructionOptions(options.passes, options.refine_steps)
        estimated = estimate_first(options) if options.estimator else None
        write_result(options, reconstruct, specimen=known_specimen(options), options=settings, estimated=estimated)

    return exit_code(work)


def estimate_first(options: argparse.Namespace) -> Any:
    """Returns what the network of `--estimator` says about the scan, before the scan is read for its density."""
    from ..apply.estimate import estimate

    return estimate(
        options.data,
        options.estimator,
        calibration_overrides(options),
        beam_intensity=beam_intensity(options),
        layout=layout(options),
    )


def write_result(
    options: argparse.Namespace,
    compute: Callable[..., Any],
    describe: Callable[[Any], Sequence[str]] = lambda result: (),
    /,
    **settings: Any,
) -> None:
    """Computes what a network finds in a scan, writes arrays and picture, and prints where they are.

    Args:
        options: Those of the command.
        compute: Takes data, network, calibration, and by keyword what `train.reconstruct` takes. Its result can `save`
            arrays and `show` a picture.
        describe: Returns lines about the result, which are printed before the files' names.
        settings: Further keywords of `compute`.
    """
    from rich.console import Console

    console, picture = Console(markup=False), picture_beside(options.out, (options.data, Path(options.checkpoint)))
    try:
        result = compute(
            options.data,
            options.checkpoint,
            calibration_overrides(options),
            beam_intensity=beam_intensity(options),
            layout=layout(options),
            console=console,
            **settings,
        )
        result.save(options.out)
        result.show(picture)
    except KeyboardInterrupt:
        raise Stopped(f"interrupted; {options.out} was not written") from None
    for line in (*describe(result), f"{options.out} and {picture}"):
        console.print(printable(line), highlight=False, soft_wrap=True)


def known_specimen(options: argparse.Namespace) -> KnownSpecimen | None:
    """Returns what the options say about the specimen."""
    if options.formula and options.thickness_angstrom is None:
        raise InputError("--formula is for measuring trust, which takes --thickness-angstrom, too")
    return None if options.thickness_angstrom is None else KnownSpecimen(options.thickness_angstrom, options.formula)


def beam_intensity(options: argparse.Namespace) -> float | None:
    """Returns the sum of a pattern without specimen, as the options or the calibration file say it."""
    given: float | None = options.beam_intensity
    return with_calibration_file(CalibrationOverrides(), options.calibration)[1] if given is None else given


def picture_beside(out: Path, inputs: Sequence[Path]) -> Path:
    """Returns the picture beside `out`, after checks that both can be written and replace none of the inputs."""
    check_output(out, inputs)
    picture = out.with_suffix(".png")
    if picture == out:
        raise InputError(f"--out {out} is for the arrays, as OUT.h5; the picture is written beside it as OUT.png")
    check_output(picture, inputs, f"--out {out}: the picture")
    folder = next(folder for folder in out.absolute().parents if os.path.exists(folder))
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"--out {out}: {folder} is no folder that can be written to")
    return picture
