from pathlib import Path

import pytest

from schemas.ids import EngineName
from services.fleet.catalog import CatalogFaults, from_yaml
from services.router.seed import Seed, changed, read_seed

CATALOG = b"""
engines:
  mine: {kind: vllm, metrics: {running: my_running}}
models:
  tiny: {engine: llamacpp, source: /m, aliases: [small]}
  big: {engine: mine, source: /b, gpu: {class: l4, count: 1}}
"""
ENDPOINTS = b"""
- {model: tiny, address: "127.0.0.1:8080", engine: llamacpp}
- {model: tiny, address: "[::1]:8081", engine: llamacpp, metrics: {}}
- {model: big, address: host-1:8000, engine: mine}
- model: big
  address: host-2:8000
  engine: vllm
  metrics: {running: r, waiting: w}
"""
NO_RUNNING = (
    "`metrics` names figures but not `running`",
    "name it too, or write `{}` for vLLM's names, or leave `metrics` out for the engine's own",
)


def test_both_files_make_one_seed() -> None:
    """# spec: C4"""
    seed = read_seed(CATALOG, ENDPOINTS)
    assert isinstance(seed, Seed)
    assert EngineName("mine") in seed.catalog.engines
    shown = [(m, e.address, e.kind, e.metrics) for m, e in seed.endpoints]
    assert shown == [
        ("tiny", "127.0.0.1:8080", "llamacpp", None),
        ("tiny", "[::1]:8081", "llamacpp", {}),
        ("big", "host-1:8000", "vllm", {"running": "my_running"}),
        ("big", "host-2:8000", "vllm", {"running": "r", "waiting": "w"}),
    ]


def test_no_endpoints_yet_is_fine() -> None:
    seed = read_seed(CATALOG, b"[]")
    assert isinstance(seed, Seed)
    assert seed.shards() == {}
    assert not isinstance(read_seed(CATALOG, b" \n"), Seed)  # Perhaps half-written.


def test_every_fault_of_both_files_is_told_with_its_place() -> None:
    """# spec: C1, C4"""
    endpoints = b"""- {model: tinny, address: "127.0.0.1:8080", engine: llamacp}
- {model: tiny, adress: "127.0.0.1:8080", engine: llamacpp}
- {model: tiny, address: "8080", engine: llamacpp}
- {model: tiny, address: "h:1", engine: llamacpp, metrics: {runing: x}}
- {model: tiny, address: "h:2", engine: llamacpp, metrics: {waiting: x}}
- tiny
"""
    faults = read_seed(CATALOG, endpoints, "c.yaml", "e.yaml")
    assert not isinstance(faults, Seed)
    told = [(fault.file, fault.line, fault.message, fault.hint) for fault in faults]
    assert told == [
        ("e.yaml", 1, "the catalog has no model `tinny`", "did you mean `tiny`?"),
        ("e.yaml", 1, "unknown engine `llamacp`", "did you mean `llamacpp`?"),
        ("e.yaml", 2, "`address` is missing", ""),
        ("e.yaml", 2, "unknown key `adress`", "did you mean `address`?"),
        ("e.yaml", 3, "`8080` is no address", "write `host:port`"),
        ("e.yaml", 4, *NO_RUNNING),
        ("e.yaml", 4, "`runing` is no figure that the router reads", "did you mean `running`?"),
        ("e.yaml", 5, *NO_RUNNING),
        ("e.yaml", 6, "an endpoint is a mapping", "its keys: model, address, engine, metrics"),
    ]
    both = read_seed(b"models: {a: {}}", b"endpoints: []", "c.yaml", "e.yaml")
    assert not isinstance(both, Seed)
    assert {fault.file for fault in both} == {"c.yaml"}


@pytest.mark.parametrize(
    ("metrics", "fault"),
    [
        ("{running: }", "`metrics` names figures but not `running`"),
        ("{running: '', waiting: w}", "`metrics` names figures but not `running`"),
        ("{running: 'r{a=1}'}", "`r{a=1}` is no metric name"),
        ("{running: 2}", "`2` is no metric name"),
        ("{running: [r]}", "`running` is a list where a single value belongs"),
    ],
)
def test_a_mapping_is_read_by_the_catalogs_rule(metrics: str, fault: str) -> None:
    """# spec: T3"""
    listed = f"- {{model: tiny, address: 'h:1', engine: llamacpp, metrics: {metrics}}}"
    faults = read_seed(CATALOG, listed.encode())
    assert not isinstance(faults, Seed)
    assert fault in [f.message for f in faults]
    catalog = f"models: {{}}\nengines: {{mine: {{kind: vllm, metrics: {metrics}}}}}"
    same = from_yaml(catalog)
    assert isinstance(same, CatalogFaults)
    assert [f.message for f in same.faults] == [f.message for f in faults]


def test_what_a_mapping_leaves_blank_is_left_out() -> None:
    """# spec: T3"""
    listed = b"- {model: tiny, address: 'h:1', engine: llamacpp, metrics: {running: r, waiting: }}"
    seed = read_seed(CATALOG, listed)
    assert isinstance(seed, Seed)
    assert [endpoint.metrics for _, endpoint in seed.endpoints] == [{"running": "r"}]


def test_the_same_endpoint_twice_is_refused() -> None:
    faults = read_seed(CATALOG, ENDPOINTS + ENDPOINTS.split(b"\n")[1] + b"\n", "c", "e.yaml")
    assert not isinstance(faults, Seed)
    assert [fault.line for fault in faults] == [9]


def test_ailing_endpoints_are_the_last_choice() -> None:
    """# spec: C4"""
    seed = read_seed(CATALOG, ENDPOINTS)
    assert isinstance(seed, Seed)
    shards = seed.shards(frozenset({"[::1]:8081"}))
    assert [e.last_choice for e in shards[("tiny", "00")].endpoints] == [False, True]
    assert [e.last_choice for e in shards[("big", "00")].endpoints] == [False, False]
    well = seed.shards()
    assert changed(well, shards) == {("tiny", "00"): shards[("tiny", "00")]}
    assert changed(well, {}) == dict.fromkeys(well)


def test_a_catalog_with_a_fault_is_refused_as_everywhere() -> None:
    """# spec: C1, case HR-01"""
    folder = Path("tests/data/catalogs")
    for name, good in (("HR-01-good", True), ("HR-01-bad", False), ("HR-01-half", False)):
        found = read_seed((folder / f"{name}.yaml").read_bytes(), b"[]")
        assert isinstance(found, Seed) == good, name


def test_a_flood_of_faults_ends_the_reading_of_either_file() -> None:
    flood = ("".join(f"k{n}: 1\n" for n in range(300))).encode()
    endpoints = b"".join(b"- {model: none, address: x}\n" for _ in range(300))
    found = read_seed(b"models: {}\n", endpoints, "c.yaml", "e.yaml")
    assert isinstance(found, tuple)
    assert (len(found), found[-1].file) == (201, "e.yaml")
    both = read_seed(b"models: {}\n" + flood, endpoints, "c.yaml", "e.yaml")
    assert isinstance(both, tuple)
    assert [both.count(found[-1]), both[200].file] == [0, "c.yaml"]
