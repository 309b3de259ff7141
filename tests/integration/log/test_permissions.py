"""Who may do what, asked of a real nats-server with exactly the users that are generated for it."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio

from schemas import codec, subjects
from services.log import api, streams
from services.log.api import ApiError, PubAck
from services.log.connect import Connection
from services.log.message import Denied, Message
from tests.support.doors import Doors
from tests.support.nats_server import NatsServer
from tests.support.waiting import until

LOG = subjects.LOG_ROOT
S = subjects.STATE_ROOT
DIRECT = "$JS.API.DIRECT.GET"
DOCUMENT = b'{"a": "document"}'
ANSWER_SECONDS = 10.0
"""Far longer than a denial takes: nothing here may end by running out of time."""
USERS = (
    "control",
    "agent.n1",
    "agent.n2",
    "router.r1",
    "router.r2",
    "operator.ops",
    "admin",
)


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Doors:
    return Doors(tmp_path_factory.mktemp("doors"), *USERS)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, doors: Doors) -> Iterator[NatsServer]:
    """One server for all: what is denied has no effect."""
    server = NatsServer(tmp_path_factory.mktemp("nats"), users=doors.text)
    server.start()
    yield server
    server.kill()


@asynccontextmanager
async def connected(server: NatsServer, doors: Doors, name: str) -> AsyncGenerator[Connection]:
    made = Connection(doors.door(server.url, name), name)
    await made.start()
    await made.wait_connected()
    try:
        yield made
    finally:
        await made.close()


@pytest_asyncio.fixture
async def control(guarded: NatsServer, doors: Doors) -> AsyncIterator[Connection]:
    async with connected(guarded, doors, "control") as made:
        await streams.create(made)
        yield made


@pytest_asyncio.fixture
async def agent(guarded: NatsServer, doors: Doors) -> AsyncIterator[Connection]:
    async with connected(guarded, doors, "agent.n1") as made:
        yield made


@pytest_asyncio.fixture
async def router(guarded: NatsServer, doors: Doors) -> AsyncIterator[Connection]:
    async with connected(guarded, doors, "router.r1") as made:
        yield made


@pytest_asyncio.fixture
async def operator(guarded: NatsServer, doors: Doors) -> AsyncIterator[Connection]:
    async with connected(guarded, doors, "operator.ops") as made:
        yield made


async def stored(connection: Connection, subject: str) -> PubAck:
    return api.pub_ack(await connection.request(subject, DOCUMENT, ANSWER_SECONDS))


async def denied(connection: Connection, subject: str, body: object = None) -> None:
    """A request there is an error with its reason, and not a time-out."""
    payload = DOCUMENT if body is None else codec.encode(body)
    with pytest.raises(Denied, match="permissions violation") as raised:
        await connection.request(subject, payload, ANSWER_SECONDS)
    assert raised.value.verb == "publish"
    assert raised.value.subject == subject
    assert connection.door.user in str(raised.value)


async def deaf(connection: Connection, subject: str) -> None:
    """A subscription there is denied, and says so."""
    subscription = await connection.subscribe(subject, lambda _: None)
    await connection.barrier()
    with pytest.raises(Denied, match="subscribe to"):
        subscription.check()
    assert "subscribe to" in connection.trouble
    await subscription.close()


def consumer(name: str, **config: Any) -> dict[str, Any]:
    return {
        "stream_name": subjects.LOG,
        "config": {"name": name, "ack_policy": "none", "mem_storage": True} | config,
    }


# What an agent may.


async def test_an_agent_writes_what_its_node_is_and_does(
    control: Connection, agent: Connection
) -> None:
    for subject in (f"{S}node.n1.info", f"{S}node.n1.shard.0", "flotilla.tail.n1.m-0-1"):
        assert (await stored(agent, subject)).seq
    heard: list[Message] = []
    await control.subscribe(subjects.ALL_AGENT_BEATS, heard.append)
    await control.subscribe(subjects.ALL_LOADS, heard.append)
    await control.barrier()
    await agent.publish("flotilla.beat.agent.n1", b"")
    await agent.publish("flotilla.load.n1", b"")
    await until(lambda: len(heard) == 2)
    assert not agent.trouble


async def test_an_agent_reads_its_own_assignment_and_is_pushed_it(
    control: Connection, agent: Connection
) -> None:
    subject = f"{S}assignment.n1"
    pushed: list[Message] = []
    await agent.subscribe(subjects.live(subject), pushed.append)
    assert await streams.head(agent) >= 0
    await stored(control, subject)
    await until(lambda: pushed)
    got = await agent.request(f"{DIRECT}.{subjects.LOG}.{subject}", b"", ANSWER_SECONDS)
    assert got.payload == pushed[0].payload == DOCUMENT


async def test_an_agent_answers_control_wherever_that_listens(
    control: Connection, agent: Connection
) -> None:
    asked: list[Message] = []
    await agent.subscribe("flotilla.rpc.agent.n1.logs", asked.append)
    await agent.barrier()
    answers: list[Message] = []
    await control.subscribe(f"{control.inbox}.logs", answers.append)
    await control.barrier()
    await control.publish("flotilla.rpc.agent.n1.logs", b"", reply=f"{control.inbox}.logs")
    await until(lambda: asked)
    await agent.publish(asked[0].reply, b"a line")
    await until(lambda: answers)


# spec: S1
@pytest.mark.parametrize(
    "subject",
    [
        pytest.param(f"{S}node.n2.info", id="as another node"),
        pytest.param(f"{S}node.n2.shard.0", id="as another node's shard"),
        pytest.param("flotilla.beat.agent.n2", id="another node's beat"),
        pytest.param("flotilla.load.n2", id="another node's load"),
        pytest.param("flotilla.tail.n2.m-0-1", id="another node's tails"),
        pytest.param(f"{S}assignment.n1", id="a decision about itself"),
        pytest.param(f"{S}node.n1.verdict", id="its own verdict"),
        pytest.param(f"{S}node.n1.intent", id="its own intent"),
        pytest.param(subjects.CONTROL_EPOCH, id="the epoch"),
        pytest.param("flotilla.beat.control.c1", id="as the leader"),
        pytest.param(f"{DIRECT}.{subjects.LOG}.{S}assignment.n2", id="reads another's assignment"),
        pytest.param(f"{DIRECT}.{subjects.STATE}.{S}assignment.n2", id="the same from STATE"),
        pytest.param("flotilla.rpc.agent.n2.logs", id="asks another agent"),
        pytest.param("flotilla.rpc.control.rollback", id="commands control"),
        pytest.param(f"$JS.API.CONSUMER.CREATE.{subjects.LOG}.x", id="creates a consumer"),
        pytest.param(f"$JS.API.STREAM.DELETE.{subjects.LOG}", id="deletes a stream"),
        pytest.param(f"$JS.API.STREAM.MSG.GET.{subjects.LOG}", id="gets any message"),
    ],
)
async def test_an_agent_may_not(control: Connection, agent: Connection, subject: str) -> None:
    await denied(agent, subject)


@pytest.mark.parametrize("stream", [subjects.LOG, subjects.STATE])
@pytest.mark.parametrize("who", ["agent", "router"])
async def test_a_subject_hidden_in_the_body_of_a_direct_get_is_not_read(
    control: Connection, agent: Connection, router: Connection, stream: str, who: str
) -> None:
    hidden = {"last_by_subj": f"{S}assignment.n2"}
    await denied(agent if who == "agent" else router, f"{DIRECT}.{stream}", hidden)


@pytest.mark.parametrize(
    "subject",
    ["_INBOX.>", "_INBOX.agent.n2.>", "_INBOX.control.>", "flotilla.live.s.assignment.>",
     "flotilla.live.>", "flotilla.log.>", "flotilla.rpc.agent.n2.>", ">"],
)  # fmt: skip
async def test_an_agent_hears_no_one_elses(agent: Connection, subject: str) -> None:
    await deaf(agent, subject)


async def test_nobody_gets_at_the_log_by_its_name_in_a_guard(
    control: Connection, agent: Connection
) -> None:
    """What is guarded is refused or not by the log; where it is written is what rights are about."""
    headers = {
        "Nats-Expected-Last-Subject-Sequence": "0",
        "Nats-Expected-Last-Subject-Sequence-Subject": subjects.CONTROL_EPOCH,
    }
    with pytest.raises(Denied):
        await agent.request(subjects.CONTROL_EPOCH, DOCUMENT, ANSWER_SECONDS, headers)
    found = await control.request(f"{DIRECT}.{subjects.LOG}.{subjects.CONTROL_EPOCH}", b"", 5.0)
    assert found.headers.get("Status") == "404"


# What a router may.


async def test_a_router_reads_what_it_routes_by_and_writes_its_report(
    control: Connection, router: Connection
) -> None:
    subject = f"{S}endpoints.llama.00"
    await stored(control, subject)
    for stream in (subjects.LOG, subjects.STATE):

        async def there(stream: str = stream) -> bool:
            got = await router.request(f"{DIRECT}.{stream}.{subject}", b"", ANSWER_SECONDS)
            return got.payload == DOCUMENT

        while not await there():  # STATE follows a little later.
            pass
    assert (await stored(router, f"{S}router.r1.00")).seq
    assert (await stored(router, f"{LOG}e.usage.r1")).seq
    assert await streams.exists(router)


@pytest.mark.parametrize(
    "subject",
    [
        pytest.param(f"{S}endpoints.llama.00", id="an endpoint"),
        pytest.param(f"{S}catalog", id="a catalog"),
        pytest.param(f"{S}router.r2.00", id="as another router"),
        pytest.param(f"{LOG}e.usage.r2", id="another's usage"),
        pytest.param("flotilla.beat.router.r2", id="another's beat"),
        pytest.param("flotilla.beat.agent.n1", id="an agent's beat"),
        pytest.param("flotilla.rpc.control.rollback", id="commands control"),
        pytest.param(f"{DIRECT}.{subjects.LOG}.{S}assignment.n1", id="reads an assignment"),
        pytest.param(f"$JS.API.STREAM.PURGE.{subjects.STATE}", id="purges"),
    ],
)
async def test_a_router_may_not(control: Connection, router: Connection, subject: str) -> None:
    await denied(router, subject)


async def test_a_router_makes_no_consumer_whose_filter_is_wider_than_its_subject(
    control: Connection, router: Connection
) -> None:
    """Nor any: a server delivers to whatever subject the consumer names."""
    narrow = f"$JS.API.CONSUMER.CREATE.{subjects.LOG}.c.{S}endpoints.>"
    await denied(router, narrow, consumer("c", filter_subject=f"{LOG}>"))
    push = consumer("c", filter_subject=f"{S}endpoints.>", deliver_subject=f"{S}node.n2.info")
    await denied(router, narrow, push)


# What people may.


async def test_an_operator_reads_everything_and_asks(
    control: Connection, operator: Connection
) -> None:
    async with asyncio.TaskGroup() as group:

        def answer(message: Message) -> None:
            group.create_task(control.publish(message.reply, b"done"))

        await control.subscribe("flotilla.rpc.control.*", answer)
        await control.barrier()
        told = await operator.request("flotilla.rpc.control.rollback", b"", ANSWER_SECONDS)
        assert told.payload == b"done"
    await stored(control, f"{S}assignment.n1")
    assert await streams.head(operator) >= 1
    wanted = {"last_by_subj": f"{S}assignment.n1"}
    for verb in (f"{DIRECT}.{subjects.LOG}", f"$JS.API.STREAM.MSG.GET.{subjects.LOG}"):
        assert (await operator.request(verb, codec.encode(wanted), ANSWER_SECONDS)).payload
    made = await api.call(
        operator, f"CONSUMER.CREATE.{subjects.LOG}.seen", consumer("seen"), dict[str, Any]
    )
    assert made["name"] == "seen"
    await api.call(operator, f"CONSUMER.DELETE.{subjects.LOG}.seen", None, dict[str, Any])
    live = await operator.subscribe(f"{subjects.LIVE_ROOT}>", lambda _: None)
    await operator.barrier()
    live.check()


@pytest.mark.parametrize(
    "subject",
    [f"{S}node.n1.intent", f"{S}catalog", f"{LOG}e.command.cordon", subjects.CONTROL_EPOCH],
)
async def test_an_operator_writes_nothing_into_the_log(
    control: Connection, operator: Connection, subject: str
) -> None:
    await denied(operator, subject)


async def test_a_consumer_of_an_operator_writes_nothing_into_the_log(
    control: Connection, operator: Connection
) -> None:
    """A server delivers only where somebody listens, and nobody may listen to the log's subjects."""
    foreign, source = f"{S}assignment.n3", f"{S}assignment.n1"
    await deaf(operator, foreign)
    await deaf(control, foreign)
    got: list[Message] = []
    inbox = f"{operator.inbox}.pushed"
    await operator.subscribe(inbox, got.append)
    for name, deliver in (("evil", foreign), ("good", inbox)):
        body = consumer(name, filter_subject=source, deliver_subject=deliver)
        body["stream_name"] = subjects.STATE
        verb = f"CONSUMER.CREATE.{subjects.STATE}.{name}"
        await api.call(operator, verb, body, dict[str, Any])
    await stored(control, source)
    await until(lambda: got)  # So the other one has had its turn too.
    answer = await control.request(f"{DIRECT}.{subjects.LOG}.{foreign}", b"", ANSWER_SECONDS)
    assert answer.headers.get("Status") == "404"


