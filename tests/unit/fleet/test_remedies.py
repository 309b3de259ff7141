"""Who puts right what cannot be read: every family, with a last good value and without one."""

from collections.abc import Callable
from typing import get_args

import pytest
from msgspec import Raw

from schemas import subjects
from schemas.documents import (
    Assignment,
    CatalogRevision,
    ControlBrake,
    ControlEpoch,
    Gone,
    RouterReport,
)
from schemas.frames import Accepted, Refusal
from schemas.ids import ControlId, EventId, ModelName, NodeId, RouterId
from schemas.recovery import Mend, Putting
from services.control.commanding.commands import Actor
from services.control.commanding.mending import plan_mend
from services.control.commanding.moment import Moment
from services.control.deciding.current import CurrentCatalog
from services.fleet.families import FAMILIES, family_of
from services.fleet.remedies import Remedies, Remedy
from services.fleet.state import FleetState
from tests.builders import AT, a_model, a_node, a_verdict, an_event
from tests.support.deciding import Fleet

TINY = ModelName("tiny")
N1, N2 = NodeId("n1"), NodeId("n2")
REPORT = subjects.router_report(RouterId("router-1"), 0)
STRANGE = "flotilla.log.s.strange.thing"
ACTOR = Actor("tests", "127.0.0.1", EventId("command-1"))
BOTH: tuple[Putting, ...] = ("last-good", "gone")

Ways = tuple[Putting, ...]
EXPECTED: dict[str, tuple[Ways, Ways]] = {
    subjects.GENESIS: ((), ()),
    subjects.CATALOG: (("last-good",), ()),
    subjects.catalog_revision(1): (BOTH, ("gone",)),
    subjects.node_info(N1): ((), ()),
    subjects.node_shard(N1, 0): ((), ()),
    subjects.node_verdict(N1): (BOTH, ("gone",)),
    subjects.replica(TINY, 0): (BOTH, ("gone",)),
    subjects.assignment(N1): (("last-good",), ("gone",)),
    subjects.endpoints(TINY, 0): (BOTH, ("gone",)),
    subjects.placement(TINY): (BOTH, ("gone",)),
    subjects.CONTROL_EPOCH: ((), ()),
    REPORT: (("gone",), ("gone",)),
    subjects.CONTROL_BRAKE: (("last-good",), ("gone",)),
    STRANGE: (BOTH, ("gone",)),
}
"""What is taken where a last good value is kept, and where none is. The node n1 runs a replica."""


def a_fleet() -> Fleet:
    """Something of every family. The node n2 runs nothing."""
    fleet = Fleet(a_node("n1"), a_node("n2"), models=[a_model()])
    fleet.turn()
    fleet.ready()
    put = fleet.script.put
    put(
        subjects.catalog_revision(1),
        CatalogRevision(revision=1, hash="h", source=Raw(b'{"models":{}}')),
    )
    put(subjects.node_verdict(N1), a_verdict("n1", "alive", patience=None))
    put(subjects.CONTROL_EPOCH, ControlEpoch(holder=ControlId("c"), incarnation="i"))
    put(subjects.CONTROL_BRAKE, ControlBrake(engaged=False, since=AT, silent=0, nodes=2))
    router = RouterId("router-1")
    put(REPORT, RouterReport(router=router, incarnation="i", since=AT, chunk=0, chunks=1))
    put(STRANGE, Gone(id="strange"))
    assert fleet.nodes() == ["n1"]
    return fleet


def spoilt(fleet: Fleet, *bad: str, kept: bool = False, payload: bytes = b"garbage") -> FleetState:
    """Read anew; of bad subjects that are not kept nothing but the payload stands in the log."""
    log = [entry for entry in fleet.script.log if kept or entry[1] not in bad]
    log += [(0, subject, payload) for subject in bad]
    fleet.script.log[:] = [(number, *entry[1:]) for number, entry in enumerate(log, 1)]
    fleet.script.state = FleetState()
    for entry in fleet.script.log:
        fleet.state.apply(*entry)
    return fleet.state


def of(state: FleetState, subject: str) -> Remedy:
    return Remedies(state).of(subject)


def asked(fleet: Fleet, subject: str, to: Putting) -> Accepted | Refusal:
    """Mend it so, and fold what that writes."""
    moment = Moment(fleet.state, CurrentCatalog().read(fleet.state))
    planned = plan_mend(moment, Mend(subject=subject, to=to), ACTOR)
    fleet.fold(draft for draft in planned.drafts if draft.subject == subject)
    answer = planned.answer(1)
    assert isinstance(answer, Accepted | Refusal)
    return answer


def test_every_family_is_thought_of() -> None:
    known = {found[0].table for found in map(family_of, EXPECTED) if found is not None}
    assert known == {family.table for family in FAMILIES}


