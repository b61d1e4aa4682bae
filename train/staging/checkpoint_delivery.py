"""Copies checkpoints from the node-local disk home, to storage that outlives the job, while
training continues.

If several checkpoints wait, only the newest is delivered. A checkpoint that cannot be delivered is
a warning as long as another may follow; at the end it is an error.
"""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from namsa.base.errors import InputError, WorkError
from namsa.base.files import read_text, write_text_atomic
from namsa.base.json_files import LARGEST_FILE_BYTES

from ..measure import rows
from ..measure.results import LARGEST_METRICS_BYTES
from ..optimization import checkpoint
from ..tasks.validation import BEST
from . import copies


@contextmanager
def background_delivery(
    run_dir: Path, home: Path | None, keep: int
) -> Iterator[Callable[[Path], None]]:
    """Delivers checkpoints home, if there is one, in a background thread. Leaving the context waits
    for the last one.

    Yields:
        A function that is given the path of a checkpoint to deliver.

    Raises:
        WorkError: If the last checkpoint was not delivered; not if the context is left by another
            exception.
    """
    if home is None:
        yield lambda path: None
        return
    newest: Path | None = None
    delivery: Future[None] | None = None  # of the newest

    def deliver_newest(path: Path) -> None:
        if path != newest:  # which waits behind it
            return
        try:
            deliver(path, run_dir, home, keep)
        except (InputError, WorkError, OSError) as error:
            print(
                f"warning: {path.name} has not reached {home}: {error}", file=sys.stderr, flush=True
            )
            message = (
                f"the last checkpoint has not reached {home} and is only in {run_dir}: {error}"
            )
            raise WorkError(message) from None

    def put(path: Path) -> None:
        nonlocal newest, delivery
        newest = path
        delivery = pool.submit(deliver_newest, path)

    with ThreadPoolExecutor(1, "delivery") as pool:
        yield put
    if delivery:
        delivery.result()


def deliver(path: Path, run_dir: Path, home: Path, keep: int) -> None:
    """Copies a checkpoint home, after metrics and validations up to it, and removes all there but
    the newest.

    Raises:
        InputError: If the run directory's configuration or metrics cannot be read.
        WorkError: If a file cannot be written, or the copy cannot be read back.
    """
    copied = home / "checkpoints" / path.name
    copied.parent.mkdir(parents=True, exist_ok=True)
    write_text_atomic(
        home / "config.yaml", read_text(run_dir / "config.yaml", largest_bytes=LARGEST_FILE_BYTES)
    )
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
