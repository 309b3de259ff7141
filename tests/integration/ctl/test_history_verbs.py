"""What the verbs that ask the log print, and what they ask for."""

import json
import shlex
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from zoneinfo import ZoneInfo

import pytest
from msgspec import Raw
from msgspec.structs import replace

from ctl.at import zone
from ctl.failure import Exit, Failure
from ctl.main import run
from schemas import codec
from schemas.api import CatalogView, NodeList, Status
from schemas.frames import Accepted, Frame, Refusal
from schemas.history import (
    CatalogDiff,
    CatalogHistory,
    CauseRow,
    EntryChange,
    EventList,
    EventRow,
    FieldChange,
    RevisionRow,
    RollbackCatalog,
    Why,
)
from schemas.ids import EventId, ModelName
from tests.support.scripted_http import Scripted, answering

AT = "2026-11-30T12:00:00.000000Z"
EVENT = EventRow(
    seq=48203,
    at=AT,
    type="replica.placed",
    src="control/control-1",
    subject="flotilla.log.s.replica.m.0",
    id=EventId("7-48202-1"),
    cause=EventId("c-1"),
    summary="m-0-1 placed on a node of which much could be said, for catalog r1",
    detail=Raw(b'{"id":"m-0-1"}'),
)
SWAP = CauseRow(
    seq=48190,
    at=AT,
    type="catalog.swapped",
    src="control/control-1",
    subject="flotilla.log.s.catalog",
    id=EventId("c-1"),
    summary="catalog r1 became current, by ann",
)
EVENTS = EventList(
    as_of_seq=48211,
    items=(EVENT,),
    next_seq=48212,
    end_seq=48211,
    kept_from_seq=1,
    kept_from=AT,
)


@pytest.fixture(autouse=True)
def _in_berlin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")


def query(server: Scripted, number: int = 0) -> dict[str, str]:
    return {
        name: values[0] for name, values in parse_qs(urlsplit(_path(server, number)).query).items()
    }


def _path(server: Scripted, number: int = 0) -> str:
    return server.asked[number][1]


def shown(
    capfd: pytest.CaptureFixture[str], frame: Frame, *words: str, exit_code: Exit = Exit.YES
) -> list[str]:
    with answering(200, codec.encode(frame)) as server:
        assert run([*words, "--server", server.url]) == exit_code
    return capfd.readouterr().out.splitlines()


# spec: O5
@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ("2026-11-29 03:12", "2026-11-29T02:12:00.000000Z"),
        ("2026-11-29T03:12:00Z", "2026-11-29T03:12:00.000000Z"),
        ("48,203", "48203"),
    ],
)
def test_a_moment_is_resolved_here_and_told_back_with_its_zone(
    words: str, asked: str, capfd: pytest.CaptureFixture[str]
) -> None:
    frame = NodeList(as_of_seq=48203, as_of="2026-11-29T02:12:00Z", items=())
    with answering(200, codec.encode(frame)) as server:
        assert run(["nodes", "--at", words, "--server", server.url]) == Exit.YES
    assert query(server) == {"at": asked}
    told = capfd.readouterr().err.splitlines()
    assert told == ["as of 2026-11-29 03:12:00 CET, sequence 48,203", "none"]


# spec: O5
@pytest.mark.parametrize(
    "verb", ["status", "nodes", "replicas", "models", "catalog show", "explain-placement m"]
)
def test_every_list_can_be_asked_of_the_past(verb: str) -> None:
    no = Refusal(as_of_seq=1, code="not_kept", message="that is not kept any more", why="since")
    with answering(404, codec.encode(no)) as server:
        assert run([*verb.split(), "--at", "-2h", "--server", server.url]) == Exit.NOT_FOUND
    assert abs(codec.seconds(query(server)["at"]) - datetime.now(UTC).timestamp() + 7200) < 600


