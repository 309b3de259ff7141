from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import codec, subjects
from schemas.documents import CatalogPointer, CatalogRevision, Endpoint, EndpointShard, Gone
from schemas.ids import ModelName
from services.fleet.damage import Seen
from services.router.endpoints import Table
from services.router.routing import Copy, Routing
from tests.builders import LOG_ID, a_genesis, an_event
from tests.support.router import a_catalog, a_shard, an_endpoint

Message = tuple[int, str, bytes]
ONE = "models: {tiny: {engine: llamacpp, source: /m, aliases: [small]}}"
TWO = "models: {tiny: {engine: llamacpp, source: /m}, big: {engine: llamacpp, source: /b}}"
BIG = "models: {big: {engine: llamacpp, source: /b}}"


class Log:
    """Messages with rising sequences."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.put(subjects.GENESIS, a_genesis())

    def put(self, subject: str, document: object) -> None:
        sequence = len(self.messages) + 1
        self.messages.append((sequence, subject, an_event(document, id_=f"e{sequence}")))

    def swap(self, revision: int, text: str) -> None:
        catalog = a_catalog(text)
        self.put(
            subjects.catalog_revision(revision),
            CatalogRevision(revision=revision, hash=catalog.hash, source=catalog.source()),
        )
        self.point(revision, catalog.hash)

    def point(self, revision: int, digest: str) -> None:
        self.put(subjects.CATALOG, CatalogPointer(revision=revision, hash=digest, author="tests"))

    def endpoints(self, shard: EndpointShard) -> None:
        self.put(subjects.endpoints(shard.model, shard.shard), shard)


def a_story() -> list[Message]:
    log = Log()
    log.swap(1, ONE)
    log.endpoints(a_shard(an_endpoint("h:1", "tiny-0-1")))
    log.swap(2, TWO)
    log.endpoints(a_shard(an_endpoint("h:9", "big-0-1"), model="big"))
    log.endpoints(a_shard(an_endpoint("h:1", "tiny-0-1"), shards=2))
    log.endpoints(a_shard(an_endpoint("h:2", "tiny-1-1"), shard=1, shards=2))
    log.endpoints(a_shard(an_endpoint("h:1", "tiny-0-1", unrouted=True), shards=2))
    log.swap(3, BIG)
    log.endpoints(a_shard(an_endpoint("h:9", "big-0-1", last_choice=True), model="big"))
    return log.messages


def shown(table: Table) -> list[tuple[str, Endpoint]]:
    return [(model.name, endpoint) for model, endpoint, _ in table.endpoints()]


def routed(table: Table) -> dict[str, list[str]]:
    return {
        name: [route.key.replica for route in (*target.first, *target.last)]
        for name, target in table.targets.items()
    }


def applied(messages: list[Message], settle_at: int | None = 0) -> Routing:
    routing = Routing(Table())
    for place, message in enumerate(messages):
        if place == settle_at:
            routing.settle()
        routing.apply(*message)
    routing.settle()
    return routing


@settings(deadline=None)  # Machines may be slow.
@given(st.data())
def test_any_order_any_repetition_gives_the_same_table(data: st.DataObject) -> None:
    """# spec: T11"""
    story = a_story()
    cut = data.draw(st.integers(1, len(story)))
    told = story[:cut]
    again = data.draw(st.lists(st.sampled_from(told)))
    shuffled = data.draw(st.permutations(told + again))
    settled_at = data.draw(st.integers(0, len(shuffled)))
    straight, crooked = applied(told), applied(list(shuffled), settled_at)
    # Which catalog is in effect may lag where its revision came before a pointer that never came;
    # here all of `told` has come, so the newest whole one is in effect in both.
    assert crooked.revision == straight.revision
    assert shown(crooked.table) == shown(straight.table)
    assert routed(crooked.table) == routed(straight.table)
    assert set(routed(crooked.table)) <= set(crooked.table.catalog.models)


def test_the_whole_story_ends_as_told() -> None:
    """# spec: C5, T11"""
    routing = applied(a_story())
    assert routed(routing.table) == {"big": ["big-0-1"]}
    assert routing.table.find("tiny") is None


def test_wants_what_it_has_learnt_of() -> None:
    routing = Routing(Table())
    assert set(routing.wanted()) == {subjects.GENESIS, subjects.CATALOG}
    story = a_story()
    pointer = next(m for m in story if m[1] == subjects.CATALOG)
    routing.apply(*pointer)
    assert subjects.catalog_revision(1) in routing.wanted()
    for message in story[:8]:
        routing.apply(*message)
    assert {
        subjects.endpoints(ModelName("tiny"), 0),
        subjects.endpoints(ModelName("tiny"), 1),
        subjects.endpoints(ModelName("big"), 0),
    } <= set(routing.wanted())


