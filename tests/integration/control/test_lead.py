"""Two control services: one leads, the other follows and takes over; a superseded one writes nothing."""

import asyncio
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from ctl.failure import Exit
from ctl.main import run
from schemas import subjects
from tests.support.control import Control, Controls
from tests.support.nats_server import NatsServer
from tests.support.refold import read_log

ONE = "models: {one: {engine: llamacpp, source: /models/one.gguf, cpu: {cores: 64}}}\n"
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


def sharing_tokens(controls: Controls, of: Control, name: str) -> Control:
    """Another control that knows the same tokens, as those of one fleet should."""
    shutil.copytree(of.data / "control", of.data.parent / name / "control")
    (of.data.parent / name / "control" / "seen.json").unlink(missing_ok=True)
    return controls.start(name)


async def typed(*words: str) -> int:
    return await asyncio.to_thread(run, list(words))


# spec: L7 O3
async def test_a_standby_answers_what_is_asked_and_sends_commands_on(
    controls: Controls, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first = controls.start("control-1")
    await first.until_leading()
    second = sharing_tokens(controls, first, "control-2")
    await second.until_status(lambda s: s["leader"] == "control-1", "follows")
    file = tmp_path / "catalog.yaml"
    file.write_text(ONE)
    at_standby = ["--server", f"http://{second.address}", "--data", str(second.data)]
    assert await typed("catalog", "apply", str(file), *at_standby) == 0
    assert "catalog r1 is current" in capfd.readouterr().out
    shown = await second.until_status(lambda s: s["catalogRevision"] == 1, "has applied it")
    assert not shown["leading"]
    assert shown["asOfSeq"] > 0
    for path in ("nodes", "replicas", "models", "catalog", "placement/one", "state"):
        status, answer = await second.call(path)
        assert status == 200, path
        assert answer["asOfSeq"] >= shown["asOfSeq"], path
    first.program.kill()
    code = await typed("catalog", "apply", str(file), *at_standby)
    told = capfd.readouterr().err
    if code != 0:  # It has not taken over yet.
        assert code == Exit.UNREACHABLE
        assert f"http://{first.address}" in told


def row_of(status: dict[str, Any], control: str) -> dict[str, Any]:
    rows: list[dict[str, Any]] = [r for r in status["controls"] if r["control"] == control]
    (row,) = rows
    return row


def is_current(status: dict[str, Any], control: str) -> bool:
    rows = [row for row in status["controls"] if row["control"] == control]
    return len(rows) == 1 and rows[0]["behind"] == 0


# spec: O1 L7
async def test_every_control_says_who_leads_and_how_far_the_others_are(
    controls: Controls,
) -> None:
    pair = [controls.start("control-1"), controls.start("control-2")]
    for asked in pair:
        status = await asked.until_status(
            lambda s: len(s["controls"]) == 2 and any(row["leading"] for row in s["controls"]),
            "hears both",
        )
        assert status["leaderSince"]
        assert row_of(status, asked.name)["answering"]
        (leading,) = [row for row in status["controls"] if row["leading"]]
        assert leading["control"] == status["leader"]
    leads = await pair[0].until_status(lambda s: s["leader"], "knows the leader")
    (leader,) = [control for control in pair if control.name == leads["leader"]]
    (standby,) = [control for control in pair if control is not leader]
    standby.program.signal(signal.SIGSTOP)
    await leader.apply(ONE)
    behind = await leader.until_status(
        lambda s: row_of(s, standby.name)["behind"] > 0, "sees it fall behind"
    )
    assert row_of(behind, standby.name)["behindSeconds"] >= 0
    standby.program.signal(signal.SIGCONT)
    await leader.until_status(lambda s: is_current(s, standby.name), "sees it catch up")
