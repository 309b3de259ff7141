"""Files become LOG again, in an empty NATS. Shell.

Events keep their sequences: LOG is made so that its first message gets the right one. A journal that
does not begin with its log begins with the documents of its base that no later event replaces; they
take the sequences just below its first event. The epoch is left out: who claims next is the first.
Until all of it stands there, LOG is shut: agents, routers and controls that run meanwhile neither write
there nor take a part of it for the log.

How it fails:
- A file is not what was exported: Torn, before anything is written.
- LOG holds anything else: Failure, with numbers, and nothing is written.
- Killed, or NATS away: run again, it goes on where LOG ends, if what stands there is this journal.
  Until then LOG stays shut.
- Another import writes meanwhile: Failure. What stands there is no copy any more.
"""

import shlex
from collections.abc import Iterator, Sequence
from itertools import chain

from msgspec import Struct

from schemas import codec, subjects
from schemas.ids import LogId
from services.journal.export import Say
from services.journal.folder import Folder, Segment
from services.log import bases, checkpoint, streams
from services.log.connect import Connection
from services.log.history import Bounds, bounds, read_range
from services.log.restore import MAX_BATCH, MAX_BATCH_BYTES, NotAlone, restore
from services.log.stored import Stored
from services.runtime.failure import Exit, Failure

_EXPECTED = (streams.SYNC_UNKNOWN, streams.IMPORTING)
"""Said of a server that nobody was told how to ask, and of a LOG that an import has shut."""


class Journal(Struct, frozen=True):
    """What is to stand in LOG."""

    log: LogId
    first: int
    """LOG's first sequence."""
    last: int
    prefix: list[Stored]
    """Documents of the base, with the sequences that they get."""
    documents: list[Stored]
    """All of the base, with the sequences that they have in LOG then; empty: there is no base."""
    segment: Segment


def journal(folder: Folder) -> Journal:
    """The folder's last segment. Raises Failure, Torn."""
    held = folder.manifest
    if not held.segments or not held.files:
        raise Failure(Exit.NOT_FOUND, "no_journal", f"{folder.path} holds no exported journal")
    segment = held.segments[-1]
    if lacks := held.lacks:
        raise Failure(
            Exit.REFUSED,
            "not_whole",
            f"{folder.path} cannot be imported: {lacks}",
            why="it was exported with --since or --until, or an export of it was cut off",
            steps=[f"flotilla journal export {shlex.quote(str(folder.path))}"]
            if segment.whole
            else [],
        )
    documents = folder.base(segment.base) if segment.base is not None else []
    before = [
        each
        for each in documents
        if each.sequence < segment.first and each.subject != subjects.CONTROL_EPOCH
    ]
    first = segment.first - len(before)
    prefix = [
        Stored(first + number, each.subject, each.payload) for number, each in enumerate(before)
    ]
    behind = [each for each in documents if each.sequence >= segment.first]
    return Journal(held.logs[-1], first, held.last, prefix, [*prefix, *behind], segment)


class Import:
    """`run` once."""

    def __init__(self, connection: Connection, folder: Folder, say: Say) -> None:
        """`say` is told what a person should know, a line each."""
        self._connection = connection
        self._folder = folder
        self._say = say

    async def run(self) -> int:
        """How many messages were written. Raises Failure, Unavailable, ApiError, Torn."""
        wanted = journal(self._folder)
        self._folder.check(wanted.segment.first)
        for fault in await streams.create(self._connection, first=wanted.first, shut=True):
            if fault not in _EXPECTED:
                self._say(fault)
        done = await self._shut(wanted)
        if done >= wanted.first:
            self._say(f"LOG holds this journal to {done} already")
        await self._write(wanted, done)
        await self._checkpoint(wanted)
        await streams.open_log(self._connection)
        return wanted.last - done

    async def _shut(self, wanted: Journal) -> int:
        """As `_done`. A LOG that holds anything else, or all of it, stays as it is."""
        done = await self._done(wanted)
        if done == wanted.last:
            return done
        await streams.shut_log(self._connection)
        try:
            return await self._done(wanted)  # Somebody may have written until then.
        except Failure:
            await streams.open_log(self._connection)
            raise

    async def _write(self, wanted: Journal, done: int) -> None:
        try:
            for batch in _batches(self._items(wanted), done):
                await restore(self._connection, batch, subjects.IMPORT_ROOT)
        except NotAlone as error:
            raise Failure(
                Exit.REFUSED,
                "not_alone",
                f"another import writes into this log: {error}",
                why="what stands there now is no copy of either",
                steps=[f"nats stream rm {subjects.LOG}"],
            ) from error

    def _items(self, wanted: Journal) -> Iterator[Stored]:
        return chain(wanted.prefix, self._folder.events(wanted.segment.first))

    async def _done(self, wanted: Journal) -> int:
        """Up to where LOG holds this very journal; `first` - 1: it is empty."""
        found = await bounds(self._connection)
        if found.last < found.first and found.last == wanted.first - 1:
            return found.last
        if found.first != wanted.first or found.last > wanted.last:
            raise _not_empty(found, wanted)
        items = self._items(wanted)
        async for batch in read_range(self._connection, found.first, found.last):
            for there, each in zip(batch, items, strict=False):
                if not _same(there, each):
                    raise _not_empty(found, wanted, each.sequence)
        return found.last

    async def _checkpoint(self, wanted: Journal) -> None:
        """Of the base: before it, the state cannot be put together."""
        base = wanted.segment.base
        if base is None:
            return
        if any(each.sequence == base.sequence for each in await bases.usable(self._connection)):
            return
        at = codec.rfc3339((await bounds(self._connection)).first_stamp)
        await checkpoint.write(self._connection, wanted.log, base.sequence, at, wanted.documents)


def _same(there: Stored, wanted: Stored) -> bool:
    return (there.sequence, there.subject, there.payload) == (
        wanted.sequence,
        wanted.subject,
        wanted.payload,
    )


def _batches(items: Iterator[Stored], done: int) -> Iterator[Sequence[Stored]]:
    """Those behind `done`."""
    batch: list[Stored] = []
    size = 0
    for each in items:
        if each.sequence <= done:
            continue
        if batch and (len(batch) == MAX_BATCH or size + len(each.payload) > MAX_BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(each)
        size += len(each.payload)
    if batch:
        yield batch


def _not_empty(found: Bounds, wanted: Journal, differs: int = 0) -> Failure:
    """`differs`: the first sequence at which something else stands."""
    if found.last < found.first:
        return Failure(
            Exit.REFUSED,
            "log_in_use",
            f"LOG is empty and would go on at {found.last + 1}; the journal begins at {wanted.first}",
            why="sequences would not be those that were exported",
            steps=[f"nats stream rm {subjects.LOG}"],
        )
    where = f"; {differs} is the first that differs" if differs else ""
    return Failure(
        Exit.REFUSED,
        "log_in_use",
        f"LOG holds {found.last - found.first + 1} messages, {found.first} to {found.last}, "
        f"that are not this journal's{where}",
        why="a journal is imported into an empty NATS only",
    )
