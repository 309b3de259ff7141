"""The past, asked of a real control over a log that its own decisions have made."""

import asyncio
import json
import shlex
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import pytest

from ctl.failure import Exit
from ctl.main import run
from schemas import codec, subjects
from schemas.ids import NodeId
from services.control.answering import past
from services.control.answering.ranges import range_of
from services.fleet.state import FleetState
from services.log import streams
from services.log.connect import Connection
from services.log.history import bounds
from tests.builders import AT, an_event
from tests.support.control import Control, Controls, Node, a_live_node
from tests.support.nats_server import NatsServer
from tests.support.past import age_away, begun, written
from tests.support.refold import raw_log
from tests.support.waiting import eventually, until

ONE = (
    "models:\n  one: {engine: llamacpp, source: /models/one.gguf, patience: 5s, drain_grace: 1s}\n"
)
BIG = "models:\n  big: {engine: llamacpp, source: /models/big.gguf, cpu: {cores: 64}}\n"
NAMES = ("node-1", "node-2", "node-3")


async def raw(control: Control, path: str) -> bytes:
    """An answer, byte for byte."""
    request = urllib.request.Request(f"http://{control.address}/api/v1/{path}")
    request.add_header("Authorization", f"Bearer {control.token()}")

    def ask() -> bytes:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return bytes(answer.read())

    return await asyncio.to_thread(ask)


async def asked(control: Control, path: str, **query: object) -> dict[str, Any]:
    """An answer that is no refusal."""
    words = {key.rstrip("_"): str(value) for key, value in query.items()}
    answer: dict[str, Any] = json.loads(await raw(control, f"{path}?{urlencode(words)}"))
    return answer


async def refused(control: Control, path: str, **query: object) -> tuple[int, str]:
    words = {key.rstrip("_"): str(value) for key, value in query.items()}
    status, answer = await control.call(f"{path}?{urlencode(words)}")
    return status, f"{answer['code']}: {answer['why']}"


async def dumped(control: Control) -> tuple[int, bytes]:
    """What control shows now, with its sequence."""
    frame = msgspec.json.decode(await raw(control, "state"), type=dict[str, msgspec.Raw])
    return int(bytes(frame["asOfSeq"])), bytes(frame["state"])


def summaries(rows: Sequence[dict[str, Any]]) -> list[str]:
    return [row["summary"] for row in rows]


async def holder(nodes: Sequence[Node], but: Sequence[Node] = ()) -> Node:
    """The node that is assigned the only replica."""

    async def found() -> Node | None:
        for node in nodes:
            assignment = await node.assignment()
            if node not in but and assignment is not None and assignment.shards:
                return node
        return None

    return await eventually(found, "a node is assigned the replica")


async def until_routed(control: Control, replica: str) -> None:
    async def routed() -> object:
        rows = (await control.ask("replicas") or {"items": []})["items"]
        return [row for row in rows if row["replica"] == replica and row["routed"]]

    await eventually(routed, f"{replica} is routed")


