"""What a trained network is measured, shipped and used by."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from namsa.errors import InputError
from train.commands.common import exit_code, positive
from train.ranks.signals import Stopped


def calibrate(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m train calibrate")
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR")
    parser.add_argument("--passes", type=int, metavar="N", help="predictions with dropout, of each symmetry")
    parser.add_argument("--simulated", type=positive, metavar="N", help="about so many held-out samples; default all")
    options = parser.parse_args(arguments)

    def work() -> None:
        from rich.console import Console

        from train.measure import telemetry
        from train.reconstruction.calibrate import calibrate
        from train.reports.report import write_report

        with telemetry.counter(Console(stderr=True), "held-out samples") as count:
            found, scores = calibrate(options.run_dir, options.passes, options.simulated, count)
        print(
            f"uncertainty: {found['scale']:.3g} times the spread of {found['method']}; within it lie "
            f"{found['coverage_68']:.1%} of the dev pixels and {found.get('test', found)['coverage_68']:.1%} of the "
            f"test ones\nconsistency: median R {sorted(scores)[len(scores) // 2]:.3f} of {len(scores)} samples\n"
            f"{write_report(options.run_dir)}"
        )

    return exit_code(work)


def pack(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m train pack")
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="its last part is the model's name")
    options = parser.parse_args(arguments)

    def work() -> None:
        from rich.console import Console

        from train.measure import telemetry
        from train.reconstruction.pack import pack

        with telemetry.counter(Console(stderr=True), "doses and thicknesses") as count:
            weights = pack(options.run_dir, options.out, count)["weights"]
        print(
            f"{options.out}: {weights['bytes'] / 1e6:.2f} MB of weights ({weights['dtype']}), and {options.out}/CARD.md"
        )

    return exit_code(work)


def reconstruct(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m train reconstruct")
    parser.add_argument("data", type=Path, metavar="DATA.h5", help="py4DSTEM's, HyperSpy's, namsa's or any HDF5 file")
    parser.add_argument("--checkpoint", required=True, metavar="NAME", help="a model, a run directory or a checkpoint")
    parser.add_argument("--out", type=Path, required=True, metavar="OUT.h5", help="a picture goes beside it")
    parser.add_argument("--dataset", metavar="NAME", help="which of the file's datasets of four axes")
    given = parser.add_argument_group("what the file does not say, or says wrongly; two numbers are y and x")
    given.add_argument("--energy-ev", type=float)
    given.add_argument("--semiangle-mrad", type=float)
    given.add_argument("--scan-step-angstrom", type=float, nargs="+", metavar="STEP")
    given.add_argument("--pixel-mrad", type=float, nargs="+", metavar="PIXEL", help="of the detector")
    given.add_argument("--centre-pixels", type=float, nargs=2, metavar=("Y", "X"), help="the optic axis")
    given.add_argument("--rotation-deg", type=float, help="turns the detector's y, x into the scan's (py4DSTEM's sign)")
    given.add_argument("--beam-intensity", type=float, help="sum of a pattern without specimen, in the file's units")
    parser.add_argument("--thickness-angstrom", type=float, help="of the specimen, by which trust is measured")
    parser.add_argument("--formula", help="of the specimen, as SrTiO3, for the same")
    parser.add_argument(
        "--refine-steps",
        type=positive,
        default=0,
        metavar="N",
        help="towards the patterns, with a thickness; 30 will do",
    )
    parser.add_argument("--passes", type=int, metavar="N", help="predictions with dropout, of each symmetry")
    options = parser.parse_args(arguments)

    def work() -> None:
        from rich.console import Console

        from namsa.io.foreign import Given
        from train.reconstruction.reconstruct import Specimen, reconstruct

        if options.formula and not options.thickness_angstrom:
            raise InputError("--formula is for measuring trust, which takes --thickness-angstrom, too")
        if options.refine_steps and not options.thickness_angstrom:
            raise InputError("--refine-steps simulates the specimen, which takes --thickness-angstrom, too")
        specimen = Specimen(options.thickness_angstrom, options.formula) if options.thickness_angstrom else None

        given = Given(
            options.dataset,
            _pair(options.scan_step_angstrom, "--scan-step-angstrom"),
            _pair(options.pixel_mrad, "--pixel-mrad"),
            options.energy_ev,
            options.semiangle_mrad,
            options.centre_pixels and tuple(options.centre_pixels),
            options.rotation_deg,
        )
        try:
            reconstruct(
                options.data,
                options.checkpoint,
                options.out,
                given,
                beam_intensity=options.beam_intensity,
                passes=options.passes,
                specimen=specimen,
                refine_steps=options.refine_steps,
                console=Console(),
            )
        except KeyboardInterrupt:
            raise Stopped(f"interrupted; {options.out} was not written") from None

    return exit_code(work)


def _pair(values: Sequence[float] | None, name: str) -> tuple[float, float] | None:
    if values is None:
        return None
    if len(values) > 2 or min(values) <= 0:
        raise InputError(f"{name} is {' '.join(map(str, values))}: give one positive number, or two, y and x")
    return values[0], values[-1]
