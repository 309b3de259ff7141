from schemas import codec
from schemas.ids import ModelName, ReplicaId, RouterId
from services.router.idle import CHUNK_BYTES, KEPT_SECONDS, LastUsed, Uses, report
from tests.builders import AT, NOW, at

ROUTER = RouterId("router-1")


def test_absent_where_never_used_and_the_model_stands_there_all_the_same() -> None:
    """# spec: T7, T8"""
    uses: Uses = {
        ModelName("b"): {ReplicaId("b-0-1"): None},
        ModelName("a"): {ReplicaId("a-0-1"): NOW + 2, ReplicaId("a-1-1"): None},
    }
    (only,) = report(ROUTER, "i", AT, uses, {ReplicaId("b-0-1"): "connection refused"})
    assert [(use.model, use.last_used) for use in only.use] == [
        ("a", {"a-0-1": at(2)}),
        ("b", {}),
    ]
    assert only.since == AT
    assert only.unreachable == {"b-0-1": "connection refused"}
    assert (only.chunk, only.chunks) == (0, 1)


def test_nothing_watched_is_a_whole_report_too() -> None:
    """# spec: T8"""
    (only,) = report(ROUTER, "i", AT, {}, {})
    assert only.use == ()


def test_large_maps_are_cut_and_each_chunk_is_whole_and_small() -> None:
    """# spec: T7"""
    models = [ModelName(f"model-{n:03d}-" + "é" * 60) for n in range(30)]
    uses = {
        model: {ReplicaId(f"{model}-{slot}-1"): NOW + slot for slot in range(400)}
        for model in models
    }
    broken = {ReplicaId(f"x-{n}-1"): 'said "no"' * 20 for n in range(2000)}
    chunks = report(ROUTER, "i", AT, uses, broken)
    assert [chunk.chunk for chunk in chunks] == list(range(len(chunks)))
    assert {chunk.chunks for chunk in chunks} == {len(chunks)}
    assert max(len(codec.encode(chunk)) for chunk in chunks) <= CHUNK_BYTES
    found: dict[ModelName, dict[ReplicaId, str]] = {}
    unreachable: dict[ReplicaId, str] = {}
    for chunk in chunks:
        unreachable |= chunk.unreachable
        for use in chunk.use:
            found.setdefault(use.model, {}).update(use.last_used)
    assert found == {
        model: {name: codec.rfc3339(when or 0) for name, when in used.items()}
        for model, used in uses.items()
    }
    assert unreachable == broken


def test_the_last_use_counts_and_what_is_gone_is_forgotten() -> None:
    """# spec: T7, C5"""
    used = LastUsed()
    used.note(ReplicaId("a"), 1.0)
    used.note(ReplicaId("a"), 3.0)
    used.note(ReplicaId("b"), 2.0)
    for now in (10.0, 10.0 + KEPT_SECONDS):
        used.keep([ReplicaId("a"), ReplicaId("c")], now)
        assert (used.of(ReplicaId("a")), used.of(ReplicaId("b"))) == (3.0, 2.0)
    used.keep([ReplicaId("a"), ReplicaId("c")], 11.0 + KEPT_SECONDS)
    assert used.of(ReplicaId("a")) == 3.0
    assert used.of(ReplicaId("b")) is None


def test_being_away_is_counted_anew_after_each_return() -> None:
    """# spec: T8"""
    used, a = LastUsed(), ReplicaId("a")
    used.note(a, 1.0)
    used.keep([], 10.0)
    used.keep([a], 20.0)
    used.keep([], KEPT_SECONDS)
    used.keep([], KEPT_SECONDS + 20.0)
    assert used.of(a) == 1.0
