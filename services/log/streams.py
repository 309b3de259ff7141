"""The streams of the log: what they are, who makes them, how long the log is.

Only control creates them; everybody else waits.

How it fails:
- A stream stands there with other settings: ours are put right, others are left as they are. What the
  server refuses to change is a fault that names the setting; nothing is deleted to get our way.
- A cluster has too few servers for the copies wanted: a fault; no stream is made with fewer.
- A stream of a cluster has no leader, or a server does not know it: Unavailable. Its answer would be what
  its own copy holds, and that may be far behind what others have acknowledged. One whose copy is
  broken (seen after kill -9) answers beside the leader for good, so several answers are asked for.
- NATS away: Unavailable, from `create`, `exists` and `head`; `wait` waits.
"""

import asyncio
from typing import Any

from msgspec import Struct

from schemas import codec, subjects
from services.log import api
from services.log.api import ApiError
from services.log.connect import Connection
from services.log.message import Unavailable
from services.log.monitor import set_up

_SECOND = 1_000_000_000
_DAY = 24 * 3600 * _SECOND
_KIB = 1024
_MIB = 1024 * _KIB

POLL_SECONDS = 0.25
ASKED_AT_MOST = 5
LEADERLESS_SECONDS = 0.1
"""Between two questions to a stream that has no leader."""
KEPT_SECONDS = 30 * 24 * 3600.0
"""LOG's history."""
SYNC_UNKNOWN = (
    "sync_interval cannot be read (control.nats-monitor says where): unless the server has `always`, "
    "a power cut may lose up to two minutes of acknowledged writes"
)
SYNC_NOT_ALWAYS = (
    "the server's sync_interval is not `always`: a power cut may lose acknowledged writes"
)
ONE_COPY = (
    "the streams have one copy in a cluster of NATS servers: without that server the log is away, and "
    "lost if its disk is (control.log-replicas)"
)
NO_SNAPSHOT_SOURCES = (
    "the server runs without feature_flags { js_snapshot_sources: true }: after a change of its leader "
    f"{subjects.STATE} may be fed old documents once more"
)
IMPORTING = (
    f"an import writes {subjects.LOG}: until it has ended, nobody else writes there or reads it"
)
COPIES = 3
"""Of each stream in a cluster, unless told otherwise."""

_LOG: dict[str, Any] = {
    "name": subjects.LOG,
    "subjects": [subjects.LOG_ROOT + ">"],
    "compression": "s2",
    "max_age": int(KEPT_SECONDS) * _SECOND,
    "max_msg_size": _MIB,
    "duplicate_window": 120 * _SECOND,
    "allow_direct": True,
    "allow_atomic": True,
    "deny_delete": True,
    "deny_purge": True,
    "republish": {"src": subjects.LOG_ROOT + ">", "dest": subjects.LIVE_ROOT + ">"},
}
_STATE: dict[str, Any] = {
    "name": subjects.STATE,
    "sources": [{"name": subjects.LOG, "filter_subject": subjects.STATE_ROOT + ">"}],
    "max_msgs_per_subject": 1,
    "duplicate_window": _SECOND // 10,  # Its memory grows with the ids in it.
    "allow_direct": True,
}
_TAILS: dict[str, Any] = {
    "name": subjects.TAILS,
    "subjects": [subjects.TAIL_ROOT + ">"],
    "compression": "s2",
    "max_msgs_per_subject": 20,
    "max_age": 3 * _DAY,
    "max_bytes": 1024 * _MIB,
    "max_msg_size": 65 * _KIB,  # 64 KiB of log and the headers.
    "allow_direct": True,
}
_CHECKPOINT: dict[str, Any] = {
    "name": subjects.CHECKPOINT,
    "subjects": [subjects.CHECKPOINT_ROOT + ">"],
    "compression": "s2",
    "max_age": 35 * _DAY,
    "max_msg_size": 513 * _KIB,
    "allow_direct": True,
}
_ALL = (_LOG, _STATE, _TAILS, _CHECKPOINT)
_SHUT: dict[str, Any] = {
    "subjects": [subjects.IMPORT_ROOT + ">"],
    "subject_transform": {"src": subjects.IMPORT_ROOT + ">", "dest": subjects.LOG_ROOT + ">"},
    "allow_direct": False,
    "republish": None,
}
"""A LOG that only an import writes: other writes go nowhere, and nobody is told what log this is."""
_MARK = "flotilla.import"
"""In the metadata of such a LOG."""
_CLUSTERED = {"compression": "none"}
"""A copy that is compressed may be broken for good by a kill -9 of its server (measured, 2.15.1)."""