# spec: L5
@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("payload", [b"garbage", an_event({}, version=99)])
@pytest.mark.parametrize("subject", EXPECTED)
def test_what_is_offered_is_taken_and_what_is_not_is_refused(
    subject: str, payload: bytes, kept: bool
) -> None:
    ways = EXPECTED[subject][0 if kept else 1]
    for to in get_args(Putting):
        fleet = a_fleet()
        remedy = of(spoilt(fleet, subject, kept=kept, payload=payload), subject)
        assert remedy.ways == ways
        assert remedy.command or remedy.waits
        answer = asked(fleet, subject, to)
        if to in ways:
            assert isinstance(answer, Accepted)
            assert subject not in fleet.state.unreadable | fleet.state.unknown
        else:
            assert isinstance(answer, Refusal)
            assert answer.next == remedy.command


def is_lost(fleet: Fleet) -> None:
    fleet.script.put(subjects.node_verdict(N1), a_verdict("n1"))


def is_removed(fleet: Fleet) -> None:
    fleet.script.put(subjects.node_info(N1), Gone(id="n1"))


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("away", [is_lost, is_removed])
def test_what_an_agent_wrote_that_never_comes_back_may_be_retired(
    away: Callable[[Fleet], None], kept: bool
) -> None:
    for subject in (subjects.node_info(N1), subjects.node_shard(N1, 0)):
        fleet = a_fleet()
        away(fleet)
        if away is is_removed and subject == subjects.node_info(N1) and not kept:
            continue  # Then it is a node of which nobody knows that it was removed.
        remedy = of(spoilt(fleet, subject, kept=kept), subject)
        assert remedy.ways == ("gone",)
        assert remedy.command.endswith("--gone")
        assert isinstance(asked(fleet, subject, "gone"), Accepted)


def test_a_slot_that_nothing_decided_can_be_in_may_be_retired_and_its_agent_is_named() -> None:
    """n1 tells of all that it was told to run, in another slot; n2 was told nothing."""
    for node in (N1, N2):
        for slot in ("3", "none"):
            subject = subjects.node_slot(node, slot)
            remedy = of(spoilt(a_fleet(), subject), subject)
            assert remedy.ways == ("gone",)
            assert f"agent {node}" in remedy.waits


def test_a_slot_may_be_that_of_a_replica_whose_node_has_not_told_of_it() -> None:
    fleet = a_fleet()
    fleet.swap(a_model(replicas=4))
    fleet.turn()
    told = {subjects.node_slot(NodeId(node), "3") for node in fleet.nodes()}
    state = spoilt(fleet, *told)
    assert {of(state, subject).ways for subject in told} == {()}


def test_a_slot_is_no_slot_to_retire_while_nobody_knows_what_its_node_was_told() -> None:
    subject = subjects.node_shard(N2, 3)
    assert of(spoilt(a_fleet(), subject, subjects.assignment(N2)), subject).ways == ()


def test_a_node_that_was_told_nothing_and_runs_nothing_may_be_forgotten() -> None:
    subject = subjects.node_info(N2)
    assert of(spoilt(a_fleet(), subject), subject).ways == ("gone",)


def test_what_a_node_was_told_is_made_again_where_it_comes_out_the_same() -> None:
    fleet = a_fleet()
    subject = subjects.assignment(N1)
    before = fleet.assigned("n1")
    spoilt(fleet, subject)
    assert isinstance(asked(fleet, subject, "gone"), Accepted)
    fleet.turn()
    held = fleet.state.assignment(N1)
    assert held is not None
    assert held.document == Assignment(node=N1, shards=tuple(before.values()))


def without_its_revision(fleet: Fleet) -> None:
    fleet.script.put(subjects.catalog_revision(1), Gone(id="r1"))


def without_its_replica(fleet: Fleet) -> None:
    fleet.script.put(subjects.replica(TINY, 0), Gone(id="tiny-0-1"))


def without_its_description(fleet: Fleet) -> None:
    fleet.script.put(subjects.node_info(N1), Gone(id="n1"))


@pytest.mark.parametrize(
    "lacks", [without_its_revision, without_its_replica, without_its_description]
)
def test_what_a_node_was_told_is_kept_where_it_would_come_out_as_less(
    lacks: Callable[[Fleet], None],
) -> None:
    fleet, subject = a_fleet(), subjects.assignment(N1)
    lacks(fleet)
    remedy = of(spoilt(fleet, subject), subject)
    assert (remedy.ways, remedy.command) == ((), "")
    assert "left as it is" in remedy.waits


def test_nor_while_a_replica_of_which_nobody_knows_where_it_is_may_be_there() -> None:
    subject = subjects.assignment(N1)
    state = spoilt(a_fleet(), subject, subjects.replica(TINY, 7))
    assert of(state, subject).ways == ()
