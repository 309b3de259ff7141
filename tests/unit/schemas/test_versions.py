"""A form that changed its meaning, read by the program that changed it."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from schemas import codec, subjects
from schemas.documents import Document, Gone, NodeVerdict
from schemas.ids import NodeId
from schemas.versions import FIRST, NEWEST, UPCASTERS, from_older, version_of
from services.fleet.families import FAMILIES
from services.fleet.reading import Newer, Read, Unreadable, read
from services.fleet.state import FleetState
from tests.builders import Script, an_event

OLD = {"node": "node-1", "up": False, "since": "2026-11-30T12:00:00.000000Z"}


def to_conditions(old: dict[str, Any]) -> dict[str, Any]:
    """An imagined first version said `up` where today's says `condition`."""
    return {
        "node": old["node"],
        "condition": "alive" if old["up"] else "unreachable",
        "since": old["since"],
    }


@pytest.fixture
def second() -> Iterator[None]:
    """Today's form of a verdict is version 2."""
    NEWEST[NodeVerdict] = 2
    UPCASTERS[NodeVerdict, FIRST] = to_conditions
    yield
    del NEWEST[NodeVerdict], UPCASTERS[NodeVerdict, FIRST]


def verdict_event(data: object, version: int) -> bytes:
    return an_event(data, version=version)


SUBJECT = subjects.node_verdict(NodeId("node-1"))


@pytest.mark.usefixtures("second")
def test_an_older_form_is_folded_as_todays() -> None:  # spec: L5
    state = Script().state
    state.apply(state.sequence + 1, SUBJECT, verdict_event(OLD, FIRST))
    held = state.verdict(NodeId("node-1"))
    assert held is not None
    assert held.document.condition == "unreachable"
    assert (state.unreadable, state.halted()) == ({}, ())


@pytest.mark.usefixtures("second")
def test_both_forms_give_the_same_state() -> None:  # spec: L4
    old, new = Script().state, Script().state
    old.apply(old.sequence + 1, SUBJECT, verdict_event(OLD, FIRST))
    new.apply(new.sequence + 1, SUBJECT, verdict_event(to_conditions(OLD), 2))
    assert old.dump() == new.dump()


@pytest.mark.usefixtures("second")
def test_the_reader_of_single_documents_takes_both_forms_and_no_newer_one() -> None:  # spec: L5
    expected = msgspec.convert(to_conditions(OLD), NodeVerdict)
    match read(SUBJECT, verdict_event(OLD, FIRST), NodeVerdict):
        case Read(document=document):
            assert document == expected
        case other:
            pytest.fail(other.reason)
    assert read(SUBJECT, verdict_event(OLD, 3), NodeVerdict) == Newer("test.happened", 3, 2)


@pytest.mark.usefixtures("second")
def test_an_older_goodbye_is_still_a_goodbye() -> None:
    gone = codec.raw({"gone": True, "id": "node-1"})
    assert from_older(gone, NodeVerdict, FIRST) == Gone(id="node-1")
    assert isinstance(
        read(SUBJECT, verdict_event({"gone": True, "id": "x"}, FIRST), NodeVerdict), Unreadable
    )


@pytest.mark.usefixtures("second")
@pytest.mark.parametrize(
    ("data", "version"),
    [({"node": "node-1"}, 1), ([], 1), (OLD, 0), (OLD, -1), ({**OLD, "node": 7}, 1)],
)
def test_what_no_version_wrote_is_unreadable(data: object, version: int) -> None:  # spec: L5
    state = FleetState()
    state.apply(1, SUBJECT, verdict_event(data, version))
    assert set(state.unreadable) == {SUBJECT}
    assert isinstance(read(SUBJECT, verdict_event(data, version), NodeVerdict), Unreadable)


def test_there_is_a_way_from_every_version_that_was() -> None:
    kinds: set[type[Document]] = {family.struct for family in FAMILIES}
    assert set(NEWEST) <= kinds
    wanted = {(kind, each) for kind in NEWEST for each in range(FIRST, version_of(kind))}
    assert set(UPCASTERS) == wanted
