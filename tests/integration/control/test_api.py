"""The management API of a real control service."""

import hashlib
import json

from services.log.connect import Connection
from tests.support.control import Controls, a_live_node
from tests.support.nats_server import NatsServer
from tests.support.refold import read_log

ONE = "models:\n  one: {engine: llamacpp, source: /models/one.gguf}\n"
TWO = ONE + "  two: {engine: llamacpp, source: /models/two.gguf, cpu: {cores: 64}}\n"


# spec: C7 C9 L1
async def test_applies_refuses_and_records(nats: NatsServer, controls: Controls) -> None:
    control = controls.start()
    await control.until_leading()
    status, answer = await control.apply(TWO, reason="first")
    assert (status, answer["revision"], answer["changed"]) == (200, 1, True)
    status, answer = await control.apply(ONE)
    assert (status, answer["code"]) == (409, "would_remove")
    assert answer["next"] == "flotilla catalog apply FILE --prune two"
    status, answer = await control.apply("models: {one: {engin: llamacpp}}", file="c.yaml")
    assert (status, answer["code"]) == (422, "bad_catalog")
    assert answer["faults"][0]["file"] == "c.yaml"
    status, answer = await control.apply(ONE, prune=["two"], ifRevision=7)
    assert (status, answer["code"]) == (409, "revision_changed")
    mark = "0123456789abcdef"
    wanted = {"source": ONE, "prune": ["two"], "ifRevision": 1}
    status, answer = await control.call("catalog", wanted, mark=mark)
    assert (status, answer["revision"]) == (200, 2)
    sequence = answer["asOfSeq"]
    outcomes = [
        event.type
        for _, subject, event in await read_log(nats.url, sequence)
        if subject == "flotilla.log.e.command.apply"
    ]
    accepted, refused = "command.accepted", "command.refused"
    assert outcomes == [accepted, refused, refused, refused, accepted]
    for name in (mark, answer["command"]):  # Either finds it, should the answer be lost.
        _, told = await control.call(f"events?for=command/{name}")
        assert accepted in [row["type"] for row in told["items"]]


# spec: C9
async def test_gives_back_a_catalog_that_makes_the_same(controls: Controls) -> None:
    control = controls.start()
    await control.until_leading()
    await control.apply(TWO)
    status, shown = await control.call("catalog")
    assert status == 200
    status, answer = await control.apply(json.dumps(shown["source"]))
    assert (status, answer["changed"]) == (200, False)


# spec: O3
async def test_a_token_is_needed_and_its_role_decides(controls: Controls) -> None:
    control = controls.start()
    await control.until_leading()
    tokens = control.data / "control" / "tokens.toml"
    digest = hashlib.sha256(b"look").hexdigest()
    entry = f'[[token]]\nname = "eve"\nrole = "viewer"\nsha256 = "{digest}"\n'
    tokens.write_text(tokens.read_text() + entry)
    assert (await control.call("status", token=""))[0] == 401
    assert (await control.call("status", token="wrong"))[0] == 401
    assert (await control.call("status", token="look"))[0] == 200
    status, answer = await control.call("catalog", {"source": ONE}, token="look")
    assert (status, answer["code"]) == (403, "forbidden")
    assert "operator" in answer["message"]


# spec: P6
async def test_explains_placements(connection: Connection, controls: Controls) -> None:
    control = controls.start()
    log = (await control.until_leading())["log"]
    async with a_live_node("node-1", connection, log) as node:
        await control.apply(TWO)
        await node.until_assigned(1)
        _, placed = await control.call("placement/one")
        assert (placed["decided"], placed["placed"]) == ("placed", 1)
        assert placed["candidates"] == {"node-1": "fits"}
        _, refused = await control.call("placement/two")
        assert (refused["decided"], refused["placed"]) == ("unplaceable", 0)
        assert refused["candidates"] == {"node-1": "wants 64 cores, 7 free"}
    assert (await control.call("placement/three"))[0] == 404


async def test_an_unreadable_request_is_refused(controls: Controls) -> None:
    control = controls.start()
    await control.until_leading()
    status, answer = await control.call("catalog", ["no object"])
    assert (status, answer["code"]) == (400, "bad_request")
