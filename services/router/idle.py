"""When each replica was last used, and the reports of it. Pure.

Noting a use costs the same whatever the number of replicas. Reports are cut by model so that each
document is whole and small enough; one that says what the last one said is not written again.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from schemas import codec
from schemas.documents import ModelUse, RouterReport
from schemas.ids import ModelName, ReplicaId, RouterId

CHUNK_BYTES = 256 << 10
KEPT_SECONDS = 86400.0
"""A use is remembered for so long after its replica left the table: it may come back, when its engine
has started again or its model is listed again, and must not pass for one that nobody used."""
_FRAME_BYTES = 1024
"""Of a chunk, for all that is not an entry."""
_ENTRY_OVERHEAD = 40
"""Of a model's first entry: keys, brackets, commas. Others take less."""


class LastUsed:
    """Seconds since 1970 of each replica's last use, by this router's clock."""

    __slots__ = ("_left", "_used")

    def __init__(self) -> None:
        self._used: dict[ReplicaId, float] = {}
        self._left: dict[ReplicaId, float] = {}
        """When those that are not in the table now were first missed there."""

    def note(self, replica: ReplicaId, now: float) -> None:
        """A request goes there, or one that went there has ended."""
        self._used[replica] = now

    def of(self, replica: ReplicaId) -> float | None:
        """None: not used since this router began to watch."""
        return self._used.get(replica)

    def keep(self, replicas: Collection[ReplicaId], now: float) -> None:
        """Forget others after KEPT_SECONDS without them."""
        left = {each: self._left.get(each, now) for each in self._used if each not in replicas}
        self._left = {each: since for each, since in left.items() if now - since <= KEPT_SECONDS}
        for replica in left.keys() - self._left.keys():
            del self._used[replica]


Uses = Mapping[ModelName, Mapping[ReplicaId, float | None]]
"""Every replica that this router watches or remembers a use of; None: without any use so far."""


def report(
    router: RouterId,
    incarnation: str,
    since: str,
    uses: Uses,
    unreachable: Mapping[ReplicaId, str],
) -> list[RouterReport]:
    """The chunks to write. A model stands in the map also if none of its replicas was used."""
    chunks = _cut(
        [_Entry(model, replica, at) for model in sorted(uses) for replica, at in _of(uses[model])]
        + [_Entry(None, replica, reason) for replica, reason in sorted(unreachable.items())]
    )
    return [
        RouterReport(
            router=router,
            incarnation=incarnation,
            since=since,
            chunk=number,
            chunks=len(chunks),
            use=_by_model(chunk),
            unreachable={e.replica: e.value for e in chunk if e.model is None and e.replica},
        )
        for number, chunk in enumerate(chunks)
    ]


class _Entry(NamedTuple):
    model: ModelName | None
    """None: an unreachable replica."""
    replica: ReplicaId | None
    """None: the model alone."""
    value: str

    @property
    def size(self) -> int:
        """Bytes it takes at most."""
        return _ENTRY_OVERHEAD + sum(len(codec.encode(part or "")) for part in self)


def _of(replicas: Mapping[ReplicaId, float | None]) -> list[tuple[ReplicaId | None, str]]:
    used = [(name, codec.rfc3339(at)) for name, at in sorted(replicas.items()) if at is not None]
    return [*used] or [(None, "")]


def _cut(entries: list[_Entry]) -> list[list[_Entry]]:
    chunks: list[list[_Entry]] = [[]]
    size = _FRAME_BYTES
    for entry in entries:
        if size + entry.size > CHUNK_BYTES:
            chunks.append([])
            size = _FRAME_BYTES
        chunks[-1].append(entry)
        size += entry.size
    return chunks


def _by_model(chunk: list[_Entry]) -> tuple[ModelUse, ...]:
    found: dict[ModelName, dict[ReplicaId, str]] = {}
    for entry in chunk:
        if entry.model is not None:
            used = found.setdefault(entry.model, {})
            if entry.replica is not None:
                used[entry.replica] = entry.value
    return tuple(ModelUse(model=model, last_used=used) for model, used in found.items())
