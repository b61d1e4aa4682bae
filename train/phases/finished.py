"""The identity of a job that is done: started again, the job says so and ends."""

import json
from pathlib import Path

import namsa
from namsa.base.errors import InputError
from namsa.base.files import write_text_atomic
from namsa.base.identity import digest_of
from namsa.base.json_files import read_typed

from ..program import PROGRAM
from ..ranks.connection import engine
from ..reports import report
from .connect import Job
from .plan import TrainingPlan
from .restore import TrainingState
from .run_directory import RunDirectory
from .share import JobData

FILE = "finished.json"


def is_finished(
    job: Job, run: RunDirectory, data: JobData, state: TrainingState, plan: TrainingPlan
) -> bool:
    """Returns whether the job has nothing left to train, and was evaluated and reported as it is.
    Prints so. Collective.
    """
    made_of = _made_of(data, state)
    finished = False
    with engine().local_work():
        if job.rank == 0 and not job.evaluate_only and not plan.epochs:
            finished = _stored_digest(run.path) == digest_of(made_of)
            finished &= (run.path / report.FILE).exists()
    finished = engine().gather_json(finished)[0]
    if finished:
        run.log_line(
            f"finished before: {run.kept / report.FILE} has the report; "
            f"`{PROGRAM} evaluate {run.kept}` evaluates again, more training.epochs train on"
        )
    return finished


def write_finished(job: Job, run: RunDirectory, data: JobData, state: TrainingState) -> None:
    """Rank 0 writes that the job is done, after its report. Collective."""
    made_of = _made_of(data, state)
    with engine().local_work():
        if job.rank == 0:
            text = json.dumps({"digest": digest_of(made_of)})
            write_text_atomic(run.path / FILE, text)


def _stored_digest(run_dir: Path) -> str | None:
    """Returns the digest that the job before has written; `None` if there is none."""
    path = run_dir / FILE
    if not path.exists():
        return None
    try:
        return read_typed(dict[str, str], path, "evaluate the run again")["digest"]
    except (InputError, LookupError, TypeError):
        return None


def _made_of(data: JobData, state: TrainingState) -> dict[str, object]:
    """Returns what the evaluation follows from. Collective."""
    position = state.position
    return {
        "configuration": data.experiment.model_dump(mode="json"),
        "step": position.step,
        "epoch": position.epoch,
        "held_out": sum(engine().gather_json(len(data.held_out))),
        "training": data.source.trained_on(data.samples, position.epoch),
        "namsa": namsa.__version__,
    }
