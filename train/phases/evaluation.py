"""Evaluation: the network's answers on held-out materials, and the facts of the job."""

import time
from collections.abc import Sequence
from typing import cast

import namsa

from ..execution import backend
from ..measure import performance
from ..measure.performance import PerformanceAccount
from ..measure.results import Evaluation, HeldOutFacts, RunFacts
from ..optimization.origin import LearntMaterials
from ..ranks.connection import engine
from ..tasks.reporting import facts_of_steps
from ..tasks.task import Answers
from .connect import Job
from .restore import TrainingState
from .run_directory import RunDirectory
from .share import JobData


def evaluate(
    job: Job, run: RunDirectory, data: JobData, state: TrainingState, account: PerformanceAccount
) -> Evaluation:
    """Scores the network beside the baseline; rank 0 writes evaluation.json, which all return.
    Collective.
    """
    facts: RunFacts = {
        "ranks": job.ranks,
        "device": job.device,
        "machine": performance.processor_name(),
        "parameters": state.assembly.model.count_params(),
        "training_samples": data.source.trained_on(data.samples, state.position.epoch),
        "epochs": state.position.epoch,
        "steps": state.position.step,
        "seconds": round(time.perf_counter() - job.started, 1),
        "performance": account.summary(engine()),
        "versions": backend.execution().versions()
        | {"namsa": namsa.__version__}
        | engine().versions(),
    }
    held_out = state.origin.learnt.unseen(data.held_out)
    evaluated = {entry.material for entry in held_out}
    left_out = sorted({entry.material for entry in data.held_out} - evaluated)
    facts["held_out"] = _held_out_facts(run, state.origin.learnt, left_out)
    with engine().local_work():
        earlier = {}
        if job.rank == 0 and not facts["performance"]:
            earlier = facts_of_steps(run.path)
    facts = cast(RunFacts, facts | engine().gather_json(earlier)[0])
    # A run directory's own configuration, as `evaluate` takes, must not run a generator's Python
    # code.
    answers = Answers(
        state.assembly.model,
        data.dataset,
        held_out,
        data.baseline,
        not job.evaluate_only,
        run.log_line,
    )
    return data.task.evaluate(answers, run.path, ranks=engine(), run=facts)


def _held_out_facts(
    run: RunDirectory, learnt: LearntMaterials, left_out: Sequence[str]
) -> HeldOutFacts:
    """Returns what is known of whether held-out materials were learnt, and prints which were.
    Collective.

    Args:
        left_out: This rank's held-out materials that were learnt before, and are not evaluated.
    """
    names: set[str] = set()
    for of_rank in engine().gather_json(list(left_out)):
        names.update(of_rank)
    if names:
        run.log_line(
            f"held out, but learnt in a training before, and left out of the evaluation: "
            f"{', '.join(sorted(names))}"
        )
    return {"learnt_known": learnt.complete, "left_out": sorted(names)}