# spec: O5 C7 L4 P6
async def test_a_story_is_told_as_it_was_lived(
    nats: NatsServer, connection: Connection, controls: Controls
) -> None:
    control = controls.start()
    log = (await control.until_leading())["log"]
    lived: list[tuple[int, bytes]] = []
    async with AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(a_live_node(name, connection, log)) for name in NAMES
        ]
        _, first = await control.apply(ONE, reason="first")
        lost = await holder(nodes)
        lived.append(await dumped(control))
        await lost.report("ready")
        await until_routed(control, "one-0-1")
        lived.append(await dumped(control))

        lost.beating = False
        heir = await holder(nodes, [lost])
        lived.append(await dumped(control))
        await heir.report("ready")
        await until_routed(control, "one-1-1")
        lived.append(await dumped(control))

        status, second = await control.apply(BIG, prune=["one"], reason="bigger")
        assert status == 200
        await control.until_status(lambda s: s["models"].get("pending") == 1, "big is pending")
        lived.append(await dumped(control))
        status, answer = await control.call("catalog/rollback", {"revision": 1})
        assert (status, answer["code"]) == (409, "would_remove")
        assert answer["next"] == "flotilla catalog rollback r1 --prune big"
        body = {"revision": 1, "prune": ["big"], "ifRevision": 1}
        assert (await control.call("catalog/rollback", body))[1]["code"] == "revision_changed"
        status, third = await control.call("catalog/rollback", body | {"ifRevision": 2})
        assert (status, third["revision"], third["changed"]) == (200, 3, True)
        assert (await control.call("catalog/rollback", {"revision": 3}))[1]["changed"] is False
        await holder(nodes, [lost, heir])
        lived.append(await dumped(control))

        await the_past_is_as_it_was_lived(control, nats, lived)
        await causes_are_told(control, lost, heir, first, second)
        await what_did_not_happen_is_told(control, lived[4][0])
    await revisions_are_told(control)
    await parts_make_the_whole(control)
    await the_readme_can_be_typed(control)
    await what_is_not_kept_is_refused(control)
    await what_is_not_understood_is_refused(control)
    await what_cannot_be_read_is_told(control, connection, NAMES[0])


async def the_past_is_as_it_was_lived(
    control: Control, nats: NatsServer, lived: Sequence[tuple[int, bytes]]
) -> None:
    stored = await raw_log(nats.url, lived[-1][0])
    state, again = FleetState(), dict(lived)
    for each in stored:
        state.apply(each.sequence, each.subject, each.payload)
        if each.sequence in again:
            assert state.dump() == again[each.sequence], f"at {each.sequence}"
    for sequence, dump in lived:
        frame = msgspec.json.decode(
            await raw(control, f"state?at={sequence}"), type=dict[str, msgspec.Raw]
        )
        assert bytes(frame["state"]) == dump, f"at {sequence}"
        stamp = msgspec.json.decode(frame["asOf"], type=str)
        assert abs(codec.seconds(stamp) - stored[sequence - 1].stamp) < 2e-6
        by_time = await asked(control, "nodes", at=stamp)
        assert by_time["asOf"] == stamp
        same_microsecond = [s for s in stored if abs(s.stamp - codec.seconds(stamp)) < 2e-6]
        assert by_time["asOfSeq"] in {each.sequence for each in same_microsecond}
    early = await asked(control, "status", at=lived[1][0])
    assert early["models"] == {"ready": 1}
    assert early["routers"] == []
    late = await asked(control, "status", at=lived[2][0])
    assert late["nodes"] == {"alive": 2, "lost": 1}
    placed = await asked(control, "placement/one", at=lived[0][0])
    assert (placed["decided"], placed["placed"]) == ("placed", 1)
    assert await refused(control, "placement/big", at=lived[0][0]) == (
        404,
        "no_such_model: the catalog has one",
    )
    big = await asked(control, "catalog", at=lived[4][0])
    assert (big["revision"], list(big["source"]["models"])) == (2, ["big"])


