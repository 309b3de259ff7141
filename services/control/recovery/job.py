"""A recovery on disk: what was chosen and what is taken over, so that a kill costs nothing.

Written before the new log begins, removed once it has a catalog.

How it fails: a file that cannot be read, or that is of another log, counts as none; the recovery then
waits for an operator to choose a way again. A disk that refuses to keep one: OSError, before anything
was begun; one that refuses to remove it: said, and the file is removed by the next recovery.
"""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import msgspec
import structlog
from msgspec import Raw, Struct

from schemas import codec
from schemas.documents import CatalogRevision, Document, Gone
from schemas.ids import LogId
from services.control.commanding.commands import Actor
from services.control.recovery.handover import Base, Carried, struct_of
from services.runtime.files import read_if_there, write_atomically

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_GONE = b'{"gone":true'


class Job(Struct, frozen=True, kw_only=True):
    """One recovery."""

    log: LogId
    """The log that it begins."""
    told: str
    """What it is made from."""
    actor: Actor
    reason: str
    revision: CatalogRevision
    base: Base


class _Row(Struct, frozen=True):
    subject: str
    type: str
    data: Raw


class _Stored(Struct, frozen=True, kw_only=True):
    log: LogId
    told: str
    actor: Actor
    reason: str
    revision: CatalogRevision
    carried: tuple[_Row, ...]
    of_agents: tuple[_Row, ...]
    replicas: tuple[_Row, ...]


class JobFile:
    """The recovery that this control carries out, if it does."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.job = _read(read_if_there(path))

    async def keep(self, job: Job) -> None:
        """Durable when it returns. Raises OSError."""
        await asyncio.to_thread(write_atomically, self._path, codec.encode(_stored(job)), 0o600)
        self.job = job

    async def forget(self) -> None:
        """It is over. A file that a disk keeps is of no log that recovers any more, and counts as none."""
        self.job = None
        try:
            await asyncio.to_thread(self._path.unlink, missing_ok=True)
        except OSError as error:
            log.error("recovery.not_forgotten", path=str(self._path), reason=str(error))  # noqa: TRY400


def _stored(job: Job) -> _Stored:
    return _Stored(
        log=job.log,
        told=job.told,
        actor=job.actor,
        reason=job.reason,
        revision=job.revision,
        carried=_rows(job.base.carried),
        of_agents=_rows(job.base.of_agents),
        replicas=_rows(job.base.replicas),
    )


def _rows(documents: Iterable[Carried]) -> tuple[_Row, ...]:
    return tuple(_Row(each.subject, each.type, codec.raw(each.document)) for each in documents)


def _read(content: bytes | None) -> Job | None:
    if content is None:
        return None
    try:
        found = codec.decode(content, _Stored)
        base = Base(*(_carried(rows) for rows in (found.carried, found.of_agents, found.replicas)))
    except (msgspec.DecodeError, ValueError):
        return None
    return Job(
        log=found.log,
        told=found.told,
        actor=found.actor,
        reason=found.reason,
        revision=found.revision,
        base=base,
    )


def _carried(rows: Iterable[_Row]) -> tuple[Carried, ...]:
    return tuple(Carried(row.subject, row.type, _document(row)) for row in rows)


def _document(row: _Row) -> Document:
    kind = Gone if bytes(row.data).startswith(_GONE) else struct_of(row.subject)
    return codec.decode(row.data, kind)
