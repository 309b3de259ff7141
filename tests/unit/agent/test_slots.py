from schemas.ids import ReplicaId
from services.agent.slots import Slots

A, B, C = ReplicaId("a-0-1"), ReplicaId("b-0-1"), ReplicaId("c-0-1")


def test_a_replica_keeps_its_slot() -> None:
    slots = Slots()
    assert [slots.take(A), slots.take(B), slots.take(A)] == [0, 1, 0]


def test_the_lowest_free_slot_is_used_again() -> None:
    slots = Slots()
    for replica in (A, B):
        slots.take(replica)
    slots.free(A)
    assert slots.take(C) == 0
    assert slots.take(A) == 2


def test_what_stood_there_before_is_not_given_away() -> None:
    slots = Slots()
    slots.keep(A, 0)
    slots.keep(B, 2)
    assert slots.take(C) == 1


def test_two_replicas_never_share_a_slot() -> None:
    slots = Slots()
    assert slots.keep(A, 0)
    assert not slots.keep(B, 0)
    assert slots.holds(A, 0)
    assert not slots.holds(B, 0)
    assert slots.take(B) == 1
    assert slots.keep(A, 0)
