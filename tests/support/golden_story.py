"""Records a golden log: a small fleet of real processes lives through what a log can tell of.

`python -m tests.support.golden_story 0.1` writes tests/data/golden/0.1.*; once per released version.
"""

import asyncio
import signal
import sys
import tempfile
from pathlib import Path

from services.log.connect import Connection
from services.log.streams import head
from tests.support.fleet import LiveFleet, catalog_of, tiny_entry
from tests.support.golden import write
from tests.support.refold import raw_log
from tests.support.tiny_gguf import write as write_gguf
from tests.support.waiting import eventually


async def record(name: str) -> None:
    """Live the story, then keep its log."""
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        root = Path(folder)
        async with LiveFleet(root) as fleet:
            write_gguf(root / "tiny.gguf")
            await live(fleet, root / "tiny.gguf")
            log = await raw_log(fleet.nats.url, await end_of(fleet.nats.url))
    comes = write(name, log)
    sys.stdout.write(f"{len(log)} messages, digest {comes.digest}\n")


async def live(fleet: LiveFleet, model: Path) -> None:
    """Swaps, a bad start, a dead node, a takeover, mass silence, a model that leaves."""
    fleet.add_control("control-1")
    fleet.add_router()
    for node in ("node-1", "node-2", "node-3"):
        fleet.add_node(node)
    await fleet.until_up()
    await fleet.until_nodes("node-1", "node-2", "node-3")
    await fleet.apply(catalog_of(tiny_entry("tiny", model, patience="6s")))
    await fleet.until_ready("tiny", 2)
    await fleet.until_served("tiny")
    absent = tiny_entry("absent", model.with_name("absent.gguf"), replicas=1)
    await fleet.apply(catalog_of(tiny_entry("tiny", model, patience="6s"), absent))
    await fleet.call("catalog", {"source": "models: {}"})
    await eventually(lambda: failing(fleet), "a replica fails")
    await taken_over(fleet)
    fleet.programs["node-1"].kill()
    await eventually(lambda: nodes(fleet, "lost", 1), "a node is lost")
    await fleet.until_ready("tiny", 2)
    fleet.programs["node-1"].start()
    await eventually(lambda: nodes(fleet, "alive", 3), "it is back")
    await mass_silence(fleet)
    only_tiny = {
        "source": catalog_of(tiny_entry("tiny", model, patience="6s")),
        "prune": ["absent"],
    }
    await fleet.call("catalog", only_tiny, control="control-2")
    await eventually(lambda: only(fleet, "tiny"), "the other model is gone")


async def taken_over(fleet: LiveFleet) -> None:
    """Another control leads."""
    fleet.add_control("control-2")
    fleet.programs["control-1"].kill()
    await fleet.until_up("control-2")
    fleet.programs["control-1"].start()
    await eventually(lambda: fleet.ask("status"), "the first control answers again")


async def mass_silence(fleet: LiveFleet) -> None:
    """The brake goes on, and off again."""
    agents = [fleet.programs[name] for name in ("node-1", "node-2", "node-3")]
    for agent in agents:
        agent.signal(signal.SIGSTOP)
    await eventually(lambda: braked(fleet), "the brake is on")
    for agent in agents:
        agent.signal(signal.SIGCONT)
    await eventually(lambda: nodes(fleet, "alive", 3), "all nodes are back")


async def braked(fleet: LiveFleet) -> bool:
    answer = await fleet.ask("state")
    return answer is not None and "brake" in answer["state"]["documents"]


async def failing(fleet: LiveFleet) -> bool:
    answer = await fleet.ask("replicas")
    return answer is not None and any(row["phase"] == "failed" for row in answer["items"])


async def nodes(fleet: LiveFleet, condition: str, count: int) -> bool:
    answer = await fleet.ask("nodes")
    conditions = [] if answer is None else [row["condition"] for row in answer["items"]]
    return conditions.count(condition) == count


async def only(fleet: LiveFleet, model: str) -> bool:
    answer = await fleet.ask("models")
    return answer is not None and [row["model"] for row in answer["items"]] == [model]


async def end_of(url: str) -> int:
    connection = Connection(url, "recorder")
    await connection.start()
    await connection.wait_connected()
    try:
        return await head(connection)
    finally:
        await connection.close()


if __name__ == "__main__":
    asyncio.run(record(sys.argv[1]))
