"""What reality_rivals.py has measured, in a file, and its table, also of an unfinished run."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from rich.console import Console
from rich.table import Table

from rivals.methods import SEARCH
from rivals.report import number

Row = dict[str, Any]  # of a case and a method
MISSING = "–"


class Results:
    """Rows in a JSON file, at most one for a case and a method. The file is written after each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[Row] = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []

    def row(self, case: str, method: str) -> Row | None:
        """The row of a case and a method, if there is one."""
        return next((row for row in self.rows if (row["case"], row["method"]) == (case, method)), None)

    def add(self, row: Row) -> None:
        """Puts a row in the place of the one of its case and method."""
        self.rows = [old for old in self.rows if (old["case"], old["method"]) != (row["case"], row["method"])] + [row]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self.path.with_suffix(".part")
        unfinished.write_text(json.dumps({"rows": self.rows}, indent=1), encoding="utf-8")
        unfinished.replace(self.path)

    def of(self, methods: Sequence[str], cases: Sequence[str]) -> list[Row]:
        """The rows of these methods and cases that there are, in this order."""
        found = (self.row(case, method) for case in cases for method in methods)
        return [row for row in found if row]


def show(rows: list[Row]) -> None:
    """Prints SSIM and own fit by case and method, means over the cases that all methods have, and what is missing."""
    cases, methods = (list(dict.fromkeys(row[key] for row in rows)) for key in ("case", "method"))
    by = {(row["case"], row["method"]): row for row in rows}
    complete = [case for case in cases if all((case, method) in by for method in methods)]
    table = Table("SSIM (own fit)", *methods, box=None)
    for case in cases:
        table.add_row(case, *(_cell(by.get((case, method))) for method in methods))

    def line(title: str, text: Callable[[list[Row]], str], among: list[str]) -> None:
        each = ([by[case, method] for case in among if (case, method) in by] for method in methods)
        table.add_row(title, *(text(of) if of else MISSING for of in each))

    line(f"mean of {len(complete)}", _means, complete)
    line("CPU s", lambda of: f"{mean(row['cpu_seconds'] for row in of):.3g}", complete)
    line("columns, rms pm", _columns, complete)
    line("residual kept out", _residual, complete)
    line("failed", lambda of: f"{sum(row['failed'] for row in of)} of {len(of)}", cases)
    console = Console(width=40 + 20 * len(methods))
    console.print(table)
    for method in methods:
        missing = [case for case in cases if (case, method) not in by]
        if missing:
            console.print(f"not measured: {method} on {', '.join(missing)}")


def _columns(of: list[Row]) -> str:
    """The mean error of column positions; rows of earlier versions have none."""
    errors = [error for row in of if (error := row.get("column_rms_angstrom")) is not None]
    return f"{100 * mean(errors):.2g}" if errors else MISSING


def _residual(of: list[Row]) -> str:
    """The mean residual at positions that were kept out; `MISSING` where a row has none."""
    found = [row.get("kept_out_residual") for row in of]
    return MISSING if None in found else f"{mean(found):.3f}"


def _cell(row: Row | None) -> str:
    if row is None:
        return MISSING
    return f"{number(row['ssim'])} ({number(row['own_ssim'])})" + " failed" * row["failed"]


def _means(rows: list[Row]) -> str:
    ssim, own = (mean(row[key] or 0.0 for row in rows) for key in ("ssim", "own_ssim"))
    return f"{number(ssim)} ({number(own)})"


def ratio(rows: list[Row]) -> float | None:
    """The best mean SSIM of ptychography over that of networks, on the cases that all methods have."""
    by_method: dict[str, dict[str, float]] = {}
    for row in rows:
        by_method.setdefault(row["method"], {})[row["case"]] = row["ssim"] or 0.0
    cases = set.intersection(*(set(values) for values in by_method.values())) if by_method else set()
    means = {method: mean(values[case] for case in cases) for method, values in by_method.items()} if cases else {}
    ptychography = [value for method, value in means.items() if method in SEARCH]
    networks = [value for method, value in means.items() if method not in SEARCH]
    return max(ptychography) / max(networks) if ptychography and networks else None
