import json
from pathlib import Path
from typing import Any

from schemas import subjects
from services.log.connect import Connection
from tests.support.fleet import LiveFleet
from tests.support.load import streaming
from tests.support.waiting import eventually


async def delete_and_recreate_log(url: str) -> None:
    """What an operator's slip does: the stream is deleted, and an empty one made with its name."""
    connection = Connection(url, "slip")
    await connection.start()
    try:
        await connection.wait_connected()
        config = (await ask(connection, "INFO"))["config"]
        await ask(connection, "DELETE")
        await ask(connection, "CREATE", config)
    finally:
        await connection.close()


async def ask(connection: Connection, verb: str, body: object = None) -> dict[str, Any]:
    payload = b"" if body is None else json.dumps(body).encode()
    reply = await connection.request(f"$JS.API.STREAM.{verb}.{subjects.LOG}", payload, 5)
    answer: dict[str, Any] = json.loads(reply.payload)
    assert "error" not in answer, answer
    return answer


async def test_a_log_deleted_and_recreated_stops_nothing_and_is_said(serving: LiveFleet) -> None:
    # spec: L1, T9, A5
    fleet = serving
    pids = await fleet.engine_pids()
    before = await fleet.ask("status")
    assert before is not None
    async with streaming(fleet.base_url(), "tiny") as load:
        await load.at_least(20)
        await delete_and_recreate_log(fleet.nats.url)

        async def said() -> dict[str, Any] | None:
            answer = await fleet.ask("status")
            return answer["damage"] if answer and answer.get("damage") else None

        damage = await eventually(said, "status names the damage")
        await load.more(40)
        for name in ("control-1", "node-1"):
            fleet.programs[name].kill()
            fleet.programs[name].start()
        damage_after = await eventually(said, "a restarted control names it too")
        await load.more(40)
    assert load.failures() == {}
    fleet.programs["router-1"].kill()
    fleet.programs["router-1"].start()
    await fleet.until_served("tiny")
    assert before["log"] in json.dumps(damage)
    assert before["log"] in json.dumps(damage_after)
    assert engines_alive(pids)
    async with streaming(fleet.base_url(), "tiny") as after:
        await after.at_least(40)
    assert after.failures() == {}


def engines_alive(pids: dict[str, int]) -> bool:
    return all(Path(f"/proc/{pid}/stat").exists() for pid in pids.values())
