"""Commands that calibrate, pack and list trained networks."""

import argparse

from namsa.base.errors import InputError

from ..execution import backend
from ..ranks.signals import Stopped
from ..reports.words import pair, times

LIST_WIDTH = 120  # columns of the list of models, also on a narrow terminal


def models(options: argparse.Namespace) -> None:
    """Lists the models that come with the package."""
    from rich.console import Console
    from rich.table import Table

    from ..apply.models import shipped
    from ..tasks.scan_command import commands_of

    table = Table(box=None)
    for heading in (
        "name",
        "task",
        "command",
        "energy",
        "semiangle",
        "scan step",
        "detector",
        "size",
    ):
        table.add_column(heading, no_wrap=True)
    for model in shipped():
        trained = model.conditions
        task = model.experiment.training.task
        table.add_row(
            model.name,
            task,
            commands_of(task)[0].name,
            f"{trained.energy_ev / 1e3:g} keV",
            f"{trained.semiangle_mrad:g} mrad",
            f"{pair(trained.scan_step_angstrom)} Å",
            f"{times(trained.detector_shape)} of {pair(trained.pixel_mrad)} mrad",
            f"{model.weights.stat().st_size / 1e6:.1f} MB",
        )
    Console(markup=False, width=LIST_WIDTH).print(table, highlight=False)


def calibrate(options: argparse.Namespace) -> None:
    """Calibrates a run's network on its held-out samples."""
    from rich.console import Console

    from namsa.base import locks

    from ..apply.models import load_model
    from ..measure import telemetry
    from ..tasks import registry

    backend.choose()
    model = load_model(options.run_dir)
    module = registry.part(model.experiment.training.task, "calibrate")
    if module is None:
        raise model.wrong_task("density")
    try:
        alone = locks.exclusive(
            options.run_dir / ".lock", options.run_dir, "wait for that job to end"
        )
        with alone, telemetry.counter(Console(stderr=True), "samples") as count:
            describe = module.calibrate_run(options.run_dir, options, count)
    except KeyboardInterrupt:
        raise Stopped(f"interrupted; {options.run_dir} is calibrated as before") from None
    print(describe())


def pack(options: argparse.Namespace) -> None:
    """Packs a calibrated run as a model to ship."""
    from rich.console import Console

    from ..measure import telemetry
    from ..pack import is_packed, pack

    packed_before = f"{options.out} is there already, packed of this run as it is"
    if is_packed(options.run_dir, options.out):
        print(packed_before)
        return
    try:
        with telemetry.counter(Console(stderr=True), "measurements") as count:
            weights = pack(options.run_dir, options.out, count).weights
    except InputError:
        # another process may have packed the run meanwhile
        if not is_packed(options.run_dir, options.out):
            raise
        print(packed_before)
        return
    print(
        f"{options.out}: {weights['bytes'] / 1e6:.2f} MB of weights ({weights['dtype']}), and "
        f"{options.out}/CARD.md"
    )
