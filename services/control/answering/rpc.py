"""Operators' commands over NATS, for the day on which HTTP cannot be had. Shell.

`flotilla.rpc.control.<route>` takes the body of that route and answers its frame; NATS says who may ask
(`services.log.permissions`). Only what role operator may do is asked for here: NATS tells nobody who asked.
The leader answers, and of damaged controls each; a standby says nothing.
"""

import asyncio

from schemas import api, codec, subjects
from services.control.answering.orders import ORDERS, carry_out, not_here
from services.control.commanding.commands import Actor
from services.control.loop import Loop
from services.control.requests import NotLeading
from services.log.event_ids import new_event_id
from services.log.message import Message

ACTOR = "operator"
SOURCE = "nats"

_OFFERED = {route.name for route in api.ROUTES if route.role == "operator"} & ORDERS.keys()


class CommandsByNats:
    """`run` until cancelled."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    async def run(self) -> None:
        """Each request in a task of its own: it waits for the log."""
        async with asyncio.TaskGroup() as group:

            def asked(message: Message) -> None:
                if message.reply:
                    group.create_task(self._answer(message))

            for name in sorted(_OFFERED):
                await self._loop.connection.subscribe(subjects.control_rpc(name), asked)
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
        await loop.connection.publish(message.reply, codec.encode(frame))
