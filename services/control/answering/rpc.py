"""Operators' commands over NATS, for the day on which HTTP cannot be had. Shell.

`flotilla.rpc.control.<route>` takes the body of that route and answers its frame; NATS says who may ask
(`services.log.permissions`). Only what role operator may do is asked for here: NATS tells nobody who asked.
The leader answers, and of damaged controls each; a standby says nothing.
"""

import asyncio
from contextlib import AsyncExitStack

import structlog
from msgspec.structs import replace

from schemas import api, codec, subjects
from schemas.frames import Frame, Refusal
from services.control.answering.orders import ORDERS, carry_out, not_here, refusal
from services.control.commanding.commands import Actor
from services.control.loop import Loop
from services.control.requests import MOST_WAITING, NotLeading
from services.log.event_ids import new_event_id
from services.log.guarded import MAX_EVENT_BYTES
from services.log.message import Message

ACTOR = "operator"
SOURCE = "nats"
MOST_AT_ONCE = 2 * MOST_WAITING
"""Of requests: so many wait, and as many are told that too many do."""
LONGEST_MESSAGE = 1000

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_OFFERED = {route.name for route in api.ROUTES if route.role == "operator"} & ORDERS.keys()


class CommandsByNats:
    """`run` until cancelled."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    async def run(self) -> None:
        """Each request in a task of its own: it waits for the log. Those above a number are not heard."""
        answering: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as group:

            def asked(message: Message) -> None:
                if not message.reply or len(answering) >= MOST_AT_ONCE:
                    return
                task = group.create_task(self._answer(message))
                answering.add(task)
                task.add_done_callback(answering.discard)

            async with AsyncExitStack() as subscribed:
                for name in sorted(_OFFERED):
                    subject = subjects.control_rpc(name)
                    subscription = await self._loop.connection.subscribe(subject, asked)
                    subscribed.push_async_callback(subscription.close)
                await asyncio.Event().wait()

    async def _answer(self, message: Message) -> None:
        loop = self._loop
        if not loop.leading and loop.damage is None:
            return
        name = message.subject.rpartition(".")[2]
        actor = Actor(ACTOR, SOURCE, new_event_id(loop.now()))
        try:
            frame = await carry_out(loop, name, message.payload, actor)
        except NotLeading:
            frame = not_here(loop)
        except Exception as error:
            log.exception("command.failed")
            frame = refusal(loop, "failed", f"{name} failed: control's log says how", repr(error))
        await loop.connection.publish(message.reply, encoded(frame))


def encoded(frame: Frame) -> bytes:
    """As much of the answer as one message takes: what a refusal is about may be long."""
    whole = codec.encode(frame)
    if len(whole) <= MAX_EVENT_BYTES or not isinstance(frame, Refusal):
        return whole
    why = f"the whole answer has {len(whole)} bytes, more than NATS carries at once: ask over HTTP"
    message = frame.message[:LONGEST_MESSAGE]
    return codec.encode(replace(frame, message=message, why=why, next="", faults=()))
