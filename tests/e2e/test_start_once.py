"""A replica is started once, however its start is broken off and told of.

One fleet; each step starts another model, with control or its words to NATS struck at another point
between deciding and noting. In the end each model has one replica, in its first attempt and first run,
and one engine.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from schemas import subjects
from tests.support.fleet import LiveFleet, catalog_of, engines_under, tiny_entry
from tests.support.proxy import Frame, Proxy, up_to
from tests.support.refold import read_log
from tests.support.waiting import eventually, until


class Struck:
    """A fleet of one node, where control and agent reach NATS through proxies of their own."""

    def __init__(self, fleet: LiveFleet, control: Proxy, agent: Proxy, model: Path) -> None:
        self.fleet = fleet
        self.control = control
        self.agent = agent
        self._model = model
        self.names: list[str] = []

    async def want(self) -> str:
        """One model more, with one replica."""
        name = f"m{len(self.names)}"
        self.names.append(name)
        entries = [tiny_entry(each, self._model, replicas=1) for each in self.names]
        await self.fleet.apply(catalog_of(*entries))
        return name

    async def dies(self) -> None:
        """Control has ended by kill -9; it is started again, with an undisturbed link."""
        program = self.fleet.programs["control-1"]
        await until(lambda: not program.running)
        self.control.swallow = self.control.drop = lambda _: False
        program.start()
        await self.fleet.until_up()

    def kill(self) -> None:
        os.kill(self.fleet.programs["control-1"].pid, signal.SIGKILL)


@pytest.fixture
async def struck(tmp_path: Path, tiny_gguf: Path) -> AsyncIterator[Struck]:
    async with LiveFleet(tmp_path) as fleet:
        control, agent = Proxy(fleet.nats.port), Proxy(fleet.nats.port)
        await control.start()
        await agent.start()
        fleet.add_control(NATS_URL=control.url)
        fleet.add_node("node-1", NATS_URL=agent.url)
        await fleet.until_up()
        await fleet.until_nodes("node-1")
        yield Struck(fleet, control, agent, tiny_gguf)
        fleet.programs["control-1"].kill()
        fleet.programs["node-1"].kill()
        await control.close()
        await agent.close()


def is_start(frame: Frame) -> bool:
    """What control sends of a replica that it has placed: the decision is being appended."""
    return frame.subject.startswith("flotilla.log.s.replica.") and b"replica.placed" in frame.body


async def killed_before_the_append(struck: Struck) -> None:
    def strike(frame: Frame) -> bool:
        if is_start(frame):
            struck.kill()
        return is_start(frame)

    struck.control.swallow = strike
    await struck.want()
    await struck.dies()


async def killed_before_the_last_message_of_the_append(struck: Struck) -> None:
    """A batch of which the server has a part."""

    def strike(frame: Frame) -> bool:
        found = frame.subject.startswith("flotilla.log.s.assignment.")
        if found:
            struck.kill()
        return found

    struck.control.swallow = strike
    await struck.want()
    await struck.dies()


async def killed_before_the_ack_is_read(struck: Struck) -> None:
    stored: list[Frame] = []

    def sent(frame: Frame) -> bool:
        stored.extend([frame] if is_start(frame) else [])
        return False

    def answered(frame: Frame) -> bool:
        acked = bool(stored) and frame.subject.startswith("_INBOX.") and b'"batch"' in frame.body
        if acked:
            struck.kill()
        return acked

    struck.control.swallow, struck.control.drop = sent, answered
    await struck.want()
    await struck.dies()


async def killed_once_the_agent_was_told(struck: Struck) -> None:
    name = await struck.want()

    async def told() -> bool:
        return any(name in name_of for name_of in await shard_documents(struck.fleet))

    await eventually(told, "the agent reports it", pause_seconds=0.01)
    struck.kill()
    await struck.dies()


async def an_ack_is_lost(struck: Struck) -> None:
    """Control asks again, with the same ids."""
    lost = up_to(1, lambda f: f.subject.startswith("_INBOX.") and b'"batch"' in f.body)
    started: list[Frame] = []

    def sent(frame: Frame) -> bool:
        started.extend([frame] if is_start(frame) else [])
        return False

    struck.control.swallow = sent
    struck.control.drop = lambda frame: bool(started) and lost(frame)
    await struck.want()
    await until(lambda: struck.control.dropped)


async def a_publish_fails(struck: Struck) -> None:
    """One message of the batch does not reach the server: it is sent again."""
    fails = up_to(1, is_start)
    failed: list[Frame] = []

    def strike(frame: Frame) -> bool:
        if fails(frame):
            failed.append(frame)
            return True
        return False

    struck.control.swallow = strike
    await struck.want()
    await until(lambda: failed)


def is_order(frame: Frame) -> bool:
    return frame.subject.startswith("flotilla.live.s.assignment.")


async def the_order_comes_twice(struck: Struck) -> None:
    repeated: list[Frame] = []

    def again(frame: Frame) -> bool:
        repeated.extend([frame] if is_order(frame) else [])
        return is_order(frame)

    struck.agent.repeat = again
    await struck.want()
    await until(lambda: repeated)


async def the_order_comes_again_to_the_next_agent(struck: Struck) -> None:
    struck.agent.repeat = is_order
    name = await struck.want()
    await struck.fleet.until_ready(name, 1)
    agent = struck.fleet.programs["node-1"]
    agent.kill()
    agent.start()


STEPS: tuple[Callable[[Struck], Awaitable[None]], ...] = (
    killed_before_the_append,
    killed_before_the_last_message_of_the_append,
    killed_before_the_ack_is_read,
    killed_once_the_agent_was_told,
    an_ack_is_lost,
    a_publish_fails,
    the_order_comes_twice,
    the_order_comes_again_to_the_next_agent,
)


async def shard_documents(fleet: LiveFleet) -> dict[str, dict[str, Any]]:
    """By replica."""
    answer = await fleet.ask("state")
    documents: dict[str, Any] = {} if answer is None else answer["state"]["documents"]
    return {
        held["document"]["replica"]: held["document"]
        for name, held in documents.items()
        if name.startswith("shards.")
    }


def engines(root: Path) -> Counter[str]:
    """Live processes of each replica: its engine and the shim above it."""
    found: Counter[str] = Counter()
    for pid in engines_under(root):
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        found.update(v[17:].decode() for v in environ if v.startswith(b"FLOTILLA_REPLICA="))
    return found


# case: CR-03
# spec: L2 L8 P5
async def test_one_engine_in_the_end_wherever_its_start_is_struck(struck: Struck) -> None:
    fleet = struck.fleet
    for step in STEPS:
        began = time.monotonic()
        await step(struck)
        (row,) = await fleet.until_ready(struck.names[-1], 1)
        struck.control.swallow = struck.control.drop = struck.agent.repeat = lambda _: False
        print(f"{step.__name__}: {time.monotonic() - began:.1f} s")  # noqa: T201
        assert row["replica"] == f"{struck.names[-1]}-0-1", step.__name__
    wanted = {f"{name}-0-1" for name in struck.names}
    shards = await shard_documents(fleet)
    assert {(r, s["attempt"], s["run"]) for r, s in shards.items()} == {(r, 1, 0) for r in wanted}
    assert set(engines(fleet.root)) == wanted
    assert len(set(engines(fleet.root).values())) == 1  # As many processes of each.
    status = await fleet.ask("status")
    assert status is not None
    events = await read_log(fleet.nats.url, status["asOfSeq"])
    placed = [s for _, s, event in events if event.type == "replica.placed"]
    assert sorted(placed) == sorted(subjects.LOG_ROOT + f"s.replica.{n}.0" for n in struck.names)
