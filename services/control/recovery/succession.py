"""What a new log says of those before it, and how high it begins. Pure.

What a program says of a lost log that was not believed while the log stood is left out: as an ancestor
it would let programs move over that never followed a log of ours, and as a height it would take the
sequences away that are left.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from schemas.ids import LogId
from services.control.damage import Claim, Reported
from services.fleet.state import FleetState

OLDEST_ANCESTORS = 16
UNNAMED = LogId("0" * 32)
"""Parent of a log before which one was lost that nobody can name."""
MOST_AHEAD = 1_000_000_000
"""How far a lost log went beyond what control knew of it, at the most: at a thousand events a second, what
it had missed for eleven days. Who says more is not believed."""


def lineage(*known: Iterable[LogId | None]) -> tuple[LogId, ...]:
    """Every log that somebody may follow, newest first, each once. The first one is the parent."""
    found = dict.fromkeys(log for logs in known for log in logs if log is not None)
    return tuple(found)[:OLDEST_ANCESTORS] or (UNNAMED,)


def of_state(state: FleetState | None) -> Sequence[LogId]:
    """The log that a state is of, and those before."""
    held = None if state is None else state.genesis.get(())
    return [] if held is None else [held.document.log_id, *held.document.ancestors]


def followed(told: Mapping[str, LogId], doubts: Collection[Claim]) -> Iterator[LogId]:
    """What programs follow, by who says so."""
    lies = {(doubt.who, doubt.log) for doubt in doubts}
    return (log_id for who, log_id in told.items() if (who, log_id) not in lies)


def highest(known: int, reports: Iterable[Reported], doubts: Collection[Claim]) -> int:
    """What lies above it was seen by nobody. `known`: as far as control itself knows."""
    lies = {(doubt.who, doubt.log) for doubt in doubts}
    said = [report.highest for report in reports if (report.who, report.log) not in lies]
    return max([known, *(each for each in said if each <= known + MOST_AHEAD)])