def test_a_refused_catalog_leaves_the_last_one_serving() -> None:
    """# spec: C1"""
    log = Log()
    log.swap(1, ONE)
    log.endpoints(a_shard(an_endpoint("h:1")))
    log.put(
        subjects.catalog_revision(2),
        CatalogRevision(revision=2, hash="x", source=codec.raw({"models": {"a": {"engine": "?"}}})),
    )
    log.point(2, "x")
    routing = applied(log.messages)
    assert routing.revision == 1
    assert routing.refused
    assert routed(routing.table) == {"tiny": ["tiny-0-1"]}
    log.swap(3, TWO)
    for message in log.messages[-2:]:
        routing.apply(*message)
    assert routing.refused == ()
    assert routing.revision == 3


def test_what_cannot_be_read_leaves_the_last_good_one_serving() -> None:
    """# spec: L5"""
    log = Log()
    log.swap(1, ONE)
    log.endpoints(a_shard(an_endpoint("h:1")))
    routing = applied(log.messages)
    subject = subjects.endpoints(ModelName("tiny"), 0)
    assert not routing.apply(99, subject, b"\xff nonsense")
    newer = an_event(a_shard(an_endpoint("h:2")), version=2)
    assert not routing.apply(100, subject, newer)
    assert list(routing.unreadable) == [subject]
    assert routed(routing.table) == {"tiny": ["tiny-0-1"]}
    assert routing.apply(101, subject, an_event(a_shard(an_endpoint("h:2", "tiny-9-1"))))
    assert not routing.unreadable
    assert routed(routing.table) == {"tiny": ["tiny-9-1"]}


def test_endpoints_that_are_gone_are_gone() -> None:
    """# spec: C5"""
    log = Log()
    log.swap(1, ONE)
    log.endpoints(a_shard(an_endpoint("h:1")))
    log.put(subjects.endpoints(ModelName("tiny"), 0), Gone(id="tiny"))
    assert routed(applied(log.messages).table) == {"tiny": []}


def test_a_seed_serves_until_the_log_has_spoken_and_is_replaced_whole() -> None:
    """# spec: C4"""
    table = Table()
    table.replace(a_catalog(TWO), {("seed", "00"): a_shard(an_endpoint("s:1", "seeded"))})
    routing = Routing(table)
    assert not routing.settle()  # Nothing there: an empty log is no catalog.
    log = Log()
    log.swap(1, ONE)
    log.endpoints(a_shard(an_endpoint("h:1")))
    for message in log.messages:
        routing.apply(*message)
        assert routed(table) == {"big": [], "tiny": ["seeded"]}
    assert routing.settle()
    assert routed(table) == {"tiny": ["tiny-0-1"]}


def test_the_disk_copy_serves_the_same_table() -> None:
    """# spec: T9"""
    log = Log()
    log.swap(1, ONE)
    log.endpoints(a_shard(an_endpoint("h:1")))
    log.put(
        subjects.catalog_revision(2),
        CatalogRevision(revision=2, hash="x", source=codec.raw({"models": 1})),
    )
    log.point(2, "x")
    routing = applied(log.messages)
    kept = codec.encode(routing.copy(Seen(LOG_ID, routing.highest)))
    again = Routing(Table())
    assert again.restore(codec.decode(kept, Copy))
    assert routed(again.table) == routed(routing.table) == {"tiny": ["tiny-0-1"]}
    assert (again.revision, again.refused) == (routing.revision, routing.refused)
    assert (again.log_id, again.highest) == (LOG_ID, routing.highest)


def test_a_revision_whose_content_is_not_what_its_hash_says_is_refused() -> None:
    """# spec: C1, L5"""
    log = Log()
    log.swap(1, ONE)
    log.endpoints(a_shard(an_endpoint("h:1")))
    two, forged = a_catalog(TWO), codec.raw({"models": {}})
    log.put(subjects.catalog_revision(2), CatalogRevision(revision=2, hash=two.hash, source=forged))
    log.point(2, two.hash)
    routing = applied(log.messages)
    assert routing.refused == ("what stands as revision 2 is not what was applied",)
    assert routing.revision == 1


def test_an_empty_disk_copy_is_none() -> None:
    assert not Routing(Table()).restore(Routing(Table()).copy(None))


def test_a_slot_that_holds_another_revision_or_another_content_is_not_taken() -> None:
    """# spec: T11, C1"""
    log = Log()
    log.swap(1, ONE)
    log.endpoints(a_shard(an_endpoint("h:1")))
    log.point(1 + subjects.REVISION_SLOTS, a_catalog(ONE).hash)
    assert applied(log.messages).revision == 1
    two = a_catalog(TWO)
    log.put(
        subjects.catalog_revision(2),
        CatalogRevision(revision=2, hash="another", source=two.source()),
    )
    log.point(2, two.hash)
    routing = applied(log.messages)
    assert routing.revision == 1
    assert routed(routing.table) == {"tiny": ["tiny-0-1"]}
