"""A connection that never gives up, against a real server that is killed, frozen and brought back."""

import asyncio
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from nats.aio.client import Client

from services.log.connect import Connection
from services.log.message import Message, Unavailable
from tests.support.nats_server import NatsServer
from tests.support.waiting import until


async def until_generation(connection: Connection, wanted: int) -> None:
    await until(lambda: connection.generation == wanted)


async def test_carries_messages_and_headers(nats: NatsServer, connection: Connection) -> None:
    got: list[Message] = []
    await connection.subscribe("a.*", got.append)
    await connection.barrier()
    assert await connection.publish("a.b", b"1", headers={"K": "v"})
    await until(lambda: got)
    assert (got[0].subject, got[0].payload, dict(got[0].headers)) == ("a.b", b"1", {"K": "v"})


async def test_answers_a_request(nats: NatsServer, connection: Connection) -> None:
    async with asyncio.TaskGroup() as group:

        def answer(message: Message) -> None:
            group.create_task(connection.publish(message.reply, message.payload + b"!"))

        await connection.subscribe("ask", answer)
        assert (await connection.request("ask", b"hi", 5.0)).payload == b"hi!"


async def test_says_at_once_that_nobody_answers(connection: Connection) -> None:
    with pytest.raises(Unavailable, match="nobody answers"):
        await connection.request("nobody", b"", 30.0)


async def test_a_request_without_answer_ends_at_its_limit(connection: Connection) -> None:
    await connection.subscribe("mute", lambda _: None)
    with pytest.raises(Unavailable, match="no answer from mute"):
        await connection.request("mute", b"", 0.1)


async def test_the_barrier_waits_for_subscriptions(
    nats: NatsServer, connection: Connection
) -> None:
    other = Connection(nats.url, "other")
    await other.start()
    await other.wait_connected()
    for number in range(200):
        got: list[Message] = []
        subscription = await connection.subscribe(f"z.{number}", got.append)
        await connection.barrier()
        await other.publish(f"z.{number}", b"")
        await until(partial(len, got))
        await subscription.close()
    await other.close()


async def test_a_closed_subscription_hears_nothing(connection: Connection) -> None:
    got: list[Message] = []
    subscription = await connection.subscribe("a", got.append)
    await subscription.close()
    await connection.publish("a", b"")
    await connection.barrier()
    assert not got


async def test_starts_before_the_server_does(tmp_path: Path) -> None:
    server = NatsServer(tmp_path)
    server.start()
    server.kill()
    connection = Connection(server.url, "early")
    await connection.start()
    got: list[Message] = []
    await connection.subscribe("a", got.append)
    assert not connection.connected
    assert not await connection.publish("a", b"lost")
    with pytest.raises(Unavailable):
        await connection.request("a", b"", 5.0)
    with pytest.raises(Unavailable):
        await connection.barrier()
    server.start()
    await connection.wait_connected()
    await connection.publish("a", b"kept")
    await until(lambda: got)
    assert [message.payload for message in got] == [b"kept"]
    await connection.close()
    server.kill()


@pytest.mark.parametrize("end", [NatsServer.kill, NatsServer.stop])
async def test_comes_back_with_its_subscriptions(
    nats: NatsServer, connection: Connection, end: Callable[[NatsServer], None]
) -> None:
    got: list[Message] = []
    changes: list[bool] = []
    connection.on_change.append(changes.append)
    await connection.subscribe("a", got.append)
    for generation in (2, 3):
        end(nats)
        await until(lambda: not connection.connected)
        assert not await connection.publish("a", b"lost")
        nats.start()
        await until_generation(connection, generation)
        await connection.publish("a", b"%d" % generation)
        await until(partial(len, got))
        assert [message.payload for message in got] == [b"%d" % generation]
        got.clear()
    assert changes == [False, True, False, True]


async def test_requests_in_flight_fail_with_the_link(
    nats: NatsServer, connection: Connection
) -> None:
    await connection.subscribe("mute", lambda _: None)
    asked = asyncio.ensure_future(connection.request("mute", b"", 600.0))
    await connection.barrier()
    nats.kill()
    with pytest.raises(Unavailable, match="lost"):
        await asked


async def test_a_frozen_server_is_a_lost_link(nats: NatsServer, connection: Connection) -> None:
    os.kill(nats.pid, signal.SIGSTOP)
    try:
        await until(lambda: not connection.connected)
    finally:
        os.kill(nats.pid, signal.SIGCONT)
    await until(lambda: connection.generation == 2)
    await connection.barrier()


async def test_a_cancelled_request_or_barrier_leaves_the_link_whole(connection: Connection) -> None:
    await connection.subscribe("mute", lambda _: None)
    for _ in range(20):
        waiting = [
            asyncio.ensure_future(connection.barrier()),
            asyncio.ensure_future(connection.request("mute", b"", 5.0)),
        ]
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
    await connection.barrier()
    assert connection.generation == 1


async def test_a_handler_that_raises_ends_nothing(connection: Connection) -> None:
    mistakes: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: mistakes.append(str(context["exception"]))
    )

    def careless(message: Message) -> None:
        raise KeyError(message.subject)

    await connection.subscribe("a", careless)
    await connection.publish("a", b"")
    await connection.publish("a", b"")
    await until(lambda: len(mistakes) == 2)
    assert connection.connected


async def test_a_message_over_the_limit_is_refused_here(connection: Connection) -> None:
    with pytest.raises(ValueError, match="over the server's limit"):
        await connection.publish("a", b"x" * 3_000_000)
    await connection.barrier()


async def test_a_client_that_cannot_even_be_closed_ends_nothing(
    nats: NatsServer, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    async def close(_: Client) -> None:
        seen.append(connection.connected)
        raise RuntimeError("the handler is closed")

    monkeypatch.setattr(Client, "close", close)
    nats.kill()
    await until(lambda: seen)
    assert seen[0] is False
    nats.start()
    await until_generation(connection, 2)
    await connection.barrier()


async def test_a_mistake_that_ends_the_connections_task_is_told(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: told.append(context["message"])
    )
    monkeypatch.setattr("services.log.connect.LAST_RETRY_SECONDS", None)
    connection = Connection("nats://127.0.0.1:1", "mistaken")
    await connection.start()
    await until(lambda: told)
    assert told == ["connection mistaken is kept no longer"]
    with pytest.raises(TypeError):
        await connection.close()
