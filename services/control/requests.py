"""Commands that wait for their turn, and the ways in which one is not carried out. Shell.

How it fails: nobody waits for the log without end. A command that was not begun by then is not taken; of
one that was, the outcome is unknown.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from schemas.api import COMMAND_SECONDS
from schemas.frames import Frame
from services.control.commanding.moment import Plan

MOST_WAITING = 256
ANSWER_SECONDS = COMMAND_SECONDS
"""How long a command may wait for the log."""
PREPARE_SECONDS = 10.0
"""How long one may wait for those before it to be read: with the log's share, less than its asker waits."""
NO_ANSWER = f"the log has answered no write for {ANSWER_SECONDS:g} s"


class NotLeading(Exception):
    """This control writes nothing now: another leads, the log is damaged, or NATS is away."""


class OutcomeUnknown(Exception):
    """The command was being written, and may have been taken: why nobody waits for it longer."""


class LogRefuses(Exception):
    """The server takes no write, and why. The command was not taken."""


class TooMany(Exception):
    """More commands wait than are carried out in a turn. This one was not taken."""


class Failed(Exception):
    """A fault of this version: the command could not be planned, or no log could take it. It was not taken."""


class Request:
    """One command, and who waits for its answer."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()

    def fail(self, reason: Exception) -> None:
        """Raised where it is waited for."""
        if not self.answer.done():
            self.answer.set_exception(reason)


class Requests:
    """First in, first out."""

    def __init__(self, came: Callable[[], None]) -> None:
        """`came` is called when there is one."""
        self._came = came
        self._waiting: deque[Request] = deque()
        self._preparing = 0
        self._one = asyncio.Lock()

    async def prepare(self, make: Callable[[], Plan]) -> Plan:
        """What takes time, before the turn: in a thread, one at a time. Raises TooMany, and what it raises."""
        if self._preparing >= MOST_WAITING:
            raise TooMany
        self._preparing += 1
        try:
            try:
                async with asyncio.timeout(PREPARE_SECONDS):
                    await self._one.acquire()
            except TimeoutError:
                raise TooMany from None
            try:
                return await asyncio.to_thread(make)
            finally:
                self._one.release()
        finally:
            self._preparing -= 1

    async def perform(self, plan: Plan) -> Frame:
        """Raises what is defined here."""
        if len(self._waiting) >= MOST_WAITING:
            raise TooMany
        request = Request(plan)
        self._waiting.append(request)
        self._came()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await request.answer
        except TimeoutError:
            if request in self._waiting:  # Cancelled before it was begun: never carried out.
                raise LogRefuses(NO_ANSWER) from None
            raise OutcomeUnknown(NO_ANSWER) from None

    def take(self) -> Request | None:
        """The next one that is still waited for."""
        while self._waiting:
            request = self._waiting.popleft()
            if not request.answer.cancelled():
                return request
        return None

    def refuse(self) -> None:
        """This control carries out none of them."""
        while (request := self.take()) is not None:
            request.fail(NotLeading())
