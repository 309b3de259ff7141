"""What each verb prints for an answer of the management API, and its exit code."""

import json
from pathlib import Path

import msgspec
import pytest

from ctl.failure import Exit
from ctl.main import run
from schemas import codec
from schemas.api import (
    ApplyCatalog,
    CardRow,
    CatalogView,
    Explanation,
    ModelList,
    ModelRow,
    NodeList,
    NodeRow,
    ReplicaList,
    ReplicaRow,
    ShardRow,
    Status,
)
from schemas.documents import LastError, NodeRefusal, Progress
from schemas.following import AgentLag, AgentsFollowing, ControlRow, RouterRow
from schemas.frames import Accepted, Frame
from schemas.ids import (
    ControlId,
    EngineName,
    EventId,
    GpuUuid,
    ModelName,
    NodeId,
    ReplicaId,
    RouterId,
)
from services.fleet import catalog
from tests.support.scripted_http import answering

NODE = NodeRow(
    node=NodeId("gpu-1"),
    condition="alive",
    address="10.0.0.1",
    cores=16,
    memory_bytes=64 << 30,
    cards=(
        CardRow(uuid=GpuUuid("GPU-a"), gpu_class="h100", health="healthy"),
        CardRow(uuid=GpuUuid("GPU-b"), gpu_class="h100", health="unhealthy", reason="XID 79"),
        CardRow(
            uuid=GpuUuid("GPU-c"), gpu_class="h100", health="healthy", replica=ReplicaId("m-0-1")
        ),
    ),
    replicas=1,
)
REPLICA = ReplicaRow(
    replica=ReplicaId("m-0-1"),
    model=ModelName("m"),
    phase="loading",
    goal="run",
    revision=3,
    attempt=1,
    since="2026-11-30T12:00:00Z",
    shards=(
        ShardRow(
            node=NodeId("gpu-1"),
            rank=0,
            port=17000,
            phase="loading",
            run=2,
            progress=Progress(step="weights", percent=62.4),
            error=LastError(failure="killed", message="out of memory", log="line 1\nline \x1b[2J"),
        ),
    ),
)
STATUS = Status(
    as_of_seq=48211,
    leader="control-1",
    leading=True,
    catalog_revision=17,
    nodes={"alive": 2},
    models={"ready": 1},
    replicas={"ready": 2},
    routers=(RouterRow(router=RouterId("router-1"), applied=48200, heard_seconds_ago=0.4),),
)
TROUBLED = msgspec.structs.replace(
    STATUS, models={"pending": 1}, attention=("model m is pending, 0 of 1 ready: 2 x no room",)
)


def shown(
    capfd: pytest.CaptureFixture[str], frame: Frame, *words: str, exit_code: Exit = Exit.YES
) -> str:
    """Standard output of a verb that is given this answer; nothing is said beside it."""
    with answering(200, codec.encode(frame)) as server:
        code = run([*words, "--server", server.url])
    told = capfd.readouterr()
    assert (code, told.err) == (exit_code, "")
    return told.out


def test_status_is_a_page_that_ends_with_what_to_type(capfd: pytest.CaptureFixture[str]) -> None:
    told = shown(capfd, STATUS, "status").splitlines()
    assert told[:5] == [
        "OK  (seq 48,211, catalog r17, led by control-1)",
        "  nodes     2: 2 alive",
        "  models    1: 1 ready",
        "  replicas  2: 2 ready",
        "  router    router-1: applied 48,200, heard 0s ago",
    ]
    assert told[-1].startswith("  next: ")


def test_the_next_step_of_a_recovery_is_never_a_catalog(capfd: pytest.CaptureFixture[str]) -> None:
    recovering = msgspec.structs.replace(
        STATUS, catalog_revision=0, recovering=True, halted=("node-1: follows log 0123",)
    )
    told = shown(capfd, recovering, "status", exit_code=Exit.NO).splitlines()
    assert told[-1].endswith("flotilla journal recover")


