"""When the leader dumps the state: by what the stream says, not by what a process remembers."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from schemas import codec
from services.control import checkpoint as ours
from services.control.checkpoint import Checkpoints
from services.control.loop import Loop
from services.fleet.state import FleetState
from services.log import checkpoint
from services.log.api import call
from services.log.checkpoint import Checkpoint
from services.log.connect import Connection
from services.log.state_at import state_at
from services.log.streams import StreamInfo
from tests.support.past import NEXT_ID, Past, begun, written
from tests.support.waiting import eventually, until


class Leader:
    """What a loop tells of itself."""

    def __init__(self, past: Past) -> None:
        self.past = past
        self.leads = True
        self.later = 0.0
        self.looks = 0

    def leading(self) -> bool:
        self.looks += 1
        return self.leads

    @property
    def state(self) -> FleetState:
        state = FleetState()
        for each in self.past.messages:
            state.apply(each.sequence, each.subject, each.payload)
        return state


@asynccontextmanager
async def looking(log: Connection, leader: Leader) -> AsyncGenerator[None]:
    """A process of its own: it remembers nothing of an earlier one."""
    now = codec.seconds("2026-11-30T12:00:00Z")
    last = await checkpoint.newest(log)
    began = now if last is None else last.stamp
    made = Checkpoints(log, lambda: leader.state, leader.leading, lambda: began + leader.later)
    task = asyncio.ensure_future(made.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(ours, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(ours, "EVERY_EVENTS", 50)


async def reaches(log: Connection, sequence: int) -> Checkpoint:
    """The checkpoint that is at least there."""

    async def there() -> Checkpoint | None:
        found = await checkpoint.newest(log)
        fits = found is not None and found.checkpoint.sequence >= sequence
        return found.checkpoint if found is not None and fits else None

    return await eventually(there, f"a checkpoint at {sequence}")


async def looks(log: Connection, leader: Leader) -> int:
    """How many checkpoints there are once many looks have been taken."""
    async with looking(log, leader):
        seen = leader.looks
        await until(lambda: leader.looks >= seen + 5)
    return len(await checkpoint.complete(log))


async def test_the_first_is_due_at_once_and_the_next_after_many_events_or_a_day(
    log: Connection,
) -> None:
    past = begun().pass_by(20)
    leader = Leader(past)
    await written(log, past)
    async with looking(log, leader):
        await reaches(log, 20)
    assert await looks(log, leader) == 1
    await written(log, past.pass_by(30))
    assert await looks(log, leader) == 1
    await written(log, past.pass_by(30))
    async with looking(log, leader):
        await reaches(log, 80)
    await written(log, past.pass_by(5))
    assert await looks(log, leader) == 2
    leader.later = 25 * 3600.0
    async with looking(log, leader):
        newest = await reaches(log, 84)
    found = await state_at(log, newest.sequence)
    assert isinstance(found, FleetState)
    assert found.dump() == past.dump(newest.sequence)


async def test_a_day_without_events_needs_none(log: Connection) -> None:
    past = begun().pass_by(18)  # The last of them is a document.
    leader = Leader(past)
    await written(log, past)
    async with looking(log, leader):
        await reaches(log, 20)
    leader.later = 25 * 3600.0
    assert await looks(log, leader) == 1


async def test_who_does_not_lead_writes_none(log: Connection) -> None:
    past = begun().pass_by(20)
    leader = Leader(past)
    leader.leads = False
    await written(log, past)
    assert await looks(log, leader) == 0


async def test_another_logs_checkpoint_does_not_count(log: Connection) -> None:
    past = begun().pass_by(20)
    await written(log, past)
    await checkpoint.write(log, NEXT_ID, 20, "2026-11-30T12:00:00Z", [])
    assert await looks(log, Leader(past)) == 2


async def test_what_the_server_refuses_is_tried_again(log: Connection) -> None:
    past = begun().pass_by(20)
    await written(log, past)
    config = (await call(log, "STREAM.INFO.FLOTILLA_CHECKPOINT", None, StreamInfo)).config
    verb = "STREAM.UPDATE.FLOTILLA_CHECKPOINT"
    await call(log, verb, config | {"max_msg_size": 10}, StreamInfo)
    assert await looks(log, Leader(past)) == 0
    await call(log, verb, config, StreamInfo)
    async with looking(log, Leader(past)):
        await reaches(log, 20)


async def test_a_leading_control_dumps_its_state(leading: tuple[Loop, asyncio.Task[None]]) -> None:
    loop, _ = leading
    await reaches(loop.connection, 1)
