from msgspec.structs import replace

from schemas import subjects
from schemas.documents import Gone, RouterReport
from schemas.ids import ModelName, ReplicaId, RouterId
from services.router.breaker import FAILURES
from services.router.endpoints import Table
from services.router.idle import CHUNK_BYTES, KEPT_SECONDS, LastUsed
from services.router.report import Reporter
from tests.builders import AT, NOW, at
from tests.support.router import a_catalog, a_shard, an_endpoint

ROUTER = RouterId("router-1")


def a_reporter(*names: str) -> tuple[Reporter, Table, LastUsed]:
    table, used = Table(), LastUsed()
    table.set_catalog(a_catalog())
    table.put(("tiny", "00"), a_shard(*(an_endpoint("h:1", name) for name in names)))
    return Reporter(ROUTER, "i1", NOW, table, used), table, used


def told(reporter: Reporter, now: float) -> list[dict[ModelName, dict[ReplicaId, str]]]:
    documents = [document for _, _, document in reporter.tick(now)]
    assert all(isinstance(document, RouterReport) for document in documents)
    return [
        {use.model: use.last_used for use in document.use}
        for document in documents
        if isinstance(document, RouterReport)
    ]


def test_written_once_and_then_only_when_it_changed() -> None:
    """# spec: T7, T8"""
    reporter, _, used = a_reporter("a", "b")
    assert told(reporter, NOW + 10) == [{"tiny": {}}]
    assert told(reporter, NOW + 20) == []
    used.note(ReplicaId("b"), NOW + 21)
    assert told(reporter, NOW + 30) == [{"tiny": {"b": at(21)}}]
    assert told(reporter, NOW + 40) == []


def test_a_busy_replica_is_in_use_now() -> None:
    """# spec: T8"""
    reporter, table, _ = a_reporter("a")
    ((_, _, live),) = table.endpoints()
    live.in_flight = 1
    assert told(reporter, NOW + 10) == [{"tiny": {"a": at(10)}}]
    assert told(reporter, NOW + 20) == [{"tiny": {"a": at(20)}}]


def test_a_use_is_told_while_its_replica_is_away_and_when_it_is_back() -> None:
    """# spec: T8"""
    reporter, table, used = a_reporter("a", "b")
    used.note(ReplicaId("a"), NOW + 1)
    assert told(reporter, NOW + 10) == [{"tiny": {"a": at(1)}}]
    table.put(("tiny", "00"), a_shard(an_endpoint("h:1", "b")))
    table.tidy()
    reporter.again()
    assert told(reporter, NOW + 20) == [{"tiny": {"a": at(1)}}]
    table.put(("tiny", "00"), a_shard(an_endpoint("h:2", "a"), an_endpoint("h:1", "b")))
    reporter.again()
    assert told(reporter, NOW + 30) == [{"tiny": {"a": at(1)}}]


def test_a_stream_is_a_use_until_it_ends_also_when_its_model_is_removed() -> None:
    """# spec: T8, C4"""
    reporter, table, _ = a_reporter("a")
    ((_, _, live),) = table.endpoints()
    live.in_flight = 1
    table.set_catalog(a_catalog("models: {}"))
    table.put(("tiny", "00"), None)
    table.tidy()
    assert told(reporter, NOW + 10) == [{"tiny": {"a": at(10)}}]
    assert told(reporter, NOW + 20) == [{"tiny": {"a": at(20)}}]
    live.in_flight = 0
    table.tidy()
    reporter.again()
    assert told(reporter, NOW + 30) == [{}]
    table.set_catalog(a_catalog())
    assert told(reporter, NOW + 40) == [{"tiny": {"a": at(20)}}]


def test_what_has_left_the_table_for_long_leaves_the_report() -> None:
    """# spec: C5"""
    reporter, table, used = a_reporter("a", "b")
    used.note(ReplicaId("a"), NOW + 1)
    assert told(reporter, NOW + 10) == [{"tiny": {"a": at(1)}}]
    table.put(("tiny", "00"), a_shard(an_endpoint("h:1", "b")))
    assert told(reporter, NOW + 20) == []
    assert told(reporter, NOW + 21 + KEPT_SECONDS) == [{"tiny": {}}]
    assert used.of(ReplicaId("a")) is None


def test_a_replica_that_left_unused_leaves_the_report_at_once() -> None:
    """# spec: C5"""
    reporter, table, _ = a_reporter("a")
    assert told(reporter, NOW + 10) == [{"tiny": {}}]
    table.set_catalog(a_catalog("models: {}"))
    assert told(reporter, NOW + 20) == [{}]


def test_a_chunk_that_is_no_longer_needed_is_marked_gone() -> None:
    """# spec: T7"""
    many = [f"replica-{number:05d}-{'x' * 40}" for number in range(4000)]
    reporter, table, used = a_reporter(*many)
    for name in many:
        used.note(ReplicaId(name), NOW + 1)
    written = reporter.tick(NOW + 10)
    assert len(written) > 1
    assert sum(len(name) for name in many) * 2 > CHUNK_BYTES
    table.put(("tiny", "00"), a_shard())
    assert reporter.tick(NOW + 20) == []
    after = reporter.tick(NOW + 21 + KEPT_SECONDS)
    assert after[0][0] == subjects.router_report(ROUTER, 0)
    assert [(subject, document) for subject, _, document in after[1:]] == [
        (subjects.router_report(ROUTER, number), Gone(id=ROUTER))
        for number in range(1, len(written))
    ]


def test_names_what_it_cannot_reach_and_since_when_it_watches() -> None:
    """# spec: T13, T8"""
    reporter, table, _ = a_reporter("a", "b")
    (_, _, live), _ = table.endpoints()
    for _ in range(FAILURES):
        live.breaker.failed(1.0, "connection refused")
    ((_, _, document),) = reporter.tick(NOW + 10)
    assert isinstance(document, RouterReport)
    assert document.unreachable == {"a": "connection refused"}
    assert document.since == AT
    assert document.incarnation == "i1"


def test_what_does_not_stand_as_told_is_told_again_and_what_is_of_no_use_is_cleared() -> None:
    """# spec: L5"""
    reporter, _, _ = a_reporter("a")
    own, other = (subjects.router_report(ROUTER, chunk) for chunk in (0, 7))
    ((_, _, report),) = reporter.tick(NOW)
    assert isinstance(report, RouterReport)
    for standing, written in (
        ({own: report}, []),
        ({own: None, other: None}, [own, other]),
        ({other: None, own: report}, [other]),
        ({}, [own]),
        ({own: replace(report, incarnation="i2")}, []),  # Another router of its name lives.
    ):
        reporter.check(standing)
        found = reporter.tick(NOW)
        assert [subject for subject, _, _ in found] == written
        assert all(isinstance(d, RouterReport) == (s == own) for s, _, d in found)
        assert reporter.tick(NOW) == []
