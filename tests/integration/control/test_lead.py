"""Two control services: one leads, the other follows and takes over; a superseded one writes nothing."""

import signal

from schemas import subjects
from tests.support.control import Controls
from tests.support.nats_server import NatsServer
from tests.support.refold import read_log

CATALOG = "models:\n  m{}: {{engine: llamacpp, source: /models/m.gguf}}\n"


# spec: L7 O3
async def test_a_second_control_follows_sends_writes_on_and_takes_over(
    nats: NatsServer, controls: Controls
) -> None:
    first = controls.start("control-1")
    await first.until_leading()
    second = controls.start("control-2")
    await second.until_status(lambda s: s["leader"] == "control-1", "follows")
    status, headers = await second.apply(CATALOG.format(1))
    assert (status, headers["Location"]) == (307, f"http://{first.address}/api/v1/catalog")
    first.program.kill()
    await second.until_leading()
    assert (await second.apply(CATALOG.format(1)))[0] == 200


# spec: L7
async def test_a_superseded_control_writes_nothing_and_follows(
    nats: NatsServer, controls: Controls
) -> None:
    pair = [controls.start("control-1"), controls.start("control-2")]
    leader, standby = pair
    await leader.until_status(lambda s: s["leader"], "sees a leader")
    status = await leader.ask("status")
    assert status is not None
    if not status["leading"]:
        leader, standby = standby, leader
    await leader.until_leading()
    for round_ in range(3):
        leader.program.signal(signal.SIGSTOP)
        await standby.until_leading()
        applied, answer = await standby.apply(CATALOG.format(round_), pruneAll=True)
        assert applied == 200
        leader.program.signal(signal.SIGCONT)
        await leader.until_status(lambda s: not s["leading"], "has stepped down")
        sequence = answer["asOfSeq"]
        await leader.until_status(lambda s: s["asOfSeq"] >= sequence, "follows")  # noqa: B023
        leader, standby = standby, leader
    final = await leader.until_leading()
    fence = 0
    for at, subject, event in await read_log(nats.url, final["asOfSeq"]):
        if subject == subjects.CONTROL_EPOCH:
            fence = at
        elif event.epoch:
            assert event.epoch == fence, f"{event.type} at {at} is of a superseded leader"
