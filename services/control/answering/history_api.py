"""The management API's answers about the past. Shell: decode, ask, encode; a standby answers as well.

What cannot be answered is a refusal that says why: a moment outside of what is kept, NATS away, or
too many who ask for the past at once.
"""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web
from msgspec import UNSET
from msgspec.structs import replace

from schemas import api, codec, frames, history, subjects
from schemas.documents import CatalogRevision
from schemas.history import EntryChange
from services.control.answering.events_api import Events
from services.control.answering.orders import UNREAD
from services.control.answering.pages import PAGES, Seen
from services.control.answering.past import (
    BadQuery,
    Busy,
    Outside,
    PastFleet,
    Then,
    number_of,
)
from services.control.answering.tokens import Token
from services.control.answering.why_api import Question, question, tell_why
from services.control.commanding.commands import not_kept
from services.control.deciding.current import CurrentCatalog, find_revision
from services.control.deciding.pace import is_small
from services.control.loop import Loop
from services.fleet.state import FleetState
from services.fleet.telling import catalog_diff
from services.fleet.telling.catalog_diff import revision_rows, sections
from services.fleet.views import Live
from services.log.finding import Finder
from services.log.message import Unavailable
from services.log.streams import LogMissing

Answer = Callable[[web.Request, Token], Awaitable[frames.Frame]]
Told = Callable[[web.Request], Awaitable[frames.Frame]]


class HistoryApi:
    """The handlers of the routes that are about the past alone, and of all others' `?at=`."""

    def __init__(self, loop: Loop, present: Callable[[], Seen]) -> None:
        self._loop = loop
        self._present = present
        self._past = PastFleet(loop.connection)
        self._events = Events(loop, self._past)

    def answers(self) -> dict[str, Answer]:
        """By the name of the route."""
        return {
            "events": self._answer(self._list_events),
            "why": self._answer(self._why_now),
            "catalog-history": self._answer(self._history_now),
            "catalog-revision": self._answer(self._revision),
            "catalog-diff": self._answer(self._diff),
        }

    async def past(self, route: str, request: web.Request) -> frames.Frame:
        """The route's answer as it would have been at `?at=`."""
        return await self._or_refusal(self._as_of(route, request))

    async def _as_of(self, route: str, request: web.Request) -> frames.Frame:
        async with self._past.turn():
            then = await self._past.then(request.query["at"], self._loop.now())
            state = await self._past.state(then)
            then = then if then.seconds else Then(then.sequence, _newest(state))
            seen = await asyncio.to_thread(_seen, then, state)
            frame = await self._then(route, request, seen)
        return replace(frame, as_of=codec.rfc3339(then.seconds) if then.seconds else UNSET)

    async def _then(self, route: str, request: web.Request, seen: Seen) -> frames.Frame:
        if route == "why":
            asked = await asyncio.to_thread(question, *_target(request), seen)
            return await tell_why(self._loop.connection, asked)
        if route == "catalog-history":
            return await self._history(seen.state)
        return await asyncio.to_thread(PAGES[route], seen, dict(request.match_info))

    def _answer(self, told: Told) -> Answer:
        async def answer(request: web.Request, _token: Token) -> frames.Frame:
            return await self._or_refusal(told(request))

        return answer

    async def _or_refusal(self, answer: Awaitable[frames.Frame]) -> frames.Frame:
        try:
            return await answer
        except BadQuery as error:
            return self._refusal("bad_request", UNREAD, str(error))
        except Outside as error:
            return self._refusal(error.code, error.message, error.why)
        except Busy:
            return self._refusal("too_many", "too many ask for the past", "nothing was changed")
        except (Unavailable, LogMissing) as error:
            return self._refusal("unavailable", "the log cannot be read now", str(error))

    def _refusal(self, code: str, message: str, why_: str = "", next_: str = "") -> frames.Refusal:
        return frames.Refusal(
            as_of_seq=self._loop.state.sequence, code=code, message=message, why=why_, next=next_
        )

    async def _list_events(self, request: web.Request) -> frames.Frame:
        return await self._events.answer(request.query)

    async def _why_now(self, request: web.Request) -> frames.Frame:
        async with self._past.turn():
            return await tell_why(self._loop.connection, await self._question(request))

    async def _question(self, request: web.Request) -> Question:
        if is_small(self._loop.state):
            return question(*_target(request), self._present())
        async with self._loop.state_rests:
            return await asyncio.to_thread(question, *_target(request), self._present())

    async def _history_now(self, _request: web.Request) -> frames.Frame:
        return await self._history(self._loop.state)

    async def _history(self, state: FleetState) -> frames.Frame:
        sequence, kept = state.sequence, list(state.revisions.values())
        pointer = state.catalog.get(())
        current = 0 if pointer is None else pointer.document.revision
        swaps = await Finder(self._loop.connection, sequence).past((subjects.CATALOG,))
        rows = await asyncio.to_thread(revision_rows, kept, current, swaps)
        return history.CatalogHistory(as_of_seq=sequence, items=rows)

    async def _revision(self, request: web.Request) -> frames.Frame:
        state = self._loop.state
        revision = _revision(request.match_info["revision"])
        held = find_revision(state, revision)
        if held is None:
            return self._no_revision(revision)
        swaps = await Finder(self._loop.connection, state.sequence).past((subjects.CATALOG,))
        rows = await asyncio.to_thread(revision_rows, [held], 0, swaps)
        return api.CatalogView(
            as_of_seq=state.sequence,
            revision=revision,
            hash=held.document.hash,
            author=rows[0].author,
            source=held.document.source,
        )

    async def _diff(self, request: web.Request) -> frames.Frame:
        old, new = _revision(request.match_info["old"]), _revision(request.match_info["new"])
        before, after = (find_revision(self._loop.state, each) for each in (old, new))
        if before is None or after is None:
            return self._no_revision(old if before is None else new)
        changes = await asyncio.to_thread(_differences, before.document, after.document)
        return history.CatalogDiff(
            as_of_seq=self._loop.state.sequence, old=old, new=new, items=changes
        )

    def _no_revision(self, revision: int) -> frames.Refusal:
        no = not_kept(self._loop.state, revision)
        return self._refusal(no.code, no.message, no.why, no.next)


def _target(request: web.Request) -> tuple[str, str]:
    """Kind and name of what is asked about."""
    return request.match_info["kind"], request.match_info["name"]


def _seen(then: Then, state: FleetState) -> Seen:
    """Nothing of what was only measured then is known now: beats, routers, damage."""
    current = CurrentCatalog().read(state)
    held = state.epoch.get(())
    leader = "" if held is None else held.document.holder
    live = Live(now=then.seconds, leader=leader, catalog_refused=current.refused)
    return Seen(state, current, live)


def _differences(before: CatalogRevision, after: CatalogRevision) -> tuple[EntryChange, ...]:
    return catalog_diff.difference(sections(before.source), sections(after.source))


def _newest(state: FleetState) -> float:
    """When control last wrote, by then."""
    return codec.seconds(state.newest_control_at) if state.newest_control_at else 0.0


def _revision(text: str) -> int:
    return number_of("revision", text.removeprefix("r"))