class StreamState(Struct, frozen=True):
    """Of JetStream's answer, what is used here."""

    last_seq: int
    last_ts: str


class Copies(Struct, frozen=True):
    """Of JetStream's answer, what is used here: who keeps a stream together."""

    leader: str = ""
    replicas: tuple[dict[str, Any], ...] = ()
    """The others."""


class StreamInfo(Struct, frozen=True):
    """Of JetStream's answer, what is used here."""

    config: dict[str, Any]
    state: StreamState
    ts: str = ""
    cluster: Copies = Copies()


class Head(Struct, frozen=True):
    """The newest message of LOG. Times in seconds, by the server's clock."""

    sequence: int
    stamp: float
    """When it was stored; 0.0 for an empty log."""
    server_now: float


async def create(
    connection: Connection,
    replicas: int | None = None,
    monitor: tuple[str, int] | None = None,
    first: int = 1,
    *,
    shut: bool = False,
) -> list[str]:
    """Make the streams, or put right those that stand there. Returns faults and warnings for people.

    `replicas`: copies of each; None: 3 in a cluster of servers, 1 on a server that stands alone, and
    never fewer than a stream has. `monitor`: host and port of the server's monitoring, if it has one.
    `first`: where LOG's sequences begin if it is made now; `shut`: for an import then, see `shut_log`.
    """
    if not connection.connected:
        raise Unavailable("no connection to NATS")
    clustered = connection.cluster != ""
    least = COPIES if clustered else 1
    faults: list[str] = []
    for ours in _ALL:
        copies = least if replicas is None else replicas
        wanted = ours | {"storage": "file", "num_replicas": copies}
        wanted |= _CLUSTERED if clustered else {}
        begins = _begins(first, shut) if ours is _LOG else {}
        faults += await _create(connection, wanted, begins, may_have_more=replicas is None)
    single = [ONE_COPY] if clustered and replicas == 1 else []
    return [*faults, *single, *await _set_up_faults(monitor, clustered)]


def _begins(first: int, shut: bool) -> dict[str, Any]:
    """Of a LOG that is made now."""
    sequence = {"first_seq": first} if first > 1 else {}
    return sequence | (_SHUT | {"metadata": {_MARK: "yes"}} if shut else {})


async def shut_log(connection: Connection) -> None:
    """Until `open_log`, only `restore` writes LOG, and no document can be got from it.

    Others that run meanwhile find NATS away, as far as the log goes: a genesis whose log is not whole
    yet is not believed, and nothing is written in between. Raises ApiError, Unavailable.
    """
    found = await _config(connection, subjects.LOG)
    marked = {"metadata": found.get("metadata", {}) | {_MARK: "yes"}}
    await api.call(connection, f"STREAM.UPDATE.{subjects.LOG}", found | _SHUT | marked, StreamInfo)


async def open_log(connection: Connection) -> None:
    """For everybody, also where it was never shut. Raises ApiError, Unavailable."""
    found = await _config(connection, subjects.LOG)
    if not _is_shut(found):
        return
    metadata = {key: value for key, value in found["metadata"].items() if key != _MARK}
    ours = {key: _LOG[key] for key in _SHUT if key in _LOG}
    opened = found | ours | {"metadata": metadata, "subject_transform": None}
    await api.call(connection, f"STREAM.UPDATE.{subjects.LOG}", opened, StreamInfo)


def _is_shut(config: dict[str, Any]) -> bool:
    return _MARK in config.get("metadata", {})


async def _config(connection: Connection, name: str) -> dict[str, Any]:
    return (await api.call(connection, f"STREAM.INFO.{name}", None, StreamInfo)).config


async def _set_up_faults(monitor: tuple[str, int] | None, clustered: bool) -> list[str]:
    found = await set_up(*monitor) if monitor else None
    if found is None:
        return [SYNC_UNKNOWN]
    unsynced = [] if found.sync_always else [SYNC_NOT_ALWAYS]
    return (
        [*unsynced, NO_SNAPSHOT_SOURCES] if clustered and not found.snapshot_sources else unsynced
    )