async def causes_are_told(
    control: Control,
    lost: Node,
    heir: Node,
    first: dict[str, Any],
    second: dict[str, Any],
) -> None:
    why = await asked(control, "why/replica/one-1-1")
    chain = why["chain"]
    told = summaries(chain)
    assert [row["seq"] for row in chain] == sorted((row["seq"] for row in chain), reverse=True)
    assert f"node {lost.name} is lost, silent for more than 5 s" in told
    assert f"one-1-1 placed on {heir.name}, for catalog r1" in told
    assert "admin asked for apply of catalog (bigger): accepted, revision 2" in told
    assert why["missing"] == []
    by_id = {row["id"]: row for row in chain}
    placed = next(row for row in chain if row["type"] == "replica.placed")
    assert by_id[placed["cause"]]["type"] == "node.lost"
    assert {row["cause"] for row in chain} - {None} <= set(by_id)

    earlier = await asked(control, "why/replica/one-0-1", at=second["asOfSeq"])
    assert "one-0-1 is gone" in summaries(earlier["chain"])
    assert "admin asked for apply of catalog (first): accepted, revision 1" in summaries(
        earlier["chain"]
    )
    silent = await asked(control, f"why/node/{lost.name}")
    assert "is lost since" in silent["answer"][0]
    status, why_not = await refused(control, "why/node/node-9")
    assert status == 404
    assert why_not.startswith("not_found: did you mean node-")
    assert "history is kept from sequence 1, " in why_not
    assert await refused(control, "why/model/nope") == (
        404,
        f"not_found: {why_not[why_not.index('history') :]}",
    )
    swaps: dict[str, list[str]] = {}
    for model in ("one", "big", "nope", "*"):
        rows = (await asked(control, "events", for_=f"model/{model}", until=second["asOfSeq"]))[
            "items"
        ]
        swaps[model] = [row["summary"] for row in rows if row["type"] == "catalog.swapped"]
    told_first, told_second = (
        "catalog r1 became current, by admin: first",
        "catalog r2 became current, by admin: bigger",
    )
    assert swaps == {"one": [told_first, told_second], "big": [told_second], "nope": [], "*": []}
    command = await asked(control, "events", for_=f"command/{first['command']}")
    types = [row["type"] for row in command["items"]]
    assert types[:3] == ["catalog.stored", "catalog.swapped", "command.accepted"]
    assert "replica.placed" in types


async def what_did_not_happen_is_told(control: Control, then: int) -> None:
    pending = await asked(control, "why/model/big", at=then)
    assert pending["answer"][:2] == [
        "big is pending: 0 of 1 ready",
        "0 of 1 placed; no room for more",
    ]
    assert "wants 64 cores" in pending["answer"][2]
    told = summaries(pending["chain"])
    assert "catalog r2 became current, by admin: bigger" in told
    assert any(line.startswith("big: 0 of 1 placed, no room for more: ") for line in told)


async def revisions_are_told(control: Control) -> None:
    rows = (await asked(control, "catalog/revisions"))["items"]
    assert [(row["revision"], row["current"], row["author"], row["reason"]) for row in rows] == [
        (3, True, "admin", "as r1"),
        (2, False, "admin", "bigger"),
        (1, False, "admin", "first"),
    ]
    assert (rows[1]["added"], rows[1]["removed"]) == (["big"], ["one"])
    one = await asked(control, "catalog/revisions/1")
    three = await asked(control, "catalog/revisions/3")
    assert one["source"] == three["source"]
    assert (one["revision"], one["author"]) == (1, "admin")
    assert (await asked(control, "catalog/revisions/1/diff/3"))["items"] == []
    changes = (await asked(control, "catalog/revisions/1/diff/2"))["items"]
    assert [(row["name"], row["change"]) for row in changes] == [
        ("big", "added"),
        ("one", "removed"),
    ]
    assert await refused(control, "catalog/revisions/9") == (
        404,
        "no_such_revision: kept are r1 to r3",
    )
    status, answer = await control.call("catalog/rollback", {"revision": 9})
    assert (status, answer["code"]) == (404, "no_such_revision")


class Followed:
    """`flotilla events -f` as a process of its own; what it told, line by line."""

    def __init__(self, control: Control, folder: Path, *words: str) -> None:
        self._out = (folder / "followed.jsonl").open("wb+")
        command = [sys.executable, "-m", "ctl.main", "events", "-f", "-o", "jsonl", *words]
        where = ["--server", f"http://{control.address}", "--data", str(control.data)]
        self._process = subprocess.Popen(command + where, stdout=self._out)

    def rows(self) -> list[dict[str, Any]]:
        whole, _, _ = Path(self._out.name).read_bytes().rpartition(b"\n")
        return [json.loads(line) for line in whole.splitlines()]

    async def until(self, sequence: int) -> None:
        def told() -> bool:
            rows = self.rows()
            return bool(rows) and rows[-1]["seq"] >= sequence

        await until(told)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._out.close()


