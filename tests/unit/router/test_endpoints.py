from schemas.beats import EngineLoad
from schemas.ids import ModelName, ReplicaId
from services.router.endpoints import Route, Table
from tests.support.router import a_catalog, a_shard, an_endpoint

TINY = ModelName("tiny")


def a_table(*addresses: str) -> Table:
    table = Table()
    table.set_catalog(a_catalog())
    table.put(
        ("tiny", "00"), a_shard(*(an_endpoint(a, f"tiny-{n}-1") for n, a in enumerate(addresses)))
    )
    return table


def routes(table: Table, name: str = "tiny") -> list[Route]:
    target = table.find(name)
    assert target is not None
    return [*target.first, *target.last]


def addresses_kept(table: Table) -> set[str]:
    kept = table.keys()
    return {key.address for key in kept}


def test_a_model_is_found_by_name_and_alias() -> None:
    """# spec: C10"""
    table = a_table("h:1")
    assert table.find("tiny") is table.find("small")
    assert table.find("other") is None


def test_endpoints_of_a_model_that_no_catalog_has_are_not_named() -> None:
    """# spec: T11"""
    table = a_table()
    table.put(("x", "00"), a_shard(an_endpoint("h:1", "x-0-1"), model="x"))
    assert table.find("x") is None
    assert table.endpoints() == []
    table.set_catalog(a_catalog("models: {x: {engine: llamacpp, source: /m}}"))
    assert [r.key.replica for r in routes(table, "x")] == ["x-0-1"]
    assert table.find("tiny") is None


def test_live_state_outlasts_every_update_that_leaves_the_endpoint() -> None:
    """# spec: T2"""
    table = a_table("h:1")
    live = routes(table)[0].live
    live.in_flight = 3
    live.breaker.failed(1.0, "reset")
    table.put(("tiny", "00"), a_shard(an_endpoint("h:1", "tiny-0-1"), an_endpoint("h:2", "b")))
    table.put(("tiny", "00"), a_shard(an_endpoint("h:1", "tiny-0-1", last_choice=True)))
    table.set_catalog(a_catalog("models: {}"))
    table.set_catalog(a_catalog())
    assert routes(table)[0].live is live


def test_another_start_or_another_address_is_another_endpoint() -> None:
    """# spec: T2"""
    for changed in (an_endpoint("h:1", "tiny-0-1", incarnation="1.1"), an_endpoint("h:2")):
        table = a_table("h:1")
        live = routes(table)[0].live
        table.put(("tiny", "00"), a_shard(changed))
        assert routes(table)[0].live is not live


def test_what_is_used_by_a_request_is_kept_while_its_document_is_away() -> None:
    """# spec: T2"""
    table = a_table("h:1", "h:2")
    used, unused = (route.live for route in routes(table))
    used.in_flight = 1
    table.put(("tiny", "00"), a_shard())
    table.put(
        ("tiny", "00"), a_shard(an_endpoint("h:1", "tiny-0-1"), an_endpoint("h:2", "tiny-1-1"))
    )
    assert routes(table)[0].live is used
    assert routes(table)[1].live is not unused


def test_nothing_is_kept_of_what_no_document_names_and_no_request_uses() -> None:
    """# spec: T2"""
    table = a_table("h:1", "h:2")
    first, second = (route.live for route in routes(table))
    first.in_flight = second.in_flight = 1
    table.set_catalog(a_catalog("models: {}"))
    table.put(("tiny", "00"), a_shard(an_endpoint("h:2", "tiny-1-1")))
    first.in_flight = 0
    table.tidy()
    assert addresses_kept(table) == {"h:2"}
    table.put(("tiny", "00"), None)
    table.tidy()
    assert addresses_kept(table) == {"h:2"}
    second.in_flight = 0
    table.tidy()
    assert table.keys() == set()


def test_tidying_leaves_what_is_named() -> None:
    """# spec: T2"""
    table = a_table("h:1", "h:2")
    kept, used = (route.live for route in routes(table))
    used.in_flight = 1
    table.put(("tiny", "00"), a_shard(an_endpoint("h:1", "tiny-0-1")))
    used.in_flight = 0
    table.tidy()
    assert [route.live for route in routes(table)] == [kept]
    assert addresses_kept(table) == {"h:1"}


def test_an_unrouted_endpoint_takes_nothing_new() -> None:
    """# spec: R7"""
    table = a_table()
    table.put(("tiny", "00"), a_shard(an_endpoint("h:1", unrouted=True)))
    assert routes(table) == []
    assert [endpoint.address for _, endpoint, _ in table.endpoints()] == ["h:1"]


def test_shards_beyond_the_stated_count_are_old() -> None:
    """# spec: T11"""
    table = a_table()
    table.put(("tiny", "01"), a_shard(an_endpoint("h:2", "b"), shard=1, shards=2))
    assert [r.key.replica for r in routes(table)] == ["b"] or routes(table) == []
    table.put(("tiny", "00"), a_shard(an_endpoint("h:1", "a"), shard=0, shards=2))
    assert [r.key.replica for r in routes(table)] == ["a", "b"]
    table.put(("tiny", "00"), a_shard(an_endpoint("h:1", "a"), shard=0, shards=1))
    assert [r.key.replica for r in routes(table)] == ["a"]


def test_a_request_keeps_the_routes_it_had_when_its_model_goes() -> None:
    """# spec: C8"""
    table = a_table("h:1", "h:2")
    target = table.find("tiny")
    assert target is not None
    table.put(("tiny", "00"), a_shard(an_endpoint("h:1", "tiny-0-1")))
    assert len(target.first) == 1  # While the model is there, it follows.
    table.set_catalog(a_catalog("models: {}"))
    table.put(("tiny", "00"), None)
    assert len(target.first) == 1
    assert table.find("tiny") is None


def test_figures_find_every_start_of_a_replica() -> None:
    """# spec: T3"""
    table = a_table("h:1")
    table.loaded({ReplicaId("tiny-0-1"): EngineLoad(running=7), ReplicaId("x"): EngineLoad()}, 5.0)
    figures = routes(table)[0].live.figures
    assert figures is not None
    assert (figures.others, figures.waiting, figures.at) == (7.0, None, 5.0)


def test_replacing_the_whole_leaves_nothing_of_before() -> None:
    """# spec: C4"""
    table = a_table("h:1")
    live = routes(table)[0].live
    table.replace(
        a_catalog("models: {tiny: {engine: llamacpp, source: /n}}"),
        {("tiny", "01"): a_shard(an_endpoint("h:1", "tiny-0-1"), shard=1, shards=2)},
    )
    assert [route.live for route in routes(table)] in ([live], [])
    assert table.find("small") is None
    assert len(table.keys()) == 1