async def _create(
    connection: Connection, wanted: dict[str, Any], begins: dict[str, Any], may_have_more: bool
) -> list[str]:
    name, copies = wanted["name"], wanted["num_replicas"]
    try:
        await api.call(connection, f"STREAM.CREATE.{name}", wanted | begins, StreamInfo)
    except ApiError as error:
        if error.code == api.STREAM_NAME_IN_USE:
            return await _put_right(connection, wanted, may_have_more)
        return [f"stream {name} cannot be created with num_replicas {copies}: {error}"]
    return []


async def _put_right(
    connection: Connection, wanted: dict[str, Any], may_have_more: bool
) -> list[str]:
    name = wanted["name"]
    found = await _config(connection, name)
    if _is_shut(found):
        return [IMPORTING]
    if may_have_more:
        wanted |= {"num_replicas": max(wanted["num_replicas"], found["num_replicas"])}
    wrong = [key for key, value in wanted.items() if found.get(key) != value]
    if not wrong:
        return []
    try:
        await api.call(connection, f"STREAM.UPDATE.{name}", found | wanted, StreamInfo)
    except ApiError as error:
        differs = ", ".join(f"{key} is {found.get(key)}, not {wanted[key]}" for key in wrong)
        return [f"stream {name}: {differs}; the server refuses to change it: {error}"]
    return []


async def exists(connection: Connection) -> bool:
    """Whether LOG and STATE are there."""
    for name in (subjects.LOG, subjects.STATE):
        if await _info(connection, name) is None:
            return False
    return True


async def has(connection: Connection, name: str) -> bool:
    """Whether the server has a stream of this name."""
    return await _info(connection, name) is not None


async def wait(connection: Connection) -> None:
    """Returns once LOG and STATE are there."""
    while True:
        try:
            if await exists(connection):
                return
        except Unavailable:
            await connection.wait_connected()
        await asyncio.sleep(POLL_SECONDS)


class _SubjectsState(Struct, frozen=True):
    subjects: dict[str, int] = {}


class _SubjectsInfo(Struct, frozen=True):
    state: _SubjectsState


async def subjects_in(connection: Connection, pattern: str) -> set[str]:
    """Log subjects below `pattern` that LOG or STATE holds a message of; STATE may be behind LOG.

    Raises Unavailable. A stream that is not there holds none.
    """
    found: set[str] = set()
    for name in (subjects.LOG, subjects.STATE):
        try:
            body = {"subjects_filter": pattern}
            answer = await api.call(connection, f"STREAM.INFO.{name}", body, _SubjectsInfo)
        except ApiError as error:
            if error.code != api.STREAM_NOT_FOUND:
                raise Unavailable(f"stream {name}: {error}") from error
        else:
            found.update(answer.state.subjects)
    return found


async def head(connection: Connection) -> int:
    """Sequence of LOG's newest message, 0 for an empty log. LogMissing if there is none."""
    return (await newest(connection)).sequence


async def newest(connection: Connection) -> Head:
    """LOG's newest message and the server's clock. LogMissing if there is no LOG."""
    found = await _info(connection, subjects.LOG)
    if found is None:
        raise LogMissing
    stamp = codec.seconds(found.state.last_ts) if found.state.last_seq else 0.0
    return Head(found.state.last_seq, stamp, codec.seconds(found.ts))


async def _info(connection: Connection, name: str) -> StreamInfo | None:
    """As the stream's leader tells it."""
    for _ in range(ASKED_AT_MOST):
        try:
            found = await api.call(connection, f"STREAM.INFO.{name}", None, StreamInfo)
        except ApiError as error:
            if error.code == api.STREAM_NOT_FOUND:
                return None
            raise Unavailable(f"stream {name}: {error}") from error
        if found.cluster.leader or not found.cluster.replicas:
            return found
        await asyncio.sleep(LEADERLESS_SECONDS)
    raise Unavailable(f"stream {name} has no leader")


class LogDamaged(Exception):
    """LOG is not the log that was read before. Nobody acts on it; what runs goes on."""


class LogMissing(LogDamaged):
    """The server says that there is no LOG."""

    def __init__(self) -> None:
        super().__init__(f"stream {subjects.LOG} does not exist")


class LogRewound(LogDamaged):
    """LOG ends below what was already read from it."""

    def __init__(self, newest: int, applied: int) -> None:
        super().__init__(f"{subjects.LOG} ends at {newest}, but {applied} was read from it before")
        self.newest = newest
        self.applied = applied
