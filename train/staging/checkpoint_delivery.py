"""Checkpoints on their way home: from the node's own disk to where they outlive it, while training goes on.

Of several that wait, the newest goes. One that cannot be delivered is a warning as long as another may follow; at the
end it is an error.
"""

import queue
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from namsa.errors import WorkError
from namsa.files import write_text_atomic
from train.optimization import checkpoint
from train.staging import copies


@contextmanager
def carrying(run_dir: Path, home: Path | None, keep: int) -> Iterator[Callable[[Path], None]]:
    """Yields `send(path)`, which has a checkpoint of `run_dir` delivered in the background; leaving waits for it.

    Raises WorkError on leaving, unless something else was raised, where the last one did not get home.
    """
    if home is None:
        yield lambda path: None
        return
    waiting: queue.SimpleQueue[Path | None] = queue.SimpleQueue()
    failed: list[Exception] = []  # the last delivery's, where it failed

    def work() -> None:
        while (path := _newest(waiting)) is not None:
            failed.clear()
            try:
                deliver(path, run_dir, home, keep)
            except (WorkError, OSError) as error:
                failed.append(error)
                print(f"warning: {path.name} has not reached {home}: {error}", file=sys.stderr, flush=True)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield waiting.put
    finally:
        waiting.put(None)
        thread.join()
    if failed:
        raise WorkError(f"the last checkpoint has not reached {home} and lies in {run_dir} alone: {failed[0]}")


def deliver(path: Path, run_dir: Path, home: Path, keep: int) -> None:
    """Brings a checkpoint home, with the metrics up to it before it, and removes all there but the newest `keep`.

    Raises WorkError where it cannot be written, or does not read as it was written.
    """
    copied = home / "checkpoints" / path.name
    copied.parent.mkdir(parents=True, exist_ok=True)
    write_text_atomic(home / "config.yaml", (run_dir / "config.yaml").read_text(encoding="utf-8"))
    lines = (run_dir / "metrics.jsonl").read_text(encoding="utf-8")
    write_text_atomic(home / "metrics.jsonl", lines[: lines.rfind("\n") + 1])
    copies.copy(path, copied)
    try:
        checkpoint.read(copied)
    except checkpoint.BROKEN as error:
        copied.unlink(missing_ok=True)
        raise WorkError(f"its copy is broken ({error})") from None
    checkpoint.prune(copied.parent, keep)


def _newest(waiting: queue.SimpleQueue[Path | None]) -> Path | None:
    """Waits for one, and passes over those before the newest; what waits at the end still goes."""
    path = waiting.get()
    while path is not None and not waiting.empty():
        following = waiting.get()
        if following is None:
            waiting.put(None)
            break
        path = following
    return path
