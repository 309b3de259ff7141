"""An hour in which control hears nobody: its own absence, or that of NATS, while nodes beat on."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from schemas.documents import NodeVerdict
from schemas.ids import NodeId
from services.control.deciding.silence import STALL_SECONDS, UNREACHABLE_SECONDS, Hearing
from tests.builders import a_model, a_node
from tests.support.deciding import Fleet

NODES = tuple(NodeId(f"node-{n}") for n in range(1, 7))
HOUR = 3600.0
PATIENCE = 20.0


class Observed:
    """A fleet whose silence is measured by the real `Hearing`; monotonic time begins at 0."""

    def __init__(self) -> None:
        model = replace(a_model(replicas=6), patience_seconds=PATIENCE)
        self.fleet = Fleet(*(a_node(node) for node in NODES), models=[model])
        self.fleet.turn()
        self.fleet.ready()
        self.hearing = Hearing()
        self.monotonic = 0.0
        self.written: list[tuple[float, str]] = []
        self.live(10)

    def live(self, seconds: float, *, dead: tuple[NodeId, ...] = ()) -> None:
        """The loop turns twice a second; nodes that live beat each time."""
        for _ in range(round(seconds * 2)):
            self.away(0.5)
            self.hearing.turn(self.monotonic, connected=True)
            for node in NODES:
                if node not in dead:
                    self.hearing.node(node, self.monotonic)
            self.decide()

    def decide(self) -> None:
        silence = self.hearing.measure(self.monotonic)
        self.fleet.hearing = silence.hearing_seconds
        self.fleet.heard = dict(silence.nodes)
        drafts = self.fleet.turn().drafts
        self.written += [(self.monotonic, draft.subject) for draft in drafts]

    def away(self, seconds: float) -> None:
        """Time passes, and the loop does not turn."""
        self.monotonic += seconds
        self.fleet.now += seconds

    def restarted(self) -> None:
        self.hearing = Hearing()

    def verdict(self, node: NodeId) -> NodeVerdict:
        held = self.fleet.state.verdict(node)
        return (
            NodeVerdict(node=node, condition="alive", since="") if held is None else held.document
        )


def stopped(seen: Observed) -> None:
    seen.away(HOUR)


def stopped_and_started_again(seen: Observed) -> None:
    seen.away(HOUR)
    seen.restarted()


def without_nats(seen: Observed) -> None:
    for second in range(round(HOUR)):
        seen.away(1)
        seen.hearing.turn(seen.monotonic, connected=False)
        if second % 60 == 0:
            seen.decide()


def hearing_in_between(seen: Observed) -> None:
    """It hears for four seconds at a time, and stalls between."""
    for _ in range(200):
        seen.away(HOUR / 200)
        seen.live(4)


Absence = Callable[[Observed], None]
WHOLE: tuple[Absence, ...] = (stopped, stopped_and_started_again, without_nats)


# spec: L3 R4
# case: ND-01
@pytest.mark.parametrize("absence", [*WHOLE, hearing_in_between], ids=lambda each: each.__name__)
def test_an_hour_of_hearing_nobody_judges_nobody_and_moves_nothing(absence: Absence) -> None:
    seen = Observed()
    before, seen.written = seen.fleet.state.dump(), []
    absence(seen)
    seen.live(120)
    assert seen.written == []
    assert seen.fleet.state.dump() == before


# spec: L3
@pytest.mark.parametrize("absence", WHOLE, ids=lambda each: each.__name__)
def test_who_died_meanwhile_is_found_within_its_time_after_hearing_began(absence: Absence) -> None:
    seen, dead = Observed(), NODES[0]
    seen.live(0.5, dead=(dead,))
    absence(seen)
    seen.live(UNREACHABLE_SECONDS, dead=(dead,))
    assert seen.verdict(dead).condition == "alive"
    seen.live(0.5, dead=(dead,))  # Hearing began with the first of these turns.
    assert seen.verdict(dead).condition == "unreachable"
    seen.live(PATIENCE - UNREACHABLE_SECONDS, dead=(dead,))
    assert seen.verdict(dead).lost_patience_seconds == PATIENCE
    assert seen.fleet.nodes().count(dead) == 1
    assert len(seen.fleet.replicas()) == len(NODES) + 1  # Another one is placed for it.


# spec: L3 R4
def test_more_than_half_that_died_meanwhile_engage_the_brake() -> None:
    seen, dead = Observed(), NODES[:4]
    stopped(seen)
    seen.live(300, dead=dead)
    assert [seen.verdict(node).condition for node in dead] == ["unreachable"] * 4
    assert seen.fleet.state.brake[()].document.engaged


# spec: L3 R1
def test_placement_endpoints_and_rolls_wait_for_no_hearing() -> None:
    seen = Observed()
    fleet = seen.fleet
    seen.restarted()
    fleet.swap(
        a_model("other", replicas=2), replace(a_model(replicas=6), patience_seconds=PATIENCE)
    )
    seen.decide()
    assert fleet.hearing == 0
    assert len(fleet.replicas("other")) == 2
    for replica in fleet.replicas("other"):
        fleet.report(replica)
    seen.decide()
    assert len(fleet.endpoints("other")) == 2
    fleet.swap(a_model("other", replicas=2, source="/models/new.gguf"))
    seen.decide()
    assert len(fleet.replicas("other")) == 3  # The new one beside the old.


def test_a_stall_shorter_than_two_seconds_is_none() -> None:
    seen = Observed()
    seen.away(STALL_SECONDS - 0.5)
    seen.live(1)
    assert seen.fleet.hearing > 10
