"""Is the log sound? Reads LOG through once, then STATE and the checkpoints. Shell.

How it fails: NATS away: Unavailable; what was found until then has been told.
"""

import asyncio
from collections.abc import Callable

from msgspec import Struct

from services.fleet.telling.moments import AtSequence, Moment
from services.journal.checks import Checker, Finding, compare
from services.journal.export import Say
from services.journal.standing import standing
from services.log import checkpoint
from services.log.connect import Connection
from services.log.history import bounds, read_range, sequence_at
from services.log.snapshot import read_state

PROGRESS_EVENTS = 100_000
SETTLE_SECONDS = 5.0
"""STATE follows LOG within milliseconds; one that takes longer does not follow it."""
POLL_SECONDS = 0.1


class Verified(Struct):
    """What was looked at, and how much of it was wrong."""

    first: int = 0
    last: int = 0
    events: int = 0
    documents: int = 0
    checkpoints: int = 0
    findings: int = 0


class Report(Struct, frozen=True):
    """For programs."""

    first: int
    last: int
    events: int
    documents: int
    checkpoints: int
    items: list[Finding]


class Verify:
    """`run` once."""

    def __init__(self, connection: Connection, tell: Callable[[Finding], None], say: Say) -> None:
        """`tell` gets each finding at once; `say` is told how far it is."""
        self._connection = connection
        self._tell = tell
        self._say = say
        self._found = Verified()

    async def run(self, since: Moment | None) -> Verified:
        """Raises Failure, Unavailable."""
        await standing(self._connection)
        found = await bounds(self._connection)
        first = max(found.first, await self._first_at(since))
        self._found.first, self._found.last = first, found.last
        checker = Checker(first)
        await self._log(checker, first, found.last)
        await self._state(checker, first, found.last)
        await self._checkpoints()
        return self._found

    async def _first_at(self, moment: Moment | None) -> int:
        if moment is None:
            return 0
        if isinstance(moment, AtSequence):
            return moment.sequence
        return await sequence_at(self._connection, moment.seconds) + 1

    def _report(self, found: list[Finding]) -> None:
        self._found.findings += len(found)
        for each in found:
            self._tell(each)

    async def _log(self, checker: Checker, first: int, last: int) -> None:
        async for batch in read_range(self._connection, first, last):
            for stored in batch:
                self._report(checker.check(stored))
                if checker.events % PROGRESS_EVENTS == 0:
                    self._say(f"{stored.sequence} of {last}")
        self._report(checker.end(last))
        self._found.events = checker.events

    async def _state(self, checker: Checker, first: int, head: int) -> None:
        newest = max((each.sequence for each in checker.last.values()), default=0)
        clock = asyncio.get_running_loop().time
        give_up = clock() + SETTLE_SECONDS
        state, applied = await read_state(self._connection)
        while applied < newest and clock() < give_up:
            await asyncio.sleep(POLL_SECONDS)
            state, applied = await read_state(self._connection)
        self._found.documents = len(state)
        self._report(compare(checker.last, state, first, head))

    async def _checkpoints(self) -> None:
        for each in await checkpoint.complete(self._connection):
            self._found.checkpoints += 1
            try:
                await checkpoint.read(self._connection, each)
            except ValueError as error:
                reason = f"the checkpoint of {each.at} is of no use: {error}"
                self._report([Finding(each.sequence, "checkpoint", reason)])


def report(found: Verified, findings: list[Finding]) -> Report:
    """All of it."""
    return Report(
        found.first, found.last, found.events, found.documents, found.checkpoints, findings
    )


def summary(found: Verified) -> str:
    """For people."""
    return (
        f"{found.findings} findings in {found.events} events ({found.first} to {found.last}), "
        f"{found.documents} documents, {found.checkpoints} checkpoints"
    )