# spec: O2 O5 T9
async def test_a_follower_is_told_every_event_once_over_restarts_of_control_and_nats(
    nats: NatsServer, controls: Controls, tmp_path: Path
) -> None:
    control = controls.start()
    await control.until_leading()
    followed = Followed(control, tmp_path, "--from-seq", "1")
    only = Followed(control, control.data, "--type", "catalog.", "--from-seq", "1")
    try:
        ends: list[tuple[Callable[[], None], Callable[[], None]]] = [
            (control.program.kill, control.program.start),
            (nats.kill, nats.start),
            (control.program.kill, control.program.start),
            (nats.stop, nats.start),
        ]
        for number, (end, start) in enumerate(ends):
            _, answer = await control.apply(ONE, reason=str(number))
            _, answer = await control.apply("models: {}", pruneAll=True)
            if number % 2:
                await followed.until(answer["asOfSeq"])
            await asyncio.to_thread(end)
            await asyncio.to_thread(start)
            await control.until_leading()
        _, answer = await control.apply(ONE)
        last = answer["asOfSeq"]
        await followed.until(last)
        await until(lambda: [row for row in only.rows() if row["seq"] >= last - 2])
    finally:
        followed.end()
        only.end()
    sequences = [row["seq"] for row in followed.rows()]
    assert sequences == list(range(1, len(sequences) + 1))
    swaps = [row["seq"] for row in only.rows()]
    assert swaps == [row["seq"] for row in followed.rows() if row["type"].startswith("catalog.")]


async def parts_make_the_whole(control: Control) -> None:
    for only in ({}, {"type": "replica."}, {"for": "model/one"}):
        whole = await asked(control, "events", since=1, **only)
        assert whole["nextSeq"] == whole["endSeq"] + 1
        parts, start = list[dict[str, Any]](), 1
        while start <= whole["endSeq"]:
            query: dict[str, object] = {"from": start, "until": whole["endSeq"], "limit": 3}
            part = await asked(control, "events", **query | only)
            assert len(part["items"]) <= 3
            parts += part["items"]
            start = part["nextSeq"]
        assert parts == whole["items"]
        assert len(parts) > 3
    assert [row["seq"] for row in (await asked(control, "events", until=2))["items"]] == [1, 2]


async def the_readme_can_be_typed(control: Control) -> None:
    page = Path("README.md").read_text()  # noqa: ASYNC240 - a small file.
    _, _, below = page.partition("## Ask the log\n\n```\n")
    lines = below.partition("```")[0].replace("smollm2", "one").splitlines()
    commands = [shlex.split(line, comments=True)[1:] for line in lines]
    assert len(commands) >= 5
    where = ["--server", f"http://{control.address}", "--data", str(control.data)]
    for words in commands:
        then = ["now" if word.startswith("yesterday") else word for word in words]
        assert await asyncio.to_thread(run, then + where) in {Exit.YES, Exit.NO}, words


async def what_is_not_kept_is_refused(control: Control) -> None:
    kept = await asked(control, "events", limit=1)
    since = kept["keptFrom"]
    for moment in ("0", "2020-01-01T00:00:00Z"):
        status, why = await refused(control, "status", at=moment)
        assert (status, why) == (404, f"not_kept: kept from {since}, sequence 1"), moment
        status, why = await refused(control, "events", until=moment)
        assert (status, why) == (404, f"not_kept: kept from {since}, sequence 1"), moment
    last = (await asked(control, "status"))["asOfSeq"]
    for path, key, value in (
        ("status", "at", 10**9),
        ("status", "at", "2100-01-01T00:00:00Z"),
        ("events", "from", last + 100),
        ("events", "since", last + 100),
        ("events", "until", last + 100),
        ("events", "since", "2100-01-01T00:00:00Z"),
        ("events", "until", "2100-01-01T00:00:00Z"),
    ):
        status, why = await refused(control, path, **{key: value})
        assert status == 409, (path, key, value)
        assert why.startswith("not_yet: the log ends at sequence "), (path, key, value)
    assert (await refused(control, "status", at="yesterday"))[1].startswith("bad_request")
    for moment in ("9" * 250, "", "9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00+14:00"):
        for path, key in (("status", "at"), ("events", "since"), ("events", "until")):
            status, _ = await refused(control, path, **{key: moment})
            assert status == 400, (path, key, moment)
    for digits in ("\u0661", "9" * 250):
        assert (await refused(control, f"catalog/revisions/{quote(digits)}"))[0] == 400
    for query in (
        {"since": 3, "until": 1},
        {"since": codec.rfc3339(codec.seconds(since) + 1), "until": since},
        {"since": 1, "from": 1},
        {"limit": 0},
        {"for": f"pod/{quote('x')}"},
        {"for": ""},
        {"for": "replica/one"},
    ):
        assert (await refused(control, "events", **query))[0] == 400, query


