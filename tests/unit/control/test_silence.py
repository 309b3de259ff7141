from schemas.ids import NodeId, RouterId
from services.control.deciding.silence import Hearing

NODE, ROUTER = NodeId("node-1"), RouterId("router-1")


def hearing_from(start: float) -> Hearing:
    hearing = Hearing()
    hearing.turn(start, connected=True)
    return hearing


def test_silence_counts_from_the_last_beat() -> None:
    hearing = hearing_from(100.0)
    hearing.node(NODE, 101.0)
    assert hearing.measure(104.0).of(NODE) == 3.0


# spec: L3
def test_who_was_never_heard_is_silent_since_hearing_began() -> None:
    assert hearing_from(100.0).measure(104.0).of(NODE) == 4.0


# spec: L3
def test_nothing_counts_while_nats_is_away() -> None:
    hearing = hearing_from(100.0)
    hearing.node(NODE, 100.0)
    hearing.turn(101.0, connected=False)
    assert hearing.measure(160.0).of(NODE) == 0.0
    hearing.turn(160.0, connected=True)
    assert hearing.measure(161.0).of(NODE) == 1.0


# spec: L3
def test_who_was_heard_before_nats_was_away_is_silent_since_hearing_began_anew() -> None:
    hearing = hearing_from(100.0)
    hearing.node(NODE, 100.0)
    for second in range(101, 160):
        hearing.turn(float(second), connected=False)
    hearing.turn(160.0, connected=True)
    assert hearing.measure(160.5).of(NODE) == 0.5


# spec: L3
def test_hearing_begins_anew_after_a_stall_of_this_process() -> None:
    hearing = hearing_from(100.0)
    hearing.node(NODE, 100.0)
    hearing.turn(160.0, connected=True)
    assert hearing.measure(160.5).of(NODE) == 0.5


def test_who_was_heard_in_another_log_was_not_heard_in_this_one() -> None:
    hearing = hearing_from(100.0)
    hearing.node(NODE, 150.0)
    hearing.begin()
    hearing.joined(NODE, "i", 160.0)
    measure = hearing.measure(161.0)
    assert (measure.of(NODE), NODE in measure.nodes) == (1.0, False)


# spec: R4
def test_who_joins_is_silent_since_it_joined() -> None:
    hearing = hearing_from(100.0)
    hearing.joined(NODE, "i", 160.0)
    assert hearing.measure(161.0).of(NODE) == 1.0
    hearing.joined(NODE, "i", 164.0)  # It says more of itself, and is still not heard.
    assert hearing.measure(165.0).of(NODE) == 5.0
    hearing.joined(NODE, "another start", 166.0)
    assert hearing.measure(167.0).of(NODE) == 1.0


# spec: L3
def test_who_joined_before_hearing_began_is_silent_since_hearing_began() -> None:
    hearing = Hearing()
    hearing.joined(NODE, "i", 60.0)
    hearing.turn(100.0, connected=True)
    assert hearing.measure(104.0).of(NODE) == 4.0


def test_what_an_agent_says_of_itself_is_no_beat() -> None:
    hearing = hearing_from(100.0)
    hearing.node(NODE, 100.0)
    hearing.joined(NODE, "i", 104.0)
    assert hearing.measure(106.0).of(NODE) == 6.0


def test_a_router_counts_for_five_seconds_after_its_beat() -> None:
    hearing = hearing_from(100.0)
    hearing.router(ROUTER, "i", 42, 100.0)
    assert hearing.measure(104.9).routers == {ROUTER: 42}
    assert hearing.measure(105.0).routers == {}


# spec: R7
def test_of_two_routers_with_one_name_the_slower_counts() -> None:
    hearing = hearing_from(100.0)
    hearing.router(ROUTER, "fast", 42, 100.0)
    hearing.router(ROUTER, "slow", 7, 100.1)
    hearing.router(ROUTER, "fast", 43, 101.0)
    assert hearing.measure(101.5).routers == {ROUTER: 7}
    hearing.router(ROUTER, "fast", 44, 106.0)
    assert hearing.measure(106.0).routers == {ROUTER: 44}  # The slow one fell silent.


def test_a_failed_probe_counts_until_the_node_is_heard() -> None:
    hearing = hearing_from(100.0)
    hearing.probed(NODE, 104.0, answered=False)
    assert hearing.measure(105.0).unanswered == {NODE}
    hearing.node(NODE, 105.5)
    assert hearing.measure(106.0).unanswered == frozenset()


def test_a_probe_says_nothing_of_a_node_heard_after_it_was_sent() -> None:
    hearing = hearing_from(100.0)
    hearing.node(NODE, 104.5)
    hearing.probed(NODE, 104.0, answered=False)
    assert hearing.measure(105.0).unanswered == frozenset()


def test_a_node_that_answers_again_is_no_longer_unanswered() -> None:
    hearing = hearing_from(100.0)
    hearing.probed(NODE, 104.0, answered=False)
    hearing.probed(NODE, 106.0, answered=True)
    assert hearing.measure(107.0).unanswered == frozenset()
