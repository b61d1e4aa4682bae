"""The profile of some training steps."""

import argparse
import json
import os
from typing import Any

from namsa.errors import InputError
from namsa.launcher import rank_and_size

from ..execution import backend
from ..experiment.experiment import load
from .common import as_rank, choose_backend, exit_code


def profile(options: argparse.Namespace) -> int:
    """Profiles some training steps, prints tables and writes them with a timeline."""

    def work(reduction: Any) -> None:
        from rich.console import Console

        from ..profiling import tables
        from ..profiling.profile import profile
        from ..ranks import devices

        experiment = load(options.config, options.overrides)
        if rank_and_size()[1] > 1:
            os.environ["HOROVOD_TIMELINE"] = "DYNAMIC"  # which Horovod reads when it starts; see reduction.timeline
        reduction.start(experiment.training)
        machine = backend.execution().claim(reduction.local_rank(), reduction.local_size())
        with reduction.together():
            backend.execution().check_data_format(experiment.network.data_format)
        if "core" in machine:
            machine = f"{devices.processor_name()}, {machine}"
        result = profile(experiment, options.steps, machine)
        with reduction.together():
            if reduction.rank() == 0:
                written = tables.write(result, options.out) if options.out else []
                if options.json:
                    print(json.dumps({key: value for key, value in result.items() if key != "timeline"}))
                else:
                    console = Console(markup=False)
                    tables.show(result, console)
                    for path in written:
                        console.print(path, highlight=False, soft_wrap=True)

    return exit_code(lambda: _choose(options)) or as_rank(work)


def _choose(options: argparse.Namespace) -> None:
    choose_backend(options.config, options.overrides)
    if backend.name() == "jax":
        raise InputError("train profile reads TensorFlow's profiler: set KERAS_BACKEND=tensorflow")