def test_status_says_who_leads_and_who_is_behind(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:  # spec: O1
    monkeypatch.setenv("TZ", "UTC")
    leads = ControlRow(control=ControlId("control-1"), leading=True, applied=48211)
    late = ControlRow(
        control=ControlId("control-2"), applied=48200, behind=11, behind_seconds=3.0, answering=True
    )
    lags = tuple(
        AgentLag(node=NodeId(f"n{n}"), assigned=40000, applied=n, behind_seconds=33.0 - n)
        for n in range(9)
    )
    fleet = msgspec.structs.replace(
        STATUS,
        leader_since="2026-11-30T12:00:00.000000Z",
        controls=(leads, late),
        routers=(
            RouterRow(
                router=RouterId("r"), applied=9, behind=3, behind_seconds=1.0, heard_seconds_ago=0.0
            ),
            RouterRow(
                router=RouterId("s"), applied=0, behind=-1, behind_seconds=-1, heard_seconds_ago=0.0
            ),
        ),
        agents=AgentsFollowing(heard=10_000, current=9_990, behind=9, unknown=1, worst=lags),
    )
    told = shown(capfd, fleet, "status").splitlines()
    assert told[0] == (
        "OK  (seq 48,211, catalog r17, led by control-1 since 2026-11-30 12:00:00 UTC)"
    )
    assert told[4:12] == [
        "  control   control-2: follows, 11 behind for 3s, heard 0s ago, gave this answer",
        "  router    r: applied 9, 3 behind for 1s, heard 0s ago",
        "  router    s: applied 0, follows no log or another, heard 0s ago",
        "  agents    10000: 9 behind, 9990 current, 1 of another log",
        "  agent     n0: assignment 40,000 not applied for 33s, obeys none",
        "  agent     n1: assignment 40,000 not applied for 32s, obeys 1",
        "  agent     n2: assignment 40,000 not applied for 31s, obeys 2",
        "  agent     n3: assignment 40,000 not applied for 30s, obeys 3",
    ]
    assert len(told) == 14


def test_status_is_not_ok_without_a_leader(capfd: pytest.CaptureFixture[str]) -> None:
    alone = msgspec.structs.replace(STATUS, leader="")
    assert shown(capfd, alone, "status", exit_code=Exit.NO).startswith("DEGRADED  (")


def test_status_says_what_is_still_starting(capfd: pytest.CaptureFixture[str]) -> None:
    early = msgspec.structs.replace(STATUS, models={"ready": 1, "starting": 1})
    assert shown(capfd, early, "status").startswith("STARTING  (")


def test_status_says_no_when_something_needs_attention(capfd: pytest.CaptureFixture[str]) -> None:
    told = shown(capfd, TROUBLED, "status", exit_code=Exit.NO)
    assert told.startswith("DEGRADED")
    assert "  ! model m is pending, 0 of 1 ready: 2 x no room" in told
    assert "explain-placement MODEL" in told.splitlines()[-1]


def test_nodes_show_what_is_left_out_and_why(capfd: pytest.CaptureFixture[str]) -> None:
    told = shown(capfd, NodeList(as_of_seq=1, items=(NODE,)), "nodes").splitlines()
    assert told[0].split() == ["NODE", "STATE", "CLASS", "GPUS", "FREE", "REPLICAS", "EXCLUDED"]
    assert told[1].split() == [
        "gpu-1",
        "alive",
        "h100",
        "3",
        "1",
        "1",
        "GPU-b",
        "unhealthy:",
        "XID",
        "79",
    ]


def test_free_cards_of_a_silent_node_are_unknown_not_zero(
    capfd: pytest.CaptureFixture[str],
) -> None:  # spec: T8
    silent = msgspec.structs.replace(NODE, condition="unreachable")
    told = shown(capfd, NodeList(as_of_seq=1, items=(silent,)), "nodes").splitlines()
    assert told[1].split()[:5] == ["gpu-1", "unreachable", "h100", "3", "-"]


def test_a_node_that_follows_nothing_and_knows_no_cards_says_why(
    capfd: pytest.CaptureFixture[str],
) -> None:  # spec: O1
    node = msgspec.structs.replace(NODE, damaged="another log", cards_fault="no answer in 30 s")
    listed = shown(capfd, NodeList(as_of_seq=1, items=(node,)), "nodes")
    assert "the node: another log; all cards: no answer in 30 s; GPU-b unhealthy" in listed
    told = shown(capfd, NodeList(as_of_seq=1, items=(node,)), "nodes", "show", "gpu-1")
    assert "acts on no assignment:" in told
    assert "no answer in 30 s" in told


def test_one_node_is_shown_with_its_cards(capfd: pytest.CaptureFixture[str]) -> None:
    told = shown(capfd, NodeList(as_of_seq=1, items=(NODE,)), "nodes", "show", "gpu-1")
    assert "memory:   64GiB" in told
    assert "GPU-b  h100   unhealthy  -        XID 79" in told


def test_a_node_that_is_not_there_has_near_names(capfd: pytest.CaptureFixture[str]) -> None:
    with answering(200, codec.encode(NodeList(as_of_seq=1, items=(NODE,)))) as server:
        assert run(["nodes", "show", "gpu-7", "--server", server.url]) == Exit.NOT_FOUND
    told = capfd.readouterr().err
    assert "no node `gpu-7` [not_found]" in told
    assert "did you mean gpu-1?" in told


def test_replicas_show_how_far_they_are_and_dashes_for_the_unknown(
    capfd: pytest.CaptureFixture[str],
) -> None:  # spec: T8
    told = shown(capfd, ReplicaList(as_of_seq=1, items=(REPLICA,)), "replicas").splitlines()
    assert told[1].split() == ["m-0-1", "m", "loading", "62%", "gpu-1", "no", "-", "2"]


def test_idle_at_least_is_told_apart_from_idle(capfd: pytest.CaptureFixture[str]) -> None:
    rows = tuple(
        msgspec.structs.replace(REPLICA, phase="ready", idle_seconds=300.0, idle_at_least=least)
        for least in (True, False)
    )
    told = shown(capfd, ReplicaList(as_of_seq=1, items=rows), "replicas").splitlines()
    assert [line.split()[5] for line in told[1:]] == [">5m", "5m"]


def test_one_replica_is_shown_with_the_engines_last_words(
    capfd: pytest.CaptureFixture[str],
) -> None:
    answer = ReplicaList(as_of_seq=1, items=(REPLICA,))
    told = shown(capfd, answer, "replicas", "show", "m-0-1")
    assert "last error: killed: out of memory" in told
    assert told.splitlines()[-2:] == ["  | line 1", "  | line \\x1b[2J"]


def test_models_show_ready_of_wanted(capfd: pytest.CaptureFixture[str]) -> None:
    row = ModelRow(
        model=ModelName("m"),
        condition="degraded",
        engine=EngineName("vllm"),
        wanted=3,
        ready=1,
        replicas=2,
        reason="1 x no room",
    )
    told = shown(capfd, ModelList(as_of_seq=1, items=(row,)), "models").splitlines()
    assert told[1].split() == ["m", "vllm", "1/3", "degraded", "1", "x", "no", "room"]


@pytest.mark.parametrize("form", ["json", "jsonl", "yaml", "name", "wide"])
def test_every_list_has_every_form(form: str, capfd: pytest.CaptureFixture[str]) -> None:
    told = shown(capfd, ReplicaList(as_of_seq=7, items=(REPLICA,)), "replicas", "-o", form)
    if form == "json":
        assert json.loads(told)["asOfSeq"] == 7
        assert json.loads(told)["items"][0]["idleSeconds"] < 0
    elif form == "jsonl":
        assert json.loads(told)["replica"] == "m-0-1"
    elif form == "yaml":
        assert msgspec.yaml.decode(told)["kind"] == "ReplicaList"
    elif form == "name":
        assert told == "m-0-1\n"
    else:
        assert "r3" in told


def test_an_empty_list_prints_nothing_on_standard_output(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with answering(200, codec.encode(NodeList(as_of_seq=1, items=()))) as server:
        assert run(["nodes", "--server", server.url]) == Exit.YES
    assert capfd.readouterr() == ("", "none\n")


def test_explain_says_why_each_node_was_refused_and_answers_no(
    capfd: pytest.CaptureFixture[str],
) -> None:  # spec: P6
    frame = Explanation(
        as_of_seq=9,
        model=ModelName("m"),
        decided="unplaceable",
        decided_at_seq=8,
        rules=1,
        wanted=1,
        placed=0,
        candidates={NodeId("b"): "fits", NodeId("a"): "cores: 1 free, 4 needed"},
        refusals=(NodeRefusal(reason="cores", nodes=1, detail="4 needed"),),
        now="would go to b",
    )
    assert shown(capfd, frame, "explain-placement", "m", exit_code=Exit.NO).splitlines() == [
        "m: 0 of 1 placed; unplaceable, decided on what was known at seq 8, by rules 1",
        "  1 x cores: 4 needed",
        "  a  cores: 1 free, 4 needed",
        "  b  fits",
        "  now: would go to b",
    ]


def test_apply_sends_the_file_and_what_may_vanish(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:  # spec: C9
    file = tmp_path / "new.yaml"
    file.write_text("models: {}\n")
    done = Accepted(as_of_seq=9, command=EventId("c-1"), revision=18)
    with answering(200, codec.encode(done)) as server:
        words = ["catalog", "apply", str(file), "--prune", "a", "--prune", "b"]
        words += ["--if-revision", "r17", "-m", "fewer", "--server", server.url]
        assert run(words) == Exit.YES
    told = capfd.readouterr()
    assert told.out == "catalog r18 is current (command c-1)\n"
    assert told.err == ""
    assert codec.decode(server.asked[0][3], ApplyCatalog) == ApplyCatalog(
        source="models: {}\n",
        file=str(file),
        prune=(ModelName("a"), ModelName("b")),
        if_revision=17,
        reason="fewer",
    )


def test_the_same_catalog_again_is_told_as_unchanged(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "same.yaml"
    file.write_text("models: {}\n")
    done = Accepted(as_of_seq=9, command=EventId("c-1"), revision=17, changed=False)
    told = shown(capfd, done, "catalog", "apply", str(file))
    assert told == "unchanged: this is catalog r17 already\n"


def test_what_show_prints_makes_the_same_catalog(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:  # spec: C9
    made = catalog.from_yaml("models: {a: {engine: llamacpp, source: x, aliases: [b]}}")
    assert isinstance(made, catalog.Catalog)
    view = CatalogView(as_of_seq=1, revision=4, hash=made.hash, author="me", source=made.source())
    again = catalog.from_yaml(shown(capfd, view, "catalog", "show"))
    assert isinstance(again, catalog.Catalog)
    assert again == made
    assert json.loads(shown(capfd, view, "catalog", "show", "-o", "json"))["revision"] == 4


def test_no_catalog_yet_is_not_found(capfd: pytest.CaptureFixture[str]) -> None:
    none = CatalogView(as_of_seq=1, revision=0, hash="", author="", source=msgspec.Raw(b"null"))
    with answering(200, codec.encode(none)) as server:
        assert run(["catalog", "show", "--server", server.url]) == Exit.NOT_FOUND
    assert "no catalog yet" in capfd.readouterr().err


def test_the_token_comes_from_a_file_or_from_the_data_folder(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:  # spec: O3
    (tmp_path / "control").mkdir()
    (tmp_path / "control" / "admin.token").write_text("made-here\n")
    (tmp_path / "other").write_text("given\n")
    with answering(200, codec.encode(STATUS)) as server:
        run(["status", "--server", server.url, "--data", str(tmp_path)])
        run(["status", "--server", server.url, "--token-file", str(tmp_path / "other")])
        run(["status", "--server", server.url, "--data", str(tmp_path / "none")])
    assert [asked[2] for asked in server.asked] == ["Bearer made-here", "Bearer given", None]


def test_a_health_check_is_an_exit_code(capfd: pytest.CaptureFixture[str]) -> None:
    with answering(200, b"ok\n") as server:
        assert run(["healthcheck", f"{server.url}/healthz"]) == Exit.YES
    with answering(503, b"still loading\n") as server:
        assert run(["healthcheck", f"{server.url}/healthz"]) == Exit.NO
    told = capfd.readouterr()
    assert "ok" in told.out
    assert "still loading" in told.err


def test_a_program_is_asked_where_its_settings_say(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with answering(200, b"ok\n") as server:
        monkeypatch.setenv("FLOTILLA_ROUTER_ADMIN_LISTEN", server.url.removeprefix("http://"))
        assert run(["healthcheck", "router"]) == Exit.YES
    assert server.asked[0][:2] == ("GET", "/readyz")
