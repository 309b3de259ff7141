"""The fold over logs in which a recovery, or several, began the state anew."""

import random

from hypothesis import given
from hypothesis import strategies as st

from schemas import subjects
from schemas.documents import Gone
from schemas.ids import LogId, NodeId
from services.fleet.state import FleetState
from tests.builders import (
    LOG_ID,
    a_genesis,
    a_node,
    a_pointer,
    a_replica,
    a_shard,
    a_verdict,
    an_event,
    subject_of,
)

SECOND, THIRD, FOREIGN = (LogId(each * 32) for each in "bcf")
Message = tuple[int, str, bytes]


def folded(messages: list[Message]) -> FleetState:
    state = FleetState()
    for message in messages:
        state.apply(*message)
    return state


def last_of_each(messages: list[Message]) -> list[Message]:
    """What the server keeps in STATE."""
    last = {m[1]: m for m in messages if m[1].startswith(subjects.STATE_ROOT)}
    return sorted(last.values())


def a_life(rng: random.Random, began: int, log: LogId, length: int) -> list[Message]:
    """What stands in a log after its genesis: entities that come, go and change, and bad messages."""
    found: list[Message] = []
    for sequence in range(began + 1, began + 1 + length):
        slot, node = rng.randrange(3), f"node-{rng.randrange(2)}"
        replica = a_replica(slot=slot, node=node, generation=sequence)
        document = rng.choice(
            [a_node(node), replica, a_shard(replica), a_verdict(node), a_pointer(sequence)]
        )
        subject = subject_of(document, shard_slot=slot)
        payload = rng.choice(
            [
                an_event(document, log=log),
                an_event(document, log=log),
                an_event(Gone(id=f"x-{sequence}"), log=log),
                an_event(document, log=log, version=9, optional=True),
                an_event(document, log=LOG_ID),  # A writer that has not moved over.
                b"garbage",
            ]
        )
        found.append((sequence, subject, payload))
    return found


def a_recovered_log(rng: random.Random, recoveries: int) -> list[Message]:
    lineage: list[LogId] = []
    messages: list[Message] = []
    for log in (LOG_ID, SECOND, THIRD)[: recoveries + 1]:
        parent = lineage[0] if lineage else None
        genesis = a_genesis(log, parent, tuple(lineage))
        messages.append((len(messages) + 1, subjects.GENESIS, an_event(genesis, log=log)))
        messages += a_life(rng, len(messages), log, rng.randrange(20))
        lineage.insert(0, log)
    return messages


@given(seed=st.integers(0, 2**32 - 1), recoveries=st.integers(0, 2))
def test_state_and_tail_give_the_lived_state_across_recoveries(seed: int, recoveries: int) -> None:
    # spec: L4
    rng = random.Random(seed)
    messages = a_recovered_log(rng, recoveries)
    cut = rng.randrange(len(messages) + 1)
    kept = last_of_each(messages[:cut])
    read = folded(kept)
    # What a bad last message stood on is read from LOG.
    earlier = [m for m in messages[:cut] if m[1] in read.unreadable or m[1] in read.unknown]
    rebuilt = folded(sorted({*earlier, *kept}) + messages[cut:])
    assert rebuilt.dump() == folded(messages).dump()


@given(seed=st.integers(0, 2**32 - 1))
def test_order_between_subjects_changes_nothing(seed: int) -> None:  # spec: L4, L8
    rng = random.Random(seed)
    script = a_recovered_log(rng, 2)
    geneses = [m for m in script if m[1] == subjects.GENESIS]
    # Messages change places; those of one subject keep their order.
    places = [m[1] for m in script]
    rng.shuffle(places)
    queues = {subject: iter([m for m in script if m[1] == subject]) for subject in places}
    shuffled = folded(geneses + [next(queues[subject]) for subject in places])
    assert shuffled.dump() == folded(script).dump()


def test_a_recovery_voids_every_table_and_index() -> None:
    replica = a_replica()
    before = [
        (1, subjects.GENESIS, an_event(a_genesis())),
        (2, subject_of(a_node()), an_event(a_node())),
        (3, subject_of(replica), an_event(replica)),
        (4, subject_of(a_shard(replica)), an_event(a_shard(replica))),
        (5, subjects.CATALOG, b"garbage"),
        (6, "flotilla.log.s.moon", an_event({}, kind="moon.rose")),
        (7, subjects.replica(replica.model, 4), an_event(Gone(id="tiny-4-1"))),
    ]
    state = folded(before)
    assert state.unreadable
    assert state.unknown
    genesis = an_event(a_genesis(SECOND, LOG_ID, (LOG_ID,)), log=SECOND)
    state.apply(8, subjects.GENESIS, genesis)
    assert (state.log_id, state.began) == (SECOND, 8)
    assert (state.infos, state.replicas, state.shards) == ({}, {}, {})
    assert (state.gone, state.unreadable, state.unknown) == ({}, {}, {})
    assert (state.replicas, state.shards_by_replica) == ({}, {})
    state.apply(3, subject_of(replica), an_event(replica))
    assert state.replicas == {}


def test_a_reader_that_slept_through_two_recoveries_moves_over_too() -> None:
    state = folded([(1, subjects.GENESIS, an_event(a_genesis()))])
    third = an_event(a_genesis(THIRD, SECOND, (SECOND, LOG_ID)), log=THIRD)
    state.apply(9, subjects.GENESIS, third)
    assert state.log_id == THIRD


def test_a_foreign_genesis_is_set_aside_and_voids_nothing() -> None:  # spec: L5
    state = folded(
        [
            (1, subjects.GENESIS, an_event(a_genesis())),
            (2, subject_of(a_node()), an_event(a_node())),
            (3, subjects.GENESIS, an_event(a_genesis(FOREIGN), log=FOREIGN)),
        ]
    )
    assert state.log_id == LOG_ID
    assert state.info(NodeId("node-1")) is not None
    assert state.unreadable[subjects.GENESIS].reason == (
        f"genesis of log {FOREIGN}, which does not go on from {LOG_ID}"
    )