def test_what_is_no_moment_is_refused_before_anything_is_asked(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with answering(200) as server:
        assert run(["status", "--at", "soon", "--server", server.url]) == Exit.USAGE
    assert server.asked == []
    assert "[bad_moment]" in capfd.readouterr().err


def test_the_zone_is_that_of_tz_or_of_the_machine(tmp_path: Path) -> None:
    assert zone({"TZ": ":Asia/Tokyo"}) == ZoneInfo("Asia/Tokyo")
    assert zone({"TZ": ""}) is UTC
    assert zone({}, tmp_path / "none") is not None
    assert zone({"TZ": ":/etc/localtime"}) is not None


@pytest.mark.parametrize("name", ["no/such", "Europe", "/no/such", "CETT", "\x00", "../x"])
def test_a_zone_that_there_is_not_is_refused(name: str) -> None:
    with pytest.raises(Failure) as refused:
        zone({"TZ": name})
    assert (refused.value.exit_code, refused.value.code) == (Exit.USAGE, "bad_zone")


def test_a_refusal_is_told_in_the_askers_zone(capfd: pytest.CaptureFixture[str]) -> None:
    why = "kept from 2026-11-30T12:00:00.123456Z, sequence 1"
    no = Refusal(as_of_seq=1, code="not_kept", message="that is not kept", why=why)
    for words in (["status", "--at", "7"], ["why", "node", "n"], ["events", "--from-seq", "1"]):
        with answering(404, codec.encode(no)) as server:
            assert run([*words, "--server", server.url]) == Exit.NOT_FOUND
        told = capfd.readouterr().err
        assert "  why:  kept from 2026-11-30 13:00:00 CET, sequence 1\n" in told


# spec: O2
def test_events_are_lines(capfd: pytest.CaptureFixture[str]) -> None:
    heading, line = shown(capfd, EVENTS, "events")
    assert heading.split() == ["SEQ", "TIME", "(CET)", "WHAT"]
    assert line.startswith("    48203  11-30 13:00:00  m-0-1 placed on a node")
    assert line.endswith(EVENT.summary)
    wide = shown(capfd, EVENTS, "events", "-o", "wide")
    assert "replica.placed" in wide[1]
    assert wide[1].endswith(EVENT.summary)
    (row,) = shown(capfd, EVENTS, "events", "-o", "jsonl")
    assert json.loads(row)["detail"] == {"id": "m-0-1"}
    assert json.loads("\n".join(shown(capfd, EVENTS, "events", "-o", "json")))["nextSeq"] == 48212
    assert shown(capfd, EVENTS, "events", "-o", "name") == ["7-48202-1"]


def test_what_an_engine_wrote_does_not_steer_the_terminal(
    capfd: pytest.CaptureFixture[str],
) -> None:
    hostile = replace(EVENT, summary="bad \x1b[2J\nline", at="\x1b[2J")
    (_, line) = shown(capfd, replace(EVENTS, items=(hostile,)), "events")
    assert "bad \\x1b[2J\\x0aline" in line
    told = Why(as_of_seq=1, target="node", name="n", answer=("\x1b[2J",), chain=(hostile,))
    assert not any("\x1b" in line for line in shown(capfd, told, "why", "node", "n"))


# spec: O2
def test_what_is_asked_of_the_log_is_sent(capfd: pytest.CaptureFixture[str]) -> None:
    with answering(200, codec.encode(EVENTS)) as server:
        words = ["--since", "2026-11-29 03:12", "--until", "48,300", "--for", "node/a b"]
        assert run(["events", *words, "--type", "node.", "--server", server.url]) == Exit.YES
    assert query(server) == {
        "since": "2026-11-29T02:12:00.000000Z",
        "until": "48300",
        "for": "node/a b",
        "type": "node.",
        "limit": "500",
    }


# spec: O2
def test_the_log_is_asked_part_by_part_up_to_its_end(capfd: pytest.CaptureFixture[str]) -> None:
    """One answer for all requests: the second part is asked for from where the first one ended."""
    part = replace(EVENTS, next_seq=48204, end_seq=48211)
    with answering(200, codec.encode(part)) as server:
        words = ["events", "--limit", "2", "--since", "10m", "--server", server.url]
        assert run(words) == Exit.YES
    assert [query(server, n).get("from") for n in range(2)] == [None, "48204"]
    assert [query(server, n).get("limit") for n in range(2)] == ["2", "1"]
    assert query(server, 1)["until"] == "48211"
    assert "flotilla events --from-seq 48204 --limit 2" in capfd.readouterr().err


# spec: O2
@pytest.mark.parametrize("output", ["wide", "jsonl", "json"])
def test_what_follows_is_asked_for_by_the_same_question(
    output: str, capfd: pytest.CaptureFixture[str]
) -> None:
    part = replace(EVENTS, next_seq=48204, end_seq=48211)
    asked = ["--for", "node/a b", "--type", "node.", "--until", "48300"]
    rest = [*asked, "--limit", "1", "--output", output]
    with answering(200, codec.encode(part)) as server:
        assert run(["events", "--from-seq", "7", *rest, "--server", server.url]) == Exit.YES
    told = capfd.readouterr().err
    typed = shlex.split(told[told.index("events --from-seq") :])
    assert typed == ["events", "--from-seq", "48204", *rest]


# spec: O5
@pytest.mark.parametrize(
    ("since", "told"),
    [("2026-11-30", True), ("2026-11-30 13:00", False), ("48,202", True), ("48,203", False)],
)
def test_since_before_what_is_kept_says_from_when_on_it_is(
    since: str, told: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    aged = replace(EVENTS, kept_from_seq=48203)
    for output in ("table", "json"):
        with answering(200, codec.encode(aged)) as server:
            run(["events", "--since", since, "-o", output, "--server", server.url])
        words = "kept from 2026-11-30 13:00:00 CET, sequence 48,203"
        assert (words in capfd.readouterr().err) == told


def test_one_beginning_is_given_and_an_empty_word_is_sent() -> None:
    with answering(200, codec.encode(EVENTS)) as server:
        where = ["--server", server.url]
        assert run(["events", "--since", "7", "--from-seq", "7", *where]) == Exit.USAGE
        assert run(["events", "--for", "", *where]) == Exit.YES
    assert [each[1] for each in server.asked] == ["/api/v1/events?for=&limit=500"]


def test_a_follower_that_may_not_ask_ends(capfd: pytest.CaptureFixture[str]) -> None:
    with answering(401, b"") as server:
        assert run(["events", "-f", "--server", server.url]) == Exit.UNREACHABLE
    assert len(server.asked) == 1


# spec: O5
def test_why_tells_the_answer_and_then_what_led_there(capfd: pytest.CaptureFixture[str]) -> None:
    told = Why(
        as_of_seq=48211,
        target="replica",
        name="m-0-1",
        answer=("m-0-1 is placed on gpu-1; routers do not choose it", "it waits for the agent"),
        chain=(EVENT, SWAP),
        missing=("the cause of sequence 48190 is not kept",),
    )
    lines = shown(capfd, told, "why", "replica", "m-0-1")
    assert lines[:2] == [
        "m-0-1 is placed on gpu-1; routers do not choose it",
        "  it waits for the agent",
    ]
    assert lines[3].split() == ["SEQ", "TIME", "(CET)", "CAUSE", "WHAT,", "the", "newest", "first"]
    assert lines[4].startswith("    48203  11-30 13:00:00      48190  m-0-1 placed on a node")
    assert lines[-1] == "  ! the cause of sequence 48190 is not kept"
    assert max(map(len, lines)) <= 80


# spec: C7
def test_the_history_of_the_catalog_is_a_table(capfd: pytest.CaptureFixture[str]) -> None:
    row = RevisionRow(
        revision=18,
        current=True,
        seq=9,
        at=AT,
        author="ann",
        reason="more",
        hash="0123456789abcdef",
        models=4,
        added=(ModelName("qwen"),),
        changed=(ModelName("a"), ModelName("b"), ModelName("c"), ModelName("d")),
    )
    frame = CatalogHistory(as_of_seq=9, items=(row,))
    lines = shown(capfd, frame, "catalog", "history")
    assert lines[1].split() == [
        "r18*",
        "2026-11-30",
        "13:00:00",
        "CET",
        "ann",
        "+qwen",
        "~4",
        "more",
    ]
    assert shown(capfd, frame, "catalog", "history", "-o", "name") == ["r18"]


# spec: C7
def test_a_difference_of_catalogs_is_the_answer_no(capfd: pytest.CaptureFixture[str]) -> None:
    fields = (FieldChange(path="gpu.count", old="2", new="4"),)
    changes = (
        EntryChange(section="models", name="big", change="changed", fields=fields),
        EntryChange(section="models", name="new", change="added"),
        EntryChange(section="engines", name="vllm", change="removed"),
    )
    frame = CatalogDiff(as_of_seq=9, old=1, new=2, items=changes)
    assert shown(capfd, frame, "catalog", "diff", "r1", "2", exit_code=Exit.NO) == [
        "~ big",
        "    gpu.count: 2 → 4",
        "+ new",
        "- engine vllm",
    ]
    same = CatalogDiff(as_of_seq=9, old=1, new=2, items=())
    assert shown(capfd, same, "catalog", "diff", "1", "2") == []


# spec: C7
def test_a_rollback_sends_what_may_vanish(capfd: pytest.CaptureFixture[str]) -> None:
    done = Accepted(as_of_seq=9, command=EventId("c-1"), revision=18)
    with answering(200, codec.encode(done)) as server:
        words = ["catalog", "rollback", "r3", "--prune", "a", "--if-revision", "r17", "-m", "bad"]
        assert run([*words, "--server", server.url]) == Exit.YES
    assert capfd.readouterr().out == "catalog r18, the same as r3, is current (command c-1)\n"
    assert codec.decode(server.asked[0][3], RollbackCatalog) == RollbackCatalog(
        revision=3, prune=(ModelName("a"),), if_revision=17, reason="bad"
    )


# spec: C7
def test_a_kept_revision_is_shown_as_a_file(capfd: pytest.CaptureFixture[str]) -> None:
    view = CatalogView(as_of_seq=9, revision=3, hash="h", author="a", source=Raw(b'{"models":{}}'))
    with answering(200, codec.encode(view)) as server:
        assert run(["catalog", "show", "r3", "--server", server.url]) == Exit.YES
        assert run(["catalog", "show", "3", "--at", "7", "--server", server.url]) == Exit.USAGE
    assert _path(server) == "/api/v1/catalog/revisions/3"
    assert capfd.readouterr().out == "models: {}\n"


def test_the_present_is_asked_for_without_a_moment(capfd: pytest.CaptureFixture[str]) -> None:
    now = Status(
        as_of_seq=1, leader="c", leading=True, nodes={}, models={}, replicas={}, catalog_revision=1
    )
    with answering(200, codec.encode(now)) as server:
        run(["status", "--server", server.url])
    assert _path(server) == "/api/v1/status"
    assert capfd.readouterr().err == ""
