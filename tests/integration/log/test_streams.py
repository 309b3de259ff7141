"""The streams on a real server: made, put right, refused, waited for."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from schemas import subjects
from services.log import api, streams
from services.log.connect import Connection
from services.log.message import Unavailable
from tests.support.nats_server import NatsServer
from tests.support.ports import free_port

DAY = 24 * 3600 * 1_000_000_000


async def config_of(connection: Connection, name: str) -> dict[str, Any]:
    return (await api.call(connection, f"STREAM.INFO.{name}", None, streams.StreamInfo)).config


async def test_makes_the_streams_as_designed(connection: Connection) -> None:
    # spec: L6
    assert await streams.create(connection) == [streams.SYNC_UNKNOWN]
    log = await config_of(connection, subjects.LOG)
    assert {
        "subjects": ["flotilla.log.>"],
        "storage": "file",
        "num_replicas": 1,
        "compression": "s2",
        "max_age": 30 * DAY,
        "max_msg_size": 1 << 20,
        "duplicate_window": 120 * 1_000_000_000,
        "allow_direct": True,
        "allow_atomic": True,
        "deny_delete": True,
        "deny_purge": True,
        "allow_msg_ttl": False,
        "republish": {"src": "flotilla.log.>", "dest": "flotilla.live.>"},
    }.items() <= log.items()
    state = await config_of(connection, subjects.STATE)
    assert {
        "sources": [{"name": "FLOTILLA_LOG", "filter_subject": "flotilla.log.s.>"}],
        "storage": "file",
        "max_msgs_per_subject": 1,
        "max_age": 0,
        "duplicate_window": 100_000_000,
        "allow_direct": True,
    }.items() <= state.items()
    assert (await config_of(connection, subjects.TAILS))["subjects"] == ["flotilla.tail.>"]
    assert (await config_of(connection, subjects.CHECKPOINT))["max_age"] == 35 * DAY


async def test_making_them_again_changes_nothing(log: Connection) -> None:
    await log.request(subjects.GENESIS, b"{}", 5.0)
    assert await streams.create(log) == [streams.SYNC_UNKNOWN]
    assert await streams.head(log) == 1


@pytest.mark.parametrize(("sync", "warned"), [("always", []), ("10s", [streams.SYNC_NOT_ALWAYS])])
async def test_a_monitor_tells_whether_acknowledged_writes_are_on_disk(
    tmp_path: Path, sync: str, warned: list[str]
) -> None:  # spec: L6
    server = NatsServer(tmp_path, monitored=True, sync=sync)
    server.start()
    connection = Connection(server.url, "test")
    try:
        await connection.start()
        await connection.wait_connected()
        monitor = ("127.0.0.1", server.monitor_port)
        assert await streams.create(connection, monitor=monitor) == warned
        for port in (server.port, free_port()):  # No HTTP there; nobody there.
            unknown = await streams.create(connection, monitor=("127.0.0.1", port))
            assert unknown == [streams.SYNC_UNKNOWN]
    finally:
        await connection.close()
        server.kill()


async def test_puts_our_settings_right_and_leaves_others(connection: Connection) -> None:
    await streams.create(connection)
    found = await config_of(connection, subjects.LOG)
    strange = found | {"max_age": DAY, "description": "mine"}
    await api.call(connection, f"STREAM.UPDATE.{subjects.LOG}", strange, streams.StreamInfo)
    assert await streams.create(connection) == [streams.SYNC_UNKNOWN]
    mended = await config_of(connection, subjects.LOG)
    assert (mended["max_age"], mended["description"]) == (30 * DAY, "mine")


async def test_names_the_setting_that_the_server_refuses_to_change(connection: Connection) -> None:
    # spec: L6
    memory = {"name": subjects.LOG, "subjects": [subjects.LOG_ROOT + ">"], "storage": "memory"}
    await api.call(connection, f"STREAM.CREATE.{subjects.LOG}", memory, streams.StreamInfo)
    fault, *_ = await streams.create(connection)
    assert "storage is memory, not file" in fault
    assert (await config_of(connection, subjects.LOG))["storage"] == "memory"


async def test_says_when_the_server_cannot_hold_so_many_replicas(connection: Connection) -> None:
    faults = await streams.create(connection, replicas=3)
    assert "replicas > 1 not supported" in faults[0]


async def test_others_wait_for_the_streams(nats: NatsServer, connection: Connection) -> None:
    assert not await streams.exists(connection)
    with pytest.raises(streams.LogMissing):
        await streams.head(connection)
    waiting = asyncio.ensure_future(streams.wait(connection))
    nats.kill()  # Also over a restart of the server.
    with pytest.raises(Unavailable):
        await streams.exists(connection)
    nats.start()
    await connection.wait_connected()
    assert not waiting.done()
    await streams.create(connection)
    await waiting


async def test_tells_where_the_log_ends_and_what_time_it_is(log: Connection) -> None:
    assert await streams.head(log) == 0
    assert (await streams.newest(log)).stamp == 0.0
    await log.request(subjects.GENESIS, b"{}", 5.0)
    newest = await streams.newest(log)
    assert newest.sequence == 1
    assert 0.0 <= newest.server_now - newest.stamp < 60.0
