# ruff: noqa: ASYNC220 - a few small files and processes.
"""Identities, sessions and sockets of real processes."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from services.agent import gpus, process
from services.runtime import proc
from tests.support.waiting import until

MARK = {"FLOTILLA_REPLICA": "tests-0-1"}


@pytest.fixture
def family() -> Iterator[subprocess.Popen[bytes]]:
    """A session of two: the leader and a child that outlives it."""
    leader = subprocess.Popen(
        ["sh", "-c", "sleep 600 & sleep 600"], start_new_session=True, env=os.environ | MARK
    )
    yield leader
    for each in proc.everybody():
        if each.session == leader.pid:
            os.kill(each.pid, signal.SIGKILL)
    leader.wait()


async def test_a_session_is_found_after_its_leader_died(
    family: subprocess.Popen[bytes],
) -> None:  # spec: A4
    leader = proc.identify(family.pid)
    assert leader is not None
    await until(lambda: len(proc.members(leader, {})) == 3)
    assert proc.members(leader, {})[-1].pid == leader.pid
    family.kill()
    family.wait()
    assert len(proc.members(leader, MARK)) == 2
    assert proc.members(leader, {"FLOTILLA_REPLICA": "other"}) == []
    await process.kill_session(leader, MARK)
    assert proc.members(leader, MARK) == []


async def test_a_session_led_by_a_stranger_is_nobody_of_ours(
    family: subprocess.Popen[bytes],
) -> None:  # spec: A4
    real = proc.identify(family.pid)
    assert real is not None
    await until(lambda: len(proc.members(real, {})) == 3)
    earlier = replace(real, start_ticks=real.start_ticks - 1)
    assert proc.members(earlier, MARK) == []
    assert proc.members(replace(real, boot_id="another"), MARK) == []
    await process.kill_session(earlier, MARK)
    assert family.poll() is None
    assert not proc.is_alive(earlier)
    assert not proc.send(earlier, signal.SIGKILL)
    assert proc.is_alive(real)


async def test_a_zombie_is_dead() -> None:
    child = subprocess.Popen(["true"])
    identity = proc.identify(child.pid)
    assert identity is not None
    await until(lambda: not proc.is_alive(identity))
    await process.ended(identity)
    child.wait()
    assert proc.stat(child.pid) is None


async def test_the_end_of_anybody_is_noticed() -> None:
    child = subprocess.Popen(["sleep", "600"])
    identity = proc.identify(child.pid)
    assert identity is not None
    waiting = asyncio.ensure_future(process.ended(identity))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    child.kill()
    async with asyncio.timeout(30):
        await waiting
    child.wait()


def test_says_who_listens_on_a_port() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert proc.listens([os.getpid()], port)
        assert not proc.listens([1], port)
        assert proc.connections(port) == 0
        with socket.create_connection(("127.0.0.1", port)):
            assert proc.connections(port) == 1
    assert not proc.listens([os.getpid()], port)


def test_names_who_listens_among_everybody() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert proc.listener(port) == os.getpid()
        assert proc.name(os.getpid())
    assert proc.listener(port) is None
    assert proc.name(-1) == ""


def test_what_may_not_be_read_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # spec: A4
    for entry in ("stat", "environ", "io", "status", "comm"):  # Any OSError will do.
        (tmp_path / "1" / entry).mkdir(parents=True)
    (tmp_path / "net" / "tcp").mkdir(parents=True)
    monkeypatch.setattr(proc, "PROC", tmp_path)
    assert proc.stat(1) is None
    assert list(proc.everybody()) == []
    assert proc.environ(1) == {}
    assert proc.work_done([1]) == 0
    assert not proc.listens([1], 80)
    assert proc.connections(80) == 0


async def test_a_child_is_found_without_a_look_at_everybody(
    family: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = proc.identify(family.pid)
    assert leader is not None
    await until(lambda: len(proc.members(leader, {})) == 3)
    child = proc.child_of(leader)
    assert child is not None
    found = proc.stat(child.pid)
    assert found is not None
    assert (found.parent, found.session) == (family.pid, family.pid)
    if (proc.PROC / str(family.pid) / "task" / str(family.pid) / "children").exists():
        monkeypatch.setattr(proc, "everybody", lambda: iter(()))
        assert proc.child_of(leader) == child


def test_counts_what_a_load_has_done() -> None:
    reader = subprocess.Popen(
        [sys.executable, "-c", "x = bytearray(64 << 20); print(len(x), flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert reader.stdout is not None
    reader.stdout.readline()
    assert proc.work_done([reader.pid]) >= 64
    reader.communicate(b"\n")
    assert proc.work_done([reader.pid]) == 0


async def test_a_machine_without_the_library_has_no_cards_and_no_fault() -> None:  # spec: A1
    assert await gpus.look() == gpus.Snapshot(cards=(), fault="")
