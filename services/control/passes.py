"""Passes over the fleet: when one is due, where it is worked out, and what it decided is written. Shell.

A pass over a small fleet is made in the event loop, at every turn. One over a large fleet is made in a
thread and at its own pace (`pace.py`), so that beats, those of others and requests do not wait for it;
whoever changes the state waits (`state_rests`).
"""

import asyncio
import traceback
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import structlog

from services.control.deciding.current import Current
from services.control.deciding.drafts import batches
from services.control.deciding.pace import Pace, is_small, look
from services.control.deciding.reconcile import Decision, decide
from services.control.deciding.silence import Hearing
from services.control.writing import Writing
from services.fleet.state import FleetState

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Passes:
    """Made by one task, the loop's."""

    def __init__(self, state: Callable[[], FleetState], hearing: Hearing, writing: Writing) -> None:
        self.state_rests = asyncio.Lock()
        """Held by whoever changes the state, and by a pass that reads it beside the event loop."""
        self.wake_at: float | None = None
        """When the last pass wants another one, by the fleet's clock. None: what it decided does not stand."""
        self.failed = ""
        """Why the last pass could not be made; empty: it was. It is tried again at every tick."""
        self._state = state
        self._hearing = hearing
        self._writing = writing
        self._pace = Pace()

    def begin(self) -> None:
        """Another log was opened."""
        self._forget()

    def rest(self) -> float:
        """Seconds in which no pass is made."""
        return self._pace.rest(monotonic())

    def is_due(self, current: Current, now: float) -> bool:
        """Whether a pass could decide anything. `now`: the fleet's clock."""
        state, at = self._state(), monotonic()
        if is_small(state):
            return True
        if self._pace.rest(at) > 0:
            return False
        return self._pace.is_due(look(state, current, self._hearing.measure(at)), now, at)

    async def make(self, current: Current) -> bool:
        """One pass. Whether all that was decided stands."""
        began = monotonic()
        envelope = self._writing.envelope()
        seen = look(self._state(), current, self._hearing.measure(began))
        try:
            decision = await self._decided(current, envelope.now)
        except Exception as error:  # noqa: BLE001 - whatever it is, another would raise it as well.
            self._fail(error)
            return False
        self.failed = ""
        ended = monotonic()
        self.wake_at = decision.wake_at
        self._pace.passed(seen, decision.wake_at, began, ended)
        self._writing.tally.passed(decision.counts, ended - began)
        for batch in batches(decision.drafts):
            if not await self._writing.write(envelope, batch):
                self._forget()
                return False
        return True

    def _fail(self, error: Exception) -> None:
        """A fault of this version, or a document that none of its rules expects. All goes on as it runs."""
        self._forget()
        where = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
        if reason != self.failed:
            log.exception("pass.failed")
        self.failed = reason

    def _forget(self) -> None:
        self.wake_at = None
        self._pace.begin()

    async def _decided(self, current: Current, now: float) -> Decision:
        """Silence is measured with the state at rest: who has joined since would seem silent."""
        state, models = self._state(), None if current.refused else current.catalog.models
        if is_small(state):
            silence = self._hearing.measure(monotonic())
            return decide(state, models, silence, now, current.revision)
        async with self.state_rests:
            silence = self._hearing.measure(monotonic())
            return await asyncio.to_thread(decide, state, models, silence, now, current.revision)
