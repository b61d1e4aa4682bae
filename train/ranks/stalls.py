"""Rules that find the ranks which cause a stall, and the message that names them.

A rank that is dead or stopped is silent. A rank that hangs is still heard, but it stays behind the
others, who wait for it in a collective.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MAX_NAMED = 8  # ranks in a message
# in the order of a step; an idle rank has no time limit
READING, STEPPING, WRITING, IDLE = range(4)
_PHASES = (
    "reads the samples of step {}",
    "is in step {}",
    "writes its results after step {}",
    "past step {}",
)


@dataclass(frozen=True)
class RankState:
    """The last state that is known of a rank; times in s of this process's clock."""

    step: int  # number of the step in the job
    phase: int  # `READING`, `STEPPING`, `WRITING` or `IDLE`
    since: float  # when the rank entered the phase
    heard: float  # when the rank was last heard

    def __str__(self) -> str:
        return _PHASES[self.phase].format(self.step)

    @property
    def place(self) -> tuple[int, int]:
        """Progress of the rank, in the order of steps."""
        return self.step, self.phase


def suspects(states: Mapping[int, RankState], now: float, silent_after_s: float) -> list[int]:
    """Finds the ranks that cause a stall.

    Args:
        silent_after_s: Time after which a rank that is not heard counts as silent.

    Returns:
        The silent ranks, else those that are behind; none if all are at the same place.
    """
    silent = [rank for rank, state in states.items() if now - state.heard > silent_after_s]
    if silent:
        return sorted(silent)
    last_place = min((state.place for state in states.values()), default=None)
    behind = [rank for rank, state in states.items() if state.place == last_place]
    if len(behind) == len(states):
        return []
    return sorted(behind)


def most_telling(
    states: Mapping[int, RankState], now: float, silent_after_s: float, most: int
) -> list[int]:
    """Returns the ranks that say most about a stall.

    Returns:
        The ranks that are longest silent, then those that are most behind, and one of the foremost
        of the others, so that `suspects` finds who is behind. All if they are no more than
        `most`.
    """

    def longest_silent_then_behind(rank: int) -> tuple[float, int, int, int]:
        state = states[rank]
        silence_s = now - state.heard
        if silence_s <= silent_after_s:
            silence_s = 0.0
        return -silence_s, state.step, state.phase, rank

    order = sorted(states, key=longest_silent_then_behind)
    if len(order) <= most:
        return order
    foremost = max(order[most - 1 :], key=lambda rank: states[rank].place)
    return [*order[: most - 1], foremost]


def describe(
    states: Mapping[int, RankState],
    hosts: Sequence[str],
    now: float,
    silent_after_s: float,
    verb: str = "stalled",
) -> str:
    """Returns one line that names the ranks that cause a stall, where they are and for how long."""
    ranks = suspects(states, now, silent_after_s)
    if not ranks:
        return _describe_all(states, len(hosts), now)
    named = []
    for rank in ranks[:MAX_NAMED]:
        state = states[rank]
        silence = ""
        if now - state.heard > silent_after_s:
            silence = f"silent since {now - state.heard:.0f} s, "
        place = f"{silence}{state} since {now - state.since:.0f} s"
        named.append(f"rank {rank} on {hosts[rank]} ({place})")
    more = ""
    if len(ranks) > MAX_NAMED:
        more = f" and {len(ranks) - MAX_NAMED} more"
    return f"{verb}: {', '.join(named)}{more}"


def _describe_all(states: Mapping[int, RankState], ranks: int, now: float) -> str:
    """Returns one line about ranks that are all at the same place."""
    rank = min(states)
    everyone = "every rank that is heard"
    if ranks == 1:
        everyone = f"rank {rank}"
    elif len(states) < ranks:
        everyone += f" (of {len(states)} of {ranks} ranks)"
    return f"{everyone} {states[rank]} since {now - states[rank].since:.0f} s"