DESTROYING = (
    f"STREAM.DELETE.{subjects.TAILS}",
    f"STREAM.PURGE.{subjects.TAILS}",
    f"STREAM.MSG.DELETE.{subjects.TAILS}",
    f"STREAM.RESTORE.{subjects.TAILS}",
    "ACCOUNT.PURGE.$G",
)


@pytest.mark.parametrize("verb", DESTROYING)
@pytest.mark.parametrize("who", [name for name in USERS if name != "admin"])
async def test_nobody_but_an_administrator_deletes_or_purges(
    guarded: NatsServer, doors: Doors, control: Connection, who: str, verb: str
) -> None:
    # spec: S1
    async with connected(guarded, doors, who) as asking:
        await denied(asking, f"$JS.API.{verb}")


async def test_an_administrator_purges_but_never_the_log(
    guarded: NatsServer, doors: Doors, control: Connection
) -> None:
    async with connected(guarded, doors, "admin") as admin:
        purged = await api.call(admin, f"STREAM.PURGE.{subjects.TAILS}", None, dict[str, Any])
        assert purged["success"]
        with pytest.raises(ApiError, match="purge not permitted"):
            await api.call(admin, f"STREAM.PURGE.{subjects.LOG}", None, dict[str, Any])


async def test_control_does_all_its_work(control: Connection) -> None:
    for subject in (subjects.CONTROL_EPOCH, f"{S}assignment.n1", f"{S}node.n1.info",
                    f"{LOG}e.command.apply", "flotilla.checkpoint.x"):  # fmt: skip
        assert (await stored(control, subject)).seq
    assert not control.trouble
    assert control.denials == 0


# What a denial looks like.


async def test_only_the_request_that_is_meant_is_denied(
    control: Connection, agent: Connection
) -> None:
    """Others under way at the same moment get their own answers."""
    async with asyncio.TaskGroup() as group:
        good = [group.create_task(stored(agent, f"{S}node.n1.shard.{n}")) for n in range(5)]
        bad = [group.create_task(denied(agent, f"{S}node.n2.shard.{n}")) for n in range(5)]
    assert all(task.result().seq for task in good)
    assert all(task.done() for task in bad)
    assert agent.denials == 5
    await asyncio.gather(*(denied(agent, f"$JS.API.STREAM.DELETE.{subjects.LOG}") for _ in "ab"))


async def test_a_beat_that_is_denied_is_told_where_health_is_asked(agent: Connection) -> None:
    await agent.publish("flotilla.beat.agent.n2", b"")
    await until(lambda: agent.trouble)
    assert "publish to flotilla.beat.agent.n2" in agent.trouble
    assert agent.connected