async def what_is_not_understood_is_refused(control: Control) -> None:
    """A question is answered whole, or it is said what of it is not."""
    last = (await asked(control, "status"))["asOfSeq"]
    assert (await asked(control, "events", from_=last + 1))["items"] == []
    assert (await asked(control, "events", from_=last + 1, until=last))["items"] == []
    for path, why in (
        ("events?sinse=1", "`sinse` is not known: events takes for, type, from, since, "),
        ("status?since=1", "`since` is not known: status takes at"),
        ("status?at=1&at=2", "at is given twice"),
        ("catalog/revisions/1?at=1", "`at` is not known: catalog-revision takes no parameter"),
        (f"why/model/{'x' * 10_000}", "name has 10000 characters; 256 at most"),
        (f"events?for=node/{'x' * 10_000}", "for has 10005 characters; 256 at most"),
        ("why/replica/one", "`one` is no replica's id"),
        ("why/pod/one", "`pod` is not one of node, replica, model, gpu"),
        ("why/replica/one-0-99999999999999999999999", "is no replica's id"),
    ):
        status, answer = await control.call(path)
        assert (status, answer["code"]) == (400, "bad_request"), path
        assert why in answer["why"], path
    for name in ("%00", "%FF", "%ED%A0%80", "..%2F..", "*", "%3E", "a.b", "a%20b", "%C3%BC" * 40):
        for kind in ("node", "model", "gpu"):
            assert (await control.call(f"why/{kind}/{name}"))[0] == 404, (kind, name)
        assert (await control.call(f"placement/{name}"))[0] == 404, name
        for kind in ("node", "model", "gpu", "command"):
            assert (await control.call(f"events?for={kind}/{name}"))[0] == 200, (kind, name)


async def what_cannot_be_read_is_told(control: Control, connection: Connection, node: str) -> None:
    subject = subjects.node_info(NodeId(node))
    newer = an_event({"odd": "x"}, kind="node.rose", version=99).replace(b'"x"', b'"\xff"')
    for payload in (b"\x00\xff no JSON", b'{"a":' * 100_000, newer):
        await connection.request(subject, payload, 5.0)
    last = (await asked(control, "events", limit=1, type="node.rose"))["nextSeq"] - 1
    for only in ({}, {"for": f"node/{node}"}):
        rows = (await asked(control, "events", from_=last - 2, **only))["items"]
        assert [(row["seq"], row["type"]) for row in rows] == [
            (last - 2, "unreadable"),
            (last - 1, "unreadable"),
            (last, "node.rose"),
        ]
        assert rows[0]["summary"].startswith("cannot be read: no event of ours")
        assert "nested too deeply" in rows[1]["summary"]
        assert rows[2]["summary"] == "node.rose v99 (not known to this version)"
    unread = await asked(control, "events", type="unreadable")
    assert [row["seq"] for row in unread["items"]] == [last - 2, last - 1]
    why = await asked(control, f"why/node/{node}")
    assert {last - 1, last} & {row["seq"] for row in why["chain"]}
    assert (await asked(control, "status"))["halted"] != []


