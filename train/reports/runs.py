"""Reads the steps of finished and unfinished runs from their directories."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..measure.rows import Row, parsed

Numbers = npt.NDArray[np.float64]
Steps = Mapping[str, Numbers]  # columns of metrics.jsonl by name, each of shape (steps,)


def read_steps(
    path: Path, columns: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, Numbers]:
    """Reads columns of a `metrics.jsonl`. Rows may lack the optional ones.

    A resumed run may have taken a step twice: the last line of a step counts.

    Returns:
        By key one number per step, in the order of steps. null and a key that a row lacks become
            NaN.

    Raises:
        InputError: As of `train.measure.rows.parsed`.
    """

    def numbers(row: Row) -> tuple[int, list[float]] | None:
        if type(row.get("step")) is not int or not row.keys() >= set(columns):
            return None
        values = []
        for name in names:
            value = row.get(name)
            if value is None:
                value = np.nan
            if not isinstance(value, int | float):
                return None
            values.append(float(value))
        return row["step"], values

    names = (*columns, *optional)
    steps = dict(parsed(path, numbers, "step"))
    table = np.array([steps[step] for step in sorted(steps)]).reshape(-1, len(names))
    return dict(zip(names, table.T, strict=True))
