"""Published, or not? Control behind a proxy that lets writes in and loses their acknowledgements."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from schemas import subjects
from services.log import streams
from services.log.api import call
from services.log.connect import Connection
from tests.support.control import Control, Controls
from tests.support.nats_server import NatsServer
from tests.support.proxy import Proxy, up_to
from tests.support.refold import read_log

CATALOG = "models:\n  {}: {{engine: llamacpp, source: /models/m.gguf, replicas: 0}}\n"


@pytest.fixture
def behind(proxy: Proxy, tmp_path: Path) -> Iterator[Controls]:
    made = Controls(proxy, tmp_path)
    yield made
    made.kill()


@pytest_asyncio.fixture
async def control(behind: Controls) -> Control:
    made = behind.start()
    await made.until_leading()
    return made


# case: JS-07
# spec: L6 L8
@pytest.mark.parametrize("window", [120_000_000_000, 100_000_000], ids=["inside", "outside"])
async def test_a_command_whose_ack_is_lost_changes_once_and_again_when_it_is_given_again(
    nats: NatsServer, connection: Connection, proxy: Proxy, control: Control, window: int
) -> None:
    """Tried again after 5 s: inside of the time that the server remembers ids, or outside."""
    found = (await call(connection, "STREAM.INFO.FLOTILLA_LOG", None, streams.StreamInfo)).config
    wanted = found | {"duplicate_window": window}
    await call(connection, "STREAM.UPDATE.FLOTILLA_LOG", wanted, streams.StreamInfo)
    answers: list[str] = []
    for name in ("one", "two", "one"):
        proxy.dropped.clear()
        lost = 1 if name == "one" and not answers else 0
        proxy.drop = up_to(lost, lambda frame: b'"batch":' in frame.body)
        status, answer = await control.apply(CATALOG.format(name), pruneAll=True)
        assert status == 200, answer
        assert len(proxy.dropped) == lost
        answers.append(answer["command"])
    assert len(set(answers)) == 3
    events = await read_log(nats.url, await streams.head(connection))
    assert max(Counter(event.id for _, _, event in events).values()) == 1
    pointers = [event for _, subject, event in events if subject == subjects.CATALOG]
    records = [event for _, subject, event in events if subject == subjects.command("apply")]
    assert len(pointers) == len(records) == 3
    shown = await control.ask("catalog")
    assert shown is not None
    assert shown["revision"] == 3
