"""An event is found by its id, wherever it stands in LOG."""

import time

import pytest

from schemas import subjects
from services.log.append import append
from services.log.connect import Connection
from services.log.event_ids import new_event_id
from services.log.finding import NEAR, Finder
from services.log.streams import head
from tests.support.events import an_event, lead

FILLER = [f"flotilla.log.e.filler.{number}" for number in range(2 * NEAR)]


async def fill(log: Connection, fence: int) -> None:
    """More than stands near anything."""
    await append(log, [an_event(subject) for subject in FILLER], fence)


@pytest.fixture
async def fence(log: Connection) -> int:
    return await lead(log)


# spec: O5
async def test_a_decision_is_found_above_what_it_had_seen(log: Connection, fence: int) -> None:
    seen = await head(log)
    await fill(log, fence)
    wanted = an_event("flotilla.log.s.wanted", id=f"{fence}-{seen}-3")
    await append(log, [wanted], fence)
    await fill(log, fence)
    last = await head(log)
    found = await Finder(log, last).find(wanted.id, last)
    assert found is not None
    assert (found.id, found.sequence) == (wanted.id, seen + len(FILLER) + 1)
    assert await Finder(log, found.sequence - 1).find(wanted.id, last) is None


# spec: O5
@pytest.mark.parametrize("ending", ["", "-record"])
async def test_any_other_is_found_by_the_time_in_its_id(
    log: Connection, fence: int, ending: str
) -> None:
    await fill(log, fence)
    wanted = an_event("flotilla.log.s.wanted", id=new_event_id(time.time()) + ending)
    await append(log, [wanted], fence)
    await fill(log, fence)
    last = await head(log)
    found = await Finder(log, last).find(wanted.id, last)
    assert found is not None
    assert found.subject == wanted.subject


# spec: O5
async def test_one_whose_maker_had_a_wrong_clock_is_found_by_the_subjects_that_may_hold_it(
    log: Connection, fence: int
) -> None:
    tomorrow = time.time() + 86400
    wanted = an_event("flotilla.log.s.wanted", id=new_event_id(tomorrow))
    await append(log, [wanted], fence)
    await fill(log, fence)
    last = await head(log)
    assert await Finder(log, last).find(wanted.id, last) is None
    found = await Finder(log, last).find(wanted.id, last, ["flotilla.log.s.*"])
    assert found is not None
    assert found.id == wanted.id


async def test_what_was_read_once_is_not_read_again(log: Connection, fence: int) -> None:
    await append(log, [an_event(subjects.CATALOG, id="one")], fence)
    finder = Finder(log, await head(log))
    (first,) = await finder.past((subjects.CATALOG,))
    await append(log, [an_event(subjects.CATALOG, id="two")], fence)
    assert await finder.past((subjects.CATALOG,)) == [first]
    assert await finder.find("one", 10**6) == first
