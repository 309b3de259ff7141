"""How a connection gets in, and what it says when it does not: users, passwords, TLS."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec import structs
from structlog.testing import capture_logs

from schemas import subjects
from services.log import server, streams
from services.log.connect import Connection
from services.log.door import Door
from services.log.follow import Follower
from services.log.message import Denied
from services.log.snapshot import read_state
from services.log.stored import Stored
from services.log.write import Writer
from tests.builders import LOG_ID, a_node
from tests.support.doors import Doors
from tests.support.nats_server import NatsServer
from tests.support.waiting import eventually, until

TLS = Path(__file__).parents[2] / "data" / "tls"
CA, OTHER_CA = TLS / "test-ca.pem", TLS / "other-ca.pem"
SERVER = server.Tls(TLS / "server.pem", TLS / "server.key")


@asynccontextmanager
async def started(nats: NatsServer) -> AsyncGenerator[NatsServer]:
    await asyncio.to_thread(nats.start)
    try:
        yield nats
    finally:
        await asyncio.to_thread(nats.kill)


@asynccontextmanager
async def trying(door: Door) -> AsyncGenerator[Connection]:
    """A connection that may or may not get in."""
    made = Connection(door, "test")
    await made.start()
    try:
        yield made
    finally:
        await made.close()


async def kept_out(door: Door, reason: str) -> None:
    async with trying(door) as made:
        await until(lambda: reason in made.trouble)
        assert not made.connected


# Users.


async def test_a_wrong_password_is_told_and_a_mended_one_gets_in(tmp_path: Path) -> None:
    doors = Doors(tmp_path / "doors", "agent.n1")
    async with started(NatsServer(tmp_path / "nats", users=doors.text)) as nats:
        door = doors.door(nats.url, "agent.n1")
        password = doors.password_file("agent.n1").read_text()
        doors.password_file("agent.n1").write_text("another\n")
        async with trying(door) as made:
            await until(lambda: "does not let user agent.n1 in" in made.trouble)
            assert str(doors.password_file("agent.n1")) in made.trouble
            assert "another\n" not in made.trouble
            doors.password_file("agent.n1").write_text(password)
            await made.wait_connected()
            assert not made.trouble


async def test_whoever_has_no_user_is_told_to_set_one(tmp_path: Path) -> None:
    doors = Doors(tmp_path / "doors", "control")
    async with started(NatsServer(tmp_path / "nats", users=doors.text)) as nats:
        await kept_out(Door(url=nats.url), "nats.user and nats.password-file")


async def test_a_password_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    door = Door(url="nats://127.0.0.1:1", user="control", password_file=missing)
    await kept_out(door, f"password file {missing} cannot be read")
    missing.write_text("\n")
    await kept_out(door, f"password file {missing} is empty")


async def test_nobody_there_is_told_as_such(tmp_path: Path) -> None:
    await kept_out(Door(url="nats://127.0.0.1:1"), "no connection to NATS: ")


async def test_who_is_revoked_is_out_at_once_and_who_is_admitted_is_in(tmp_path: Path) -> None:
    doors = Doors(tmp_path / "doors", "control", "agent.n1")
    async with (
        started(NatsServer(tmp_path / "nats", users=doors.text)) as nats,
        trying(doors.door(nats.url, "control")) as control,
        trying(doors.door(nats.url, "agent.n1")) as agent,
    ):
        await agent.wait_connected()
        await control.wait_connected()
        doors.revoke("agent.n1")
        doors.admit("agent.n2")
        await asyncio.to_thread(nats.reload, doors.text)
        await until(lambda: "revoked" in agent.trouble)
        async with trying(doors.door(nats.url, "agent.n2")) as other:
            await other.wait_connected()
        assert (control.connected, control.generation) == (True, 1)


# Denied.


async def test_a_follower_is_not_in_step_while_a_pattern_is_denied_and_is_once_it_is_allowed(
    tmp_path: Path,
) -> None:
    doors = Doors(tmp_path / "doors", "control", "agent.n1")
    subject = f"{subjects.STATE_ROOT}assignment.n1"
    narrow = doors.text.replace(f'"{subjects.live(subject)}"', '"flotilla.live.s.assignment.x"')
    async with (
        started(NatsServer(tmp_path / "nats", users=narrow)) as nats,
        trying(doors.door(nats.url, "control")) as control,
        trying(doors.door(nats.url, "agent.n1")) as agent,
        asyncio.TaskGroup() as group,
    ):
        await control.wait_connected()
        await streams.create(control)
        await control.request(subject, b"{}", 5.0)
        got: list[Stored] = []
        follower = Follower(agent, (subject,), lambda: (subject,), got.append)
        following = group.create_task(follower.run())
        await until(lambda: "subscribe to flotilla.live.s.assignment.n1" in agent.trouble)
        assert not follower.synced
        assert not got
        await asyncio.to_thread(nats.reload, doors.text)
        await until(lambda: follower.synced and got)
        await control.request(subject, b'{"a": 1}', 5.0)
        await until(lambda: len(got) == 2)
        following.cancel()


async def test_a_writer_whose_subject_is_denied_tells_and_writes_once_it_is_allowed(
    tmp_path: Path,
) -> None:
    doors = Doors(tmp_path / "doors", "control", "agent.n1")
    subject = f"{subjects.STATE_ROOT}node.n1.shard.0"
    narrow = doors.text.replace('node.n1.shard.*"', 'node.n1.shard.7"')
    async with (
        started(NatsServer(tmp_path / "nats", users=narrow)) as nats,
        trying(doors.door(nats.url, "control")) as control,
        trying(doors.door(nats.url, "agent.n1")) as agent,
        asyncio.TaskGroup() as group,
    ):
        await control.wait_connected()
        await streams.create(control)
        writer = Writer(
            agent, source="agent/n1", log_id=LOG_ID, now=lambda: 0.0, may_replace=lambda _: True
        )
        writing = group.create_task(writer.run())
        await agent.wait_connected()
        with capture_logs() as told:
            writer.put(subject, "node.described", a_node())
            await until(lambda: [each for each in told if each["event"] == "log.write.refused"])
        (refused,) = (each for each in told if each["event"] == "log.write.refused")
        assert "permissions violation" in refused["reason"]
        assert subject in agent.trouble
        await asyncio.to_thread(nats.reload, doors.text)
        await writer.idle()
        assert writer.standing(subject) == 1
        writing.cancel()


# TLS.


async def test_a_server_that_is_trusted_is_spoken_to_in_tls(tmp_path: Path) -> None:
    doors = Doors(tmp_path / "doors", "control")
    async with started(NatsServer(tmp_path / "nats", users=doors.text, tls=SERVER)) as nats:
        async with trying(doors.door(nats.url, "control", ca=CA)) as made:
            await made.wait_connected()
            await streams.create(made)
            await made.request(subjects.CATALOG, b"{}", 5.0)
            await until_state_holds(made, subjects.CATALOG)  # Over a link of its own.
        await kept_out(
            doors.door(nats.url, "control", ca=OTHER_CA), "the server's certificate is not trusted"
        )
        await kept_out(doors.door(nats.url, "control"), "the server's certificate is not trusted")


async def until_state_holds(connection: Connection, subject: str) -> None:
    async def held() -> bool:
        documents, _ = await read_state(connection)
        return subject in {each.subject for each in documents}

    await eventually(held, f"STATE holds {subject}")


async def test_a_server_may_ask_for_a_certificate(tmp_path: Path) -> None:
    checking = structs.replace(SERVER, ca=CA)
    async with started(NatsServer(tmp_path / "nats", tls=checking)) as nats:
        door = Door(url=nats.url, ca=CA, cert=TLS / "client.pem", key=TLS / "client.key")
        async with trying(door) as made:
            await made.wait_connected()
        await kept_out(structs.replace(door, cert=None, key=None), "no connection to NATS: ")


async def test_certificates_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    await kept_out(Door(url="nats://127.0.0.1:1", ca=tmp_path / "none.pem"), "none.pem")


@pytest.mark.parametrize("scheme", ["nats", "tls"])
async def test_no_password_goes_to_a_server_that_offers_no_tls(tmp_path: Path, scheme: str) -> None:
    said: list[bytes] = []
    served = asyncio.Event()

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"headers":true,"max_payload":1048576,"auth_required":true}\r\n')
        said.append(await reader.read(-1))
        writer.close()
        served.set()

    doors = Doors(tmp_path, "control")
    plain = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with plain:
        url = f"{scheme}://127.0.0.1:{plain.sockets[0].getsockname()[1]}"
        ca = CA if scheme == "nats" else None
        await kept_out(doors.door(url, "control", ca=ca), "the server offers no TLS")
        await served.wait()
    assert set(said) == {b""}


async def test_a_denial_names_verb_subject_and_user(tmp_path: Path) -> None:
    doors = Doors(tmp_path / "doors", "control", "router.r1")
    async with (
        started(NatsServer(tmp_path / "nats", users=doors.text)) as nats,
        trying(doors.door(nats.url, "router.r1")) as router,
    ):
        await router.wait_connected()
        with pytest.raises(Denied) as raised:
            await router.request(subjects.CATALOG, b"", 30.0)
    assert (raised.value.verb, raised.value.subject) == ("publish", subjects.CATALOG)
    assert "router.r1" in str(raised.value)
