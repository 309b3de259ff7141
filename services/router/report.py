"""What the router says of itself on the log: idle map and unreachable replicas, once a tick."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from schemas import codec, subjects
from schemas.documents import Document, Gone, RouterReport
from schemas.ids import ModelName, ReplicaId, RouterId
from services.router.endpoints import Table
from services.router.idle import LastUsed, Uses, report

EVENT = "router.reported"
EVENT_GONE = "router.shortened"


class Writer(Protocol):
    """Of `services.log.write`: returns at once."""

    def put(self, subject: str, event_type: str, document: Document) -> None: ...


class Reporter:
    """Writes what has changed since the last tick."""

    def __init__(
        self, router: RouterId, incarnation: str, since: float, table: Table, used: LastUsed
    ) -> None:
        """`since`: wall clock, when it began to watch."""
        self._router = router
        self._incarnation = incarnation
        self._since = codec.rfc3339(since)
        self._table = table
        self._used = used
        self._models: dict[ReplicaId, ModelName] = {}
        """Of replicas in the table, and of those that left it and whose use is remembered."""
        self._written: list[RouterReport] = []
        self._all = False
        self._doubted: set[str] = set()
        """Subjects where not what was told stands."""

    def again(self) -> None:
        """The next tick writes everything: somebody else may have written meanwhile."""
        self._all = True

    def check(self, standing: Mapping[str, RouterReport | None]) -> None:
        """What stands under this router's name: where that says nothing, the next tick tells it again.

        Nobody but this router would ever put right what stands in a chunk that it has no use for.
        """
        told = {subjects.router_report(self._router, chunk.chunk) for chunk in self._written}
        bad = {subject for subject, found in standing.items() if found is None}
        self._doubted = bad | (told - standing.keys())

    def tick(self, now: float) -> list[tuple[str, str, Document]]:
        """Subject, type and document of what to write now. `now`: wall clock."""
        chunks = report(
            self._router, self._incarnation, self._since, self._uses(now), self._unreachable()
        )
        before, self._written = self._written, chunks
        told = [subjects.router_report(self._router, chunk.chunk) for chunk in chunks]
        written: list[tuple[str, str, Document]] = [
            (subject, EVENT, chunk)
            for number, (subject, chunk) in enumerate(zip(told, chunks, strict=True))
            if self._all
            or number >= len(before)
            or before[number] != chunk
            or subject in self._doubted
        ]
        left = {subjects.router_report(self._router, n) for n in range(len(chunks), len(before))}
        over = sorted((left | self._doubted).difference(told))
        self._all, self._doubted = False, set()
        return written + [(subject, EVENT_GONE, Gone(id=self._router)) for subject in over]

    def _uses(self, now: float) -> Uses:
        """A replica that is busy is in use at this moment, in the table or not. Of a model that left
        the catalog only that is told; the rest is remembered in case that it returns.
        """
        busy = self._table.busy()
        for replica in busy:
            self._used.note(replica, now)
        watched = busy | {
            endpoint.replica: model.name for model, endpoint, _ in self._table.endpoints()
        }
        self._used.keep(watched.keys(), now)
        found: dict[ModelName, dict[ReplicaId, float | None]] = {}
        known, self._models = self._models | watched, {}
        for replica, model in known.items():
            used = self._used.of(replica)
            if used is None and replica not in watched:
                continue
            self._models[replica] = model
            if replica in busy or model in self._table.catalog.models:
                found.setdefault(model, {})[replica] = used
        return found

    def _unreachable(self) -> dict[ReplicaId, str]:
        return {
            endpoint.replica: live.breaker.reason
            for _, endpoint, live in self._table.endpoints()
            if live.breaker.opened_at is not None
        }

    async def run(self, seconds: float, wall: Callable[[], float], writer: Writer) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(seconds)
            for subject, kind, document in self.tick(wall()):
                writer.put(subject, kind, document)
