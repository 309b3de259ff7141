"""A last document that cannot be read, and of which no earlier version is left."""

from collections.abc import Callable

import pytest

from schemas import subjects
from schemas.ids import ModelName, NodeId
from services.control.deciding.drafts import Draft
from services.fleet.state import FleetState
from tests.builders import a_model, a_node, an_event
from tests.support.deciding import Fleet

TINY = ModelName("tiny")
BAD = b'{"garbage'
MAY_BE_SKIPPED = an_event({}, version=99, optional=True)


def a_serving_fleet(replicas: int = 2) -> Fleet:
    fleet = Fleet(a_node("n1"), a_node("n2"), a_node("n3"), models=[a_model(replicas=replicas)])
    fleet.turn()
    fleet.ready()
    assert fleet.ask().drafts == ()
    return fleet


def restarted(fleet: Fleet, *bad: str, payload: bytes = BAD) -> Fleet:
    """As one that reads the log anew and finds only this on these subjects."""
    past = [entry for entry in fleet.script.log if entry[1] not in bad]
    past += [(len(fleet.script.log) + n, subject, payload) for n, subject in enumerate(bad, 1)]
    fleet.script.log[:] = past
    fleet.script.state = FleetState()
    for sequence, subject, payload in past:
        fleet.script.state.apply(sequence, subject, payload)
    return fleet


def subjects_of(node: str) -> dict[str, str]:
    return {
        "info": subjects.node_info(NodeId(node)),
        "shard": subjects.node_shard(NodeId(node), 0),
        "assignment": subjects.assignment(NodeId(node)),
    }


def touching(drafts: tuple[Draft, ...], node: str, slot: int) -> list[str]:
    """What was decided of a node and its replica."""
    own = (subjects.assignment(NodeId(node)), subjects.replica(TINY, slot))
    return [draft.subject for draft in drafts if draft.subject in own]


@pytest.mark.parametrize("payload", [BAD, MAY_BE_SKIPPED])
@pytest.mark.parametrize("what", ["info", "shard", "assignment"])
def test_nothing_is_decided_of_a_node_that_is_not_known(what: str, payload: bytes) -> None:
    fleet = a_serving_fleet()
    node = fleet.nodes()[0]
    before = fleet.endpoints()
    restarted(fleet, subjects_of(node)[what], payload=payload)
    assert fleet.turn().drafts == ()
    assert fleet.endpoints() == before


# spec: L5
def test_a_replica_whose_document_is_lost_stands_as_its_node_was_told() -> None:
    fleet = a_serving_fleet()
    restarted(fleet, subjects.replica(TINY, 0))
    assert fleet.turn().drafts == ()


def swapped_away(fleet: Fleet) -> None:
    fleet.swap()


def swapped_profile(fleet: Fleet) -> None:
    fleet.swap(a_model(replicas=2, source="/models/other.gguf"))


def scaled_down(fleet: Fleet) -> None:
    fleet.swap(a_model(replicas=1))


def silent_for_long(fleet: Fleet) -> None:
    fleet.wait(600, *fleet.heard)


@pytest.mark.parametrize("what", ["info", "shard", "assignment", "replica"])
@pytest.mark.parametrize("change", [swapped_away, swapped_profile, scaled_down, silent_for_long])
def test_whatever_else_happens_it_is_left_as_it_stands(
    what: str, change: Callable[[Fleet], None]
) -> None:
    fleet = a_serving_fleet()
    node = fleet.nodes()[0]
    bad = (subjects_of(node) | {"replica": subjects.replica(TINY, 0)})[what]
    told = fleet.assigned(node)
    restarted(fleet, bad)
    change(fleet)
    for _ in range(4):
        drafts = fleet.turn().drafts
        assert touching(drafts, node, 0) == []
        assert "tiny-0-1" in fleet.endpoints()
        fleet.obey(node)
        fleet.wait(20, *(fleet.heard if change is silent_for_long else ()))
    assert what == "assignment" or fleet.assigned(node) == told


@pytest.mark.parametrize("what", ["shard", "assignment"])
def test_nothing_new_is_placed_on_a_node_that_is_not_known(what: str) -> None:
    fleet = a_serving_fleet(replicas=1)
    node = fleet.nodes()[0]
    restarted(fleet, subjects_of(node)[what])
    fleet.swap(a_model(replicas=6))
    fleet.turn()
    assert len(fleet.nodes()) == 6
    assert fleet.nodes().count(node) == 1


def test_a_good_document_gives_it_back() -> None:
    fleet = a_serving_fleet()
    node = fleet.nodes()[0]
    info = fleet.state.info(NodeId(node))
    assert info is not None
    restarted(fleet, subjects.node_info(NodeId(node)))
    fleet.swap()
    assert touching(fleet.turn().drafts, node, 0) == []
    fleet.script.add(info.document)
    assert subjects.replica(TINY, 0) in touching(fleet.turn().drafts, node, 0)
