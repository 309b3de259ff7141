from typing import Any

from tests.support.fleet import LiveFleet
from tests.support.load import streaming
from tests.support.waiting import eventually


async def test_kill_nine_of_an_agent_leaves_its_engines_serving_and_the_next_one_adopts_them(
    serving: LiveFleet,
) -> None:  # spec: A4, A5
    fleet = serving
    pids = await fleet.engine_pids()
    agent = fleet.programs["node-1"]
    async with streaming(fleet.base_url(), "tiny") as load:
        await load.at_least(20)
        agent.kill()
        await load.more(20)
        agent.start()

        async def adopted() -> dict[str, Any] | None:
            answer = await fleet.ask("state")
            info = (answer or {"state": {"documents": {}}})["state"]["documents"].get(
                "infos.node-1"
            )
            return info["document"] if info and info["document"].get("sessions") else None

        info = await eventually(adopted, "the new agent reports the session that it found")
        await load.more(20)
    assert load.failures() == {}
    assert await fleet.engine_pids() == pids
    assert [session["replica"] for session in info["sessions"]] == [
        replica for replica, pid in pids.items() if pid == info["sessions"][0]["process"]["pid"]
    ]
