"""LOG becomes files, from where the last export ended. Shell.

Where LOG's age, or damage, has made a gap, a new segment begins, with the state that an import needs to
begin there: the oldest checkpoint behind the gap, else what STATE holds now.

How it fails:
- Killed: what was committed counts, and the next run goes on there.
- NATS away: Unavailable; what was read until then is kept.
- The folder holds another log, or more of this one than LOG does: Failure, and nothing is written.
"""

import shlex
from collections.abc import Callable

from msgspec import Struct

from services.fleet.telling.moments import AtSequence, Moment
from services.journal.folder import Base, Folder, Manifest, Segment
from services.journal.standing import Standing, standing
from services.log import bases, checkpoint
from services.log.connect import Connection
from services.log.documents import read_documents
from services.log.history import bounds, read_range, sequence_at
from services.log.stored import Stored
from services.runtime.failure import Exit, Failure

COMMIT_EVENTS = 20_000
"""So much work is done anew after a kill; a few megabytes."""

Say = Callable[[str], None]


class Span(Struct, frozen=True):
    """What was asked for; None: as far as LOG goes."""

    since: Moment | None = None
    until: Moment | None = None


class Export:
    """`run` once."""

    def __init__(self, connection: Connection, folder: Folder, say: Say) -> None:
        """`say` is told what a person should know, a line each."""
        self._connection = connection
        self._folder = folder
        self._say = say

    async def run(self, span: Span) -> int:
        """How many events were added. Raises Failure, Unavailable, Torn, OSError."""
        found = await standing(self._connection)
        self._check(found)
        first = await self._first(span, found)
        before = self._folder.manifest.events
        until = None if span.until is None else await self._last_at(span.until)
        next_ = first if first <= found.bounds.last else None
        while next_ is not None and (until is None or next_ <= until):
            if next_ != self._folder.manifest.last + 1 or not self._folder.manifest.segments:
                await self._begin(next_, until, found)
            self._folder.follow(found.genesis.log_id)
            next_ = await self._read(next_, until)
        self._say_what_it_lacks()
        return self._folder.manifest.events - before

    def _say_what_it_lacks(self) -> None:
        held = self._folder.manifest
        if held.segments and (lacks := held.lacks):
            self._say(f"{self._folder.path} can be read, and not imported: {lacks}")

    def _check(self, found: Standing) -> None:
        held, log_id = self._folder.manifest, found.genesis.log_id
        of_this = log_id in held.logs or any(found.genesis.succeeds(log) for log in held.logs)
        if held.logs and not of_this:
            raise Failure(
                Exit.REFUSED,
                "another_log",
                f"{self._folder.path} holds log {held.logs[-1]}, this is log {log_id}",
                why="one folder holds one log and those that it goes on from",
                steps=["flotilla journal export ANOTHER-FOLDER"],
            )
        if found.bounds.last < held.last:
            raise Failure(
                Exit.REFUSED,
                "log_shortened",
                f"{self._folder.path} goes to {held.last}, LOG ends at {found.bounds.last}",
                why="the log was shortened, or an older copy of it stands there",
                steps=["flotilla journal recover"],
            )

    async def _first(self, span: Span, found: Standing) -> int:
        held = self._folder.manifest
        first = max(found.bounds.first, held.last + 1)
        if span.since is None:
            return first
        wanted = max(found.bounds.first, await self._first_at(span.since))
        if held.segments and not held.segments[0].first <= wanted <= held.last + 1:
            raise Failure(
                Exit.REFUSED,
                "not_since",
                f"{self._folder.path} holds {held.segments[0].first} to {held.last}, "
                f"--since begins at {wanted}",
                why="an export goes on where the last one ended, and fills in nothing before or between",
                steps=[
                    f"flotilla journal export {shlex.quote(str(self._folder.path))}",
                    f"flotilla journal export ANOTHER-FOLDER --since {wanted}",
                ],
            )
        return max(first, wanted)

    async def _first_at(self, moment: Moment) -> int:
        if isinstance(moment, AtSequence):
            return moment.sequence
        return await sequence_at(self._connection, moment.seconds) + 1

    async def _last_at(self, moment: Moment) -> int:
        if isinstance(moment, AtSequence):
            return moment.sequence
        return await sequence_at(self._connection, moment.seconds)

    async def _begin(self, first: int, until: int | None, found: Standing) -> None:
        held = self._folder.manifest
        if held.segments:
            self._say(f"gap: LOG no longer holds {held.last + 1} to {first - 1}")
        elif first > 1:
            self._say(f"the journal begins at {first}")
        if await bases.begins_whole(self._connection, first):
            self._folder.begin(found.genesis.log_id, Segment(first, None, whole=True), [])
            return
        base, documents = await self._base(first, until)
        if base is not None:
            self._say(f"{base.documents} documents as of {base.sequence} are in {base.name}")
        segment = Segment(first, base, whole=base is not None)
        self._folder.begin(found.genesis.log_id, segment, documents)

    async def _base(self, first: int, until: int | None) -> tuple[Base | None, list[Stored]]:
        """The state at a sequence from which on the events are there."""
        for each in reversed(await bases.usable(self._connection)):
            if each.sequence >= first - 1 and (until is None or each.sequence <= until):
                try:
                    documents = await checkpoint.read(self._connection, each)
                except ValueError as error:
                    self._say(f"the checkpoint at {each.sequence} is of no use: {error}")
                else:
                    return _base(each.sequence, documents), documents
        if until is not None:
            return None, []
        documents, state = await read_documents(self._connection)
        in_force = [stored for stored in documents if stored.sequence >= state.began]
        return _base(state.sequence, in_force), in_force

    async def _read(self, first: int, until: int | None) -> int | None:
        """To LOG's end. Returns where it goes on behind a hole; None: there was none."""
        last = (await bounds(self._connection)).last
        end = last if until is None else min(last, until)
        added = 0
        try:
            async for batch in read_range(self._connection, first, end):
                for stored in batch:
                    if stored.sequence != first:
                        return stored.sequence
                    self._folder.add(stored)
                    first, added = first + 1, added + 1
                    if added % COMMIT_EVENTS == 0:
                        self._folder.commit()
        finally:
            self._folder.commit()
        return None


def _base(sequence: int, documents: list[Stored]) -> Base:
    return Base(f"base-{sequence}.jsonl.gz", sequence, len(documents))


def summary(manifest: Manifest) -> str:
    """For people."""
    first = manifest.segments[-1].first if manifest.segments else 0
    return (
        f"{manifest.events} events to {manifest.last} in {len(manifest.files)} files; "
        f"without a gap from {first}"
    )
