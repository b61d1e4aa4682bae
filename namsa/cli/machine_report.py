"""The checks of a machine, as `namsa doctor` shows them."""

from dataclasses import asdict, dataclass
from typing import TypedDict


@dataclass(frozen=True)
class Check:
    """One thing that was looked for."""

    group: str  # what it is for: machine, simulation, training or ranks
    name: str  # what was looked for
    ok: bool  # whether it is there
    found: str  # what is there, or the reason why it is not
    remedy: str = ""  # the command that installs it
    # Whether namsa is at fault without it. What is not needed is a possibility that this machine
    # lacks.
    needed: bool = True
    # Addresses of the GPUs that were found, the same from every process of the machine.
    devices: tuple[str, ...] = ()
    memory_gib: float | None = None  # of the GPU with the least


class ReportJson(TypedDict):
    """A report as `namsa doctor --json` prints it; each check has the attributes of `Check`."""

    ok: bool
    checks: list[dict[str, object]]


@dataclass(frozen=True)
class Report:
    """All checks of a machine."""

    checks: tuple[Check, ...]  # the checks, in the order in which they are shown

    @property
    def ok(self) -> bool:
        """Whether nothing that is needed is missing."""
        return all(check.ok for check in self.checks if check.needed)

    def as_json(self) -> ReportJson:
        """Returns the report in JSON types."""
        checks = [asdict(check) | {"devices": list(check.devices)} for check in self.checks]
        return {"ok": self.ok, "checks": checks}
