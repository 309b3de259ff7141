"""`flotilla journal export|import|verify` with the data folder of an `up`: its NATS, by its doors."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctl import doors as ctl_doors
from ctl.remembered import Ports, remember
from services.log.connect import Connection
from services.runtime.failure import Exit
from tests.support.doors import Doors
from tests.support.nats_server import NatsServer
from tests.support.past import begun, written


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """Of an `up --listen` whose NATS is empty, and runs alone."""
    data = tmp_path / "a fleet"
    doors = Doors(ctl_doors.users_folder(data), "admin", "operator.cli")
    server = NatsServer(tmp_path / "its-nats", users=doors.text)
    server.start()
    remember(data, Ports(nats=server.port))
    ctl_doors.remember_doors(data, ctl_doors.Doors(listen="127.0.0.1"))
    yield data
    server.kill()


def flotilla(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ctl.main", "journal", *map(str, words)]
    return run(command)


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


async def test_a_fleet_is_named_by_its_data_folder(
    log: Connection, data: Path, tmp_path: Path
) -> None:  # spec: S1, O3
    past = begun().pass_by(30)
    past.put("flotilla.log.s.node.n1.info", b"unreadable")
    await written(log, past)
    journal, again = tmp_path / "journal", tmp_path / "again"
    told = flotilla("export", journal, "--nats-url", log.url, "--data", data)
    assert (told.returncode, told.stdout.splitlines()[0]) == (Exit.YES, "33 events added"), told

    missing = flotilla("verify", "--data", data)
    assert missing.returncode == Exit.NOT_FOUND
    assert missing.stderr.endswith(f"flotilla journal recover --data '{data}'\n")
    told = flotilla("import", journal, "--data", data)
    assert (told.returncode, told.stdout.splitlines()[0]) == (
        Exit.YES,
        "33 messages written; LOG ends at 33",
    ), told
    told = flotilla("export", again, "--data", data)
    assert (told.returncode, told.stdout.splitlines()[0]) == (Exit.YES, "33 events added"), told
    told = flotilla("verify", "--data", data, "-o", "json")
    report = json.loads(told.stdout)
    assert told.returncode == Exit.NO
    assert (report["first"], report["last"], report["events"]) == (1, 33, 33)
    assert [(each["sequence"], each["kind"]) for each in report["items"]] == [(33, "unreadable")]


def test_a_data_folder_that_no_fleet_has_is_said(tmp_path: Path) -> None:
    told = flotilla("verify", "--data", tmp_path)
    assert (told.returncode, "[no_fleet]" in told.stderr) == (Exit.NOT_FOUND, True), told


async def test_a_reader_that_has_enough_ends_it_quietly(log: Connection) -> None:
    past = begun()
    for _ in range(2_000):
        past.put("flotilla.log.s.node.n1.info", b"unreadable")
    await written(log, past)
    command = f"{sys.executable} -m ctl.main journal verify --nats-url {log.url}"
    told = run(["bash", "-c", f"set -o pipefail; {command} | head -1"])
    assert (told.returncode, told.stderr) == (Exit.UNREAD, "")
    assert len(told.stdout.splitlines()) == 1
