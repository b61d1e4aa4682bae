"""Copies checkpoints from the node-local disk home, to storage that outlives the job, while training continues.

If several checkpoints wait, only the newest is delivered. A checkpoint that cannot be delivered is a warning as long as
another may follow; at the end it is an error.
"""

import queue
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from namsa.errors import InputError, WorkError
from namsa.files import read_text, write_text_atomic
from namsa.json_files import LARGEST_FILE_BYTES

from ..measure import rows
from ..measure.results import LARGEST_METRICS_BYTES
from ..optimization import checkpoint
from ..tasks.validation import BEST
from . import copies


@contextmanager
def background_delivery(run_dir: Path, home: Path | None, keep: int) -> Iterator[Callable[[Path], None]]:
    """Delivers checkpoints home, if there is one, in a background thread. Leaving the context waits for the last one.

    Yields:
        A function that is given the path of a checkpoint to deliver.

    Raises:
        WorkError: If the last checkpoint was not delivered; not if the context is left by another exception.
    """
    if home is None:
        yield lambda path: None
        return
    waiting: queue.SimpleQueue[Path | None] = queue.SimpleQueue()
    failure: list[Exception] = []  # of the last delivery, if it failed

    def deliver_all() -> None:
        while (path := _newest(waiting)) is not None:
            failure.clear()
            try:
                deliver(path, run_dir, home, keep)
            except (InputError, WorkError, OSError) as error:
                failure.append(error)
                print(f"warning: {path.name} has not reached {home}: {error}", file=sys.stderr, flush=True)

    thread = threading.Thread(target=deliver_all, daemon=True)
    thread.start()
    try:
        yield waiting.put
    finally:
        waiting.put(None)
        thread.join()
    if failure:
        raise WorkError(f"the last checkpoint has not reached {home} and is only in {run_dir}: {failure[0]}")


def deliver(path: Path, run_dir: Path, home: Path, keep: int) -> None:
    """Copies a checkpoint home, after metrics and validations up to it, and removes all there but the newest.

    Raises:
        InputError: If the run directory's configuration or metrics cannot be read.
        WorkError: If a file cannot be written, or the copy cannot be read back.
    """
    copied = home / "checkpoints" / path.name
    copied.parent.mkdir(parents=True, exist_ok=True)
    write_text_atomic(home / "config.yaml", read_text(run_dir / "config.yaml", largest_bytes=LARGEST_FILE_BYTES))
    lines = read_text(run_dir / "metrics.jsonl", largest_bytes=LARGEST_METRICS_BYTES)
    write_text_atomic(home / "metrics.jsonl", lines[: lines.rfind("\n") + 1])
    for name in (rows.VALIDATIONS, rows.TRANSFERS, BEST):
        if (run_dir / name).exists():
            copies.copy_file(run_dir / name, home / name)
    copies.copy_file(path, copied)
    try:
        checkpoint.read(copied)
    except checkpoint.BROKEN as error:
        copied.unlink(missing_ok=True)
        raise WorkError(f"its copy is broken ({error})") from None
    checkpoint.prune(copied.parent, keep)


def _newest(waiting: queue.SimpleQueue[Path | None]) -> Path | None:
    """Waits for a checkpoint and returns the newest that waits; `None` at the end, after the last checkpoint."""
    path = waiting.get()
    while path is not None and not waiting.empty():
        following = waiting.get()
        if following is None:
            waiting.put(None)
            break
        path = following
    return path