# spec: O5 L7
async def test_a_standby_tells_every_event_once_also_when_it_takes_over(
    controls: Controls, tmp_path: Path
) -> None:
    first = controls.start("control-1")
    await first.until_leading()
    second = controls.start("control-2")
    await second.until_status(lambda status: status["log"], "follows")
    followed = Followed(second, tmp_path, "--from-seq", "1")
    try:
        _, answer = await first.apply(ONE)
        await followed.until(answer["asOfSeq"])
        first.program.kill()
        await second.until_leading()
        _, answer = await second.apply("models: {}", pruneAll=True)
        await followed.until(answer["asOfSeq"])
    finally:
        followed.end()
    rows = followed.rows()
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    claims = [row["summary"] for row in rows if row["type"] == "control.claimed"]
    assert claims == ["control control-1 took the lead", "control control-2 took the lead"]


# spec: O5
async def test_what_lies_before_the_logs_beginning_is_said_not_to_be_kept(
    connection: Connection, controls: Controls
) -> None:
    stream = {"name": subjects.LOG, "subjects": [f"{subjects.LOG_ROOT}>"], "first_seq": 1000}
    await connection.request(f"$JS.API.STREAM.CREATE.{subjects.LOG}", codec.encode(stream), 5.0)
    control = controls.start()
    await control.until_leading()
    await control.apply(ONE)
    told = await asked(control, "events")
    assert (told["items"][0]["seq"], told["keptFromSeq"]) == (1000, 1000)
    since = f"kept from {told['keptFrom']}, sequence 1,000"
    assert await refused(control, "events", from_=7) == (404, f"not_kept: {since}")
    status, why = await refused(control, "nodes", at=7)
    assert (status, why.partition(", ")[0].partition(" 2")[0]) == (404, "not_kept: kept from")
    assert (await asked(control, "events", since=7))["items"][0]["seq"] == 1000


# spec: O2 O5
async def test_a_range_is_one_of_what_is_kept(connection: Connection) -> None:
    await streams.create(connection)
    await written(connection, begun().pass_by(150))
    await age_away(connection, 21)
    kept = await bounds(connection)
    assert (kept.first, kept.last) == (21, 152)
    now = kept.last_stamp

    async def found(usual: int | None = None, **query: object) -> tuple[int, int | None]:
        words = {name.rstrip("_"): str(each) for name, each in query.items()}
        both = await range_of(connection, words, kept, now, usual)
        return both.first, both.last

    soon, late = codec.rfc3339(now + 50), codec.rfc3339(now + 70)
    assert await found() == (21, None)
    assert await found(100) == (53, None)
    assert await found(100, until=130) == (31, 130)
    assert await found(100, until=60) == (21, 60)
    assert await found(100, since=30) == (30, None)
    assert await found(since=7) == (21, None)
    assert await found(from_=153) == await found(since=153) == (153, None)
    assert await found(since=soon) == (153, None)
    assert await found(until=soon) == (21, 152)
    assert await found(from_=131, until=130) == (131, 130)
    for query in ({"from_": 154}, {"since": 154}, {"until": 153}, {"since": late}, {"until": late}):
        with pytest.raises(past.Outside) as refused:
            await found(None, **query)
        assert refused.value.code == "not_yet", query
        assert refused.value.why.startswith("the log ends at sequence 152, "), query
    for query in ({"from_": 20}, {"until": 20}, {"until": AT}):
        with pytest.raises(past.Outside) as refused:
            await found(None, **query)
        assert refused.value.code == "not_kept", query
        assert refused.value.why.endswith("sequence 21"), query
    for query in ({"from_": 132, "until": 130}, {"since": soon, "until": codec.rfc3339(now)}):
        with pytest.raises(past.BadQuery, match="end before it begins"):
            await found(None, **query)


async def test_who_waits_too_long_for_the_past_is_told_so(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past, "TURN_SECONDS", 0.01)
    fleet = past.PastFleet(connection)
    async with fleet.turn():
        with pytest.raises(past.Busy):
            async with fleet.turn():
                pass
    async with fleet.turn():
        pass
