"""Evaluation: the network's answers on held-out materials, and the facts of the job."""

import time
from collections.abc import Mapping
from typing import Any, cast

import namsa

from ..execution import backend
from ..measure import performance
from ..measure.performance import PerformanceAccount
from ..measure.results import RunFacts
from ..ranks import reduction
from ..tasks.reporting import facts_of_steps
from ..tasks.task import Answers
from .connect import Job
from .restore import TrainingState
from .run_directory import RunDirectory
from .share import Data


def evaluate(
    job: Job, run: RunDirectory, data: Data, state: TrainingState, account: PerformanceAccount
) -> Mapping[str, Any]:
    """Scores the network beside the baseline; rank 0 writes evaluation.json, which all return. Collective."""
    facts: RunFacts = {
        "ranks": job.ranks,
        "device": job.device,
        "machine": performance.processor_name(),
        "parameters": state.assembly.model.count_params(),
        "training_samples": data.source.trained_on(data.samples, state.position.epoch),
        "epochs": state.position.epoch,
        "steps": state.position.step,
        "seconds": round(time.perf_counter() - job.started, 1),
        "performance": account.summary(reduction),
        "versions": backend.execution().versions() | {"namsa": namsa.__version__} | reduction.versions(),
    }
    with reduction.together():
        earlier = facts_of_steps(run.path) if job.rank == 0 and not facts["performance"] else {}
    facts = cast(RunFacts, facts | reduction.gather_json(earlier)[0])
    # A run directory's own configuration, as `evaluate` takes, must not run a generator's Python code.
    answers = Answers(
        state.assembly.model, data.dataset, data.held_out, data.baseline, not job.evaluate_only, run.log_line
    )
    return data.task.evaluate(answers, run.path, ranks=reduction, run=facts)
