"""The state as the server keeps it: every subject's last document, and what bad ones stand on.

STATE has one message a subject. Where that one cannot be read or understood, an earlier one is still
in force: it is read from LOG, if its age has left it there. So the result is as if every event up to
S had been folded.

How it fails: as `services.log.snapshot` does; Unavailable, and the caller asks again.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from itertools import pairwise

from schemas import subjects
from services.fleet.state import FleetState
from services.log.connect import Connection
from services.log.snapshot import read_history, read_state_in_parts
from services.log.stored import Stored

FOLD_AT_ONCE = 500
"""Documents folded without a pause, about 3 ms: a leader that reads the past stays live."""


async def read_documents(connection: Connection) -> tuple[list[Stored], FleetState]:
    """In LOG's order, and folded; the state's sequence is S, the highest one in STATE."""
    documents: list[Stored] = []
    state, in_order = await _fold_as_it_comes(connection, documents.extend)
    # The last genesis may be a stranger's: which one is in force, only all of them tell.
    geneses = await read_history(connection, subjects.GENESIS, state.sequence + 1)
    if not in_order or not _are_known(geneses, state):
        documents, state = await _fold_anew([*geneses, *documents])
    earlier = [
        stored
        for subject, sequence in superseded(state)
        for stored in await read_history(connection, subject, sequence)
    ]
    return await _fold_anew([*earlier, *documents]) if earlier else (documents, state)


async def read_current(connection: Connection) -> FleetState:
    """The state alone: of the documents nothing is kept, which of a large fleet are 80 MB."""
    state, in_order = await _fold_as_it_comes(connection, lambda _: None)
    geneses = await read_history(connection, subjects.GENESIS, state.sequence + 1)
    if in_order and _are_known(geneses, state) and not superseded(state):
        return state
    _, state = await read_documents(connection)
    return state


async def _fold_as_it_comes(
    connection: Connection, take: Callable[[list[Stored]], None]
) -> tuple[FleetState, bool]:
    """While one part is folded, the server sends the next. Whether all came in LOG's order."""
    state, in_order = FleetState(), True
    async with aclosing(read_state_in_parts(connection)) as parts:
        async for part in parts:
            sequences = [state.sequence, *(stored.sequence for stored in part)]
            in_order = in_order and all(one < next_ for one, next_ in pairwise(sequences))
            await fold(state, part)
            take(part)
    return state, in_order


def _are_known(geneses: Sequence[Stored], state: FleetState) -> bool:
    """LOG has no other genesis than the one that STATE has: the rule, in a log never recovered."""
    return {genesis.sequence for genesis in geneses} <= {state.began}


async def _fold_anew(documents: list[Stored]) -> tuple[list[Stored], FleetState]:
    documents, state = _in_order(documents), FleetState()
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
    bad |= {subject: found.sequence for subject, found in state.unknown.items()}
    return sorted(bad.items())
