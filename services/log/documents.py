"""The state as the server keeps it: every subject's last document, and what bad ones stand on.

STATE has one message a subject. Where that one cannot be read or understood, an earlier one is still
in force: it is read from LOG, if its age has left it there. So the result is as if every event up to
S had been folded.

How it fails: as `services.log.snapshot` does; Unavailable, and the caller asks again.
"""

import asyncio
from collections.abc import Sequence

from schemas import subjects
from services.fleet.families import family_of
from services.fleet.state import FleetState
from services.log.connect import Connection
from services.log.snapshot import read_history, read_state
from services.log.stored import Stored

FOLD_AT_ONCE = 500
"""Documents folded without a pause, about 3 ms: a leader that reads the past stays live."""


async def read_documents(connection: Connection) -> tuple[list[Stored], FleetState]:
    """In LOG's order, and folded; the state's sequence is S, the highest one in STATE."""
    documents, newest = await read_state(connection)
    # The last genesis may be a stranger's: which one is in force, only all of them tell.
    geneses = await read_history(connection, subjects.GENESIS, newest + 1)
    documents = _in_order([*geneses, *documents])
    state = FleetState()
    await fold(state, documents)
    earlier = [
        stored
        for subject, sequence in superseded(state)
        for stored in await read_history(connection, subject, sequence)
    ]
    if not earlier:
        return documents, state
    documents = _in_order([*earlier, *documents])
    state = FleetState()
    await fold(state, documents)
    return documents, state


def _in_order(documents: list[Stored]) -> list[Stored]:
    """Each once, though it was read from LOG and from STATE."""
    by_sequence = {stored.sequence: stored for stored in documents}
    return [by_sequence[sequence] for sequence in sorted(by_sequence)]


async def fold(state: FleetState, documents: Sequence[Stored]) -> None:
    """Apply them in their order, with pauses for whoever shares the event loop."""
    for start in range(0, len(documents), FOLD_AT_ONCE):
        for stored in documents[start : start + FOLD_AT_ONCE]:
            state.apply(stored.sequence, stored.subject, stored.payload)
        await asyncio.sleep(0)


def superseded(state: FleetState) -> list[tuple[str, int]]:
    """Subjects whose last message holds nothing for this version, and where it stands: a good one
    before it is still in force."""
    bad = {subject: found.sequence for subject, found in state.unreadable.items()}
    for subject, found in state.unknown.items():
        if family_of(subject) is not None:
            bad[subject] = found.sequence
    return sorted(bad.items())
