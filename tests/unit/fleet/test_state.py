import json
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import subjects
from schemas.documents import Gone
from schemas.ids import LogId, NodeId, ReplicaId
from services.fleet.families import FAMILIES, Family, family_of
from services.fleet.state import FleetState
from services.fleet.telling.happened import happened
from tests.builders import (
    AT,
    LOG_ID,
    Script,
    a_genesis,
    a_node,
    a_pointer,
    a_replica,
    a_shard,
    a_verdict,
    an_event,
)


def busy_log() -> Script:
    script = Script(a_node("node-1"), a_node("node-2"), a_pointer(1))
    first, second = a_replica(slot=0), a_replica(slot=1, node="node-2")
    script.add(first, second, a_shard(first, "loading"), a_shard(second, "ready"))
    script.put(subjects.command("apply"), {"verb": "apply"})
    script.add(a_shard(first, "ready"), a_verdict("node-2"), a_pointer(2))
    script.put(subjects.replica(second.model, 1), Gone(id=second.id))
    script.put(subjects.node_shard(NodeId("node-2"), 0), Gone(id=second.id))
    script.add(a_replica(slot=1, node="node-1", generation=2, port=17001))
    return script


def folded(messages: list[tuple[int, str, bytes]]) -> FleetState:
    state = FleetState()
    for sequence, subject, payload in messages:
        state.apply(sequence, subject, payload)
    return state


def last_of_each(messages: list[tuple[int, str, bytes]]) -> list[tuple[int, str, bytes]]:
    """What the server keeps in STATE."""
    last = {m[1]: m for m in messages if m[1].startswith(subjects.STATE_ROOT)}
    return sorted(last.values())


@pytest.mark.parametrize("cut", range(16))
def test_state_and_tail_give_the_lived_state_at_every_cut(cut: int) -> None:  # spec: L4
    script = busy_log()
    rebuilt = folded(last_of_each(script.log[:cut]) + script.log[cut:])
    assert rebuilt.dump() == script.state.dump()


@given(seed=st.integers(0, 2**32 - 1))
def test_order_between_subjects_and_repeats_change_nothing(seed: int) -> None:  # spec: L4, L8
    script = busy_log()
    rng = random.Random(seed)
    messages = script.log * 2
    rng.shuffle(messages)
    # The genesis comes first in any log; its subject sorts by sequence in STATE too.
    assert folded([script.log[0], *messages]).dump() == script.state.dump()


def test_indexes_follow_their_tables() -> None:
    state = busy_log().state
    assert state.replica(ReplicaId("tiny-0-1")) is state.replicas["tiny", "0"]
    assert state.replica(ReplicaId("tiny-1-2")) is state.replicas["tiny", "1"]
    assert [state.replica(ReplicaId(other)) for other in ("tiny-1-1", "tiny-2-1", "?")] == [
        None
    ] * 3
    assert [held.document.phase for held in state.shards_of(a_replica().id)] == ["ready"]
    assert state.shards_of(a_replica(slot=1).id) == ()


def test_a_gone_entity_leaves_its_id_behind() -> None:
    script = busy_log()
    script.put(subjects.replica(a_replica().model, 0), Gone(id="tiny-0-1"))
    assert script.state.gone[subjects.replica(a_replica().model, 0)].document.id == "tiny-0-1"
    assert script.state.replica(ReplicaId("tiny-0-1")) is None


def test_a_corrupt_payload_keeps_the_last_good_value() -> None:  # spec: L5
    script = Script(a_node("node-1"))
    subject = subjects.node_info(NodeId("node-1"))
    script.state.apply(90, subject, b"\x00 not json")
    held = script.state.info(NodeId("node-1"))
    assert held is not None
    assert held.document == a_node("node-1")
    assert script.state.unreadable[subject].sequence == 90
    script.state.apply(91, subject, an_event(a_node("node-1", cores=2)))
    assert script.state.unreadable == {}


@pytest.mark.parametrize("name", ["node.node-1.info", "moon.1"])
def test_what_is_nested_too_deeply_is_unreadable_and_ends_no_reader(name: str) -> None:  # spec: L5
    subject, depth = f"flotilla.log.s.{name}", 100_000
    whole = an_event({}).replace(b"{}", b"[" * depth + b"]" * depth)
    script = Script(a_node("node-1"))
    for sequence, payload in ((90, b"[" * depth), (91, whole)):
        script.state.apply(sequence, subject, payload)
        assert script.state.unreadable[subject].sequence == sequence
        told = happened(sequence, subject, payload)
        assert (told.event, told.document) == (None, None)
    assert script.state.info(NodeId("node-1")) is not None


def test_a_message_of_another_log_is_set_aside() -> None:
    script = Script(a_pointer(1))
    script.state.apply(50, subjects.CATALOG, an_event(a_pointer(7), log=LogId("f" * 32)))
    assert script.state.catalog[()].document.revision == 1
    assert "belongs to log ffffffff" in script.state.unreadable[subjects.CATALOG].reason


def test_a_newer_version_or_unknown_family_halts_unless_optional() -> None:  # spec: L5
    script = Script(a_pointer(1))
    assert script.state.halted() == ()
    script.state.apply(10, "flotilla.log.s.moon.1", an_event({}, kind="moon.rose", optional=True))
    assert script.state.halted() == ()
    script.state.apply(
        11, subjects.CATALOG, an_event(a_pointer(2), kind="catalog.swapped", version=9)
    )
    assert script.state.halted() == (
        "flotilla.log.s.catalog holds catalog.swapped v9 at sequence 11; this version knows v1",
    )
    assert script.state.catalog[()].document.revision == 1


def test_unknown_fields_and_labels_are_ignored() -> None:  # spec: L5
    script = Script()
    document = json.loads(msgspec.json.encode(a_pointer(3))) | {"colour": "green"}
    script.put(subjects.CATALOG, document, kind="catalog.painted")
    assert script.state.catalog[()].document == a_pointer(3)


def test_happenings_move_the_sequence_and_nothing_else() -> None:
    script = Script(a_pointer(1))
    before = json.loads(script.state.dump())
    script.put(subjects.command("drain"), {"verb": "drain"})
    after = json.loads(script.state.dump())
    assert after.pop("sequence") == before.pop("sequence") + 1
    assert after == before


def test_the_fleets_clock_is_controls_and_no_word_of_an_agent_moves_it() -> None:  # spec: L2, S1
    script = Script(a_pointer(1))
    late = an_event(a_node(), src="control/liar", at_="2099-01-01T00:00:00.000000Z")
    script.state.apply(3, subjects.node_info(NodeId("node-1")), late)
    assert script.state.newest_control_at == AT
    no_time = an_event(a_pointer(2), at_="9999-zz")
    script.state.apply(4, subjects.CATALOG, no_time)
    assert script.state.newest_control_at == AT
    assert set(script.state.unreadable) == {subjects.CATALOG}


def test_the_epoch_is_not_part_of_the_dump() -> None:
    script = Script(a_pointer(1))
    script.state.apply(
        2, subjects.CONTROL_EPOCH, an_event({"holder": "c1", "incarnation": "i", "address": ""})
    )
    assert script.state.fence == 2
    assert b"holder" not in script.state.dump()


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: ".".join(f.pattern))
def test_each_family_is_found_by_its_own_subject(family: Family) -> None:
    subject = subjects.STATE_ROOT + ".".join("0" if p == "*" else p for p in family.pattern)
    found = family_of(subject)
    assert found is not None
    assert found[0] is family


def test_the_log_id_is_known_from_its_genesis() -> None:
    assert Script().state.log_id == LOG_ID
    assert folded([(1, subjects.GENESIS, an_event(a_genesis()))]).log_id == LOG_ID


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: ".".join(f.pattern))
def test_gone_is_never_taken_for_a_document(family: Family) -> None:
    """A message is first read as its family's document: that must not fit what says that it is gone."""
    script = Script()
    subject = subjects.STATE_ROOT + ".".join("0" if p == "*" else p for p in family.pattern)
    script.put(subject, Gone(id="0-0-1"))
    assert script.state.gone[subject].document == Gone(id="0-0-1")
    assert script.state.unreadable == {}


def test_an_envelope_that_is_wrong_is_unreadable_however_good_its_document() -> None:  # spec: L5
    script = Script(a_pointer(1))
    event = json.loads(an_event(a_pointer(2))) | {"seen": "never"}
    script.state.apply(50, subjects.CATALOG, msgspec.json.encode(event))
    assert script.state.catalog[()].document == a_pointer(1)
    assert "$.seen" in script.state.unreadable[subjects.CATALOG].reason
