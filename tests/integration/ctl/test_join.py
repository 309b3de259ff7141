"""A second machine joins the first one's `up`: two data folders, two loopback addresses, real programs."""

import http.client
import json
import os
import re
import shlex
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ctl.failure import Exit
from schemas.joining import Joining
from tests.support.ports import free_port, free_range
from tests.support.programs import Program
from tests.support.sockets import listening
from tests.support.tiny_gguf import tiny_gguf as tiny_gguf
from tests.support.up import BIN, Up, answered
from tests.support.up import up as up
from tests.support.waiting import blocking_until

FIRST, SECOND = "127.0.0.2", "127.0.0.3"
UP = "Ctrl-C stops everything"
TLS = Path(__file__).parents[2] / "data" / "tls"
CERTIFICATES = [
    *("--tls-cert", str(TLS / "server.pem"), "--tls-key", str(TLS / "server.key")),
    *("--tls-ca", str(TLS / "test-ca.pem")),
]


@pytest.fixture
def second(tmp_path: Path) -> Iterator["Second"]:
    made = Second(tmp_path / "second")
    yield made
    made.end()


class Second:
    """The other machine: an agent with a data folder of its own."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.data.mkdir()
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, join: Path) -> None:
        first, last = free_range(10)
        flags = [
            *("--join", str(join), "--data", str(self.data), "--cores", "8"),
            *("--listen", f"{SECOND}:{self.port}", "--ports", f"{first}-{last}"),
        ]
        with (self.data / "agent.log").open("wb") as log:
            self._process = subprocess.Popen(
                [BIN / "flotilla", "agent", *flags],
                cwd=self.data,
                env={k: v for k, v in os.environ.items() if not k.startswith("FLOTILLA_")},
                stdout=log,
                stderr=log,
            )

    def told(self) -> str:
        return (self.data / "agent.log").read_text()

    def health(self) -> tuple[int, str]:
        try:
            return get(f"{SECOND}:{self.port}", "/readyz")
        except OSError:
            return 0, ""

    def end(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
            command = ["-m", "services.agent.stop", str(self.data), "5"]
            subprocess.run([BIN / "python", *command], check=True)
            print(self.told()[-3000:])  # noqa: T201


def get(address: str, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(address, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def hosts_of(up: Up) -> set[str]:
    return {host for host, _ in listening(up.processes())}


def test_without_credentials_nothing_listens_beyond_loopback(up: Up) -> None:
    # spec: T10, S1
    up.start()
    up.until_told(UP)
    assert len(listening(up.processes())) >= 6  # NATS and its monitoring, three programs, engines.
    assert hosts_of(up) == {"127.0.0.1"}
    refused = up.flotilla("join", "create", "node-2")
    assert (refused.returncode, "[loopback_only]" in refused.stderr) == (Exit.REFUSED, True)
    assert up.flotilla("join", "list").stdout == ""


def test_a_second_machine_joins_serves_and_is_let_in_no_more(
    up: Up, second: Second, tmp_path: Path
) -> None:
    # spec: S1, T10, A4
    typed = readme()
    assert typed[0] == ["up", "--listen", "10.0.0.1"]
    assert typed[2] == ["agent", "--join", "node-2.join"]
    up.start(*up.flags, "--listen", FIRST, *CERTIFICATES)
    told = up.until_told(UP)
    assert "no TLS" not in told
    assert "join create NODE" in told
    assert_only_what_a_second_machine_needs_is_open(up)

    file = tmp_path / "node-2.join"
    made = up.flotilla(*typed[1], "--to", str(file))
    assert made.returncode == Exit.YES, made
    joining = Joining(**json.loads(file.read_bytes()))
    assert joining.url == f"tls://{FIRST}:{up.nats}"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert joining.password not in made.stdout + made.stderr + repr(joining)
    again = up.flotilla("join", "create", "node-2", "--to", str(tmp_path / "other"))
    assert (again.returncode, "[already_joined]" in again.stderr) == (Exit.REFUSED, True)

    second.start(file)
    serve_on_both(up, tmp_path)
    blocking_until(lambda: both_used(up), "both endpoints have served")
    assert secrets_shown(up, second, joining.password) == []
    assert_the_journal_is_within_reach(up, tmp_path / "journal")

    assert up.flotilla("join", "revoke", "node-2").returncode == Exit.YES
    assert "node-2" not in up.flotilla("join", "list", "-o", "name").stdout
    blocking_until(lambda: "does not let user agent.node-2 in" in second.health()[1], "it is told")
    assert answered(up.router)


def readme() -> list[list[str]]:
    """What "Add a second machine" says to type."""
    page = (Path(__file__).parents[3] / "README.md").read_text()
    block = page.partition("## Add a second machine\n\n```\n")[2].partition("```")[0]
    return [shlex.split(line, comments=True)[1:] for line in block.splitlines()]


def assert_only_what_a_second_machine_needs_is_open(up: Up) -> None:
    open_here = listening(up.processes())
    assert ("127.0.0.1", up.router) in open_here
    assert ("127.0.0.1", up.router_admin) in open_here
    assert {(FIRST, up.nats), (FIRST, up.control), (FIRST, up.agent)} <= open_here
    assert hosts_of(up) == {"127.0.0.1", FIRST}
    status, _ = get(f"{FIRST}:{up.control}", "/api/v1/status")
    assert status == http.client.UNAUTHORIZED
    for name in ("users.conf", "users/control", "users/admin"):
        assert stat.S_IMODE((up.data / "nats" / name).stat().st_mode) == 0o600


def assert_the_journal_is_within_reach(up: Up, folder: Path) -> None:
    """By the doors of the data folder, as users and with TLS."""
    assert up.flotilla("journal", "export", str(folder)).returncode == Exit.YES
    assert up.flotilla("journal", "verify").returncode == Exit.YES
    again = up.flotilla("journal", "import", str(folder))
    there = again.returncode == Exit.YES and "holds this journal to" in again.stderr
    grown = again.returncode == Exit.REFUSED and "[log_in_use]" in again.stderr
    assert there or grown, again  # By whether anything was appended since the export.


def serve_on_both(up: Up, folder: Path) -> None:
    """CPU replicas are spread, so the second of two comes to the other node."""

    def alive() -> bool:
        found = {row["node"]: row["condition"] for row in up.ask("nodes")["items"]}
        return len(found) == 2 and found.get("node-2") == "alive"

    blocking_until(alive, "node-2 has joined")
    catalog = folder / "two.yaml"
    shown = up.flotilla("catalog", "show").stdout
    catalog.write_text(re.sub(r"(?m)^(    engine:.*)$", r"\1\n    replicas: 2", shown))
    assert up.flotilla("catalog", "apply", str(catalog)).returncode == Exit.YES

    def ready() -> bool:
        rows = [row for row in up.ask("replicas")["items"] if row["phase"] == "ready"]
        return len({row["shards"][0]["node"] for row in rows}) == 2

    blocking_until(ready, "a replica serves on each node")


def both_used(up: Up) -> bool:
    assert answered(up.router)
    table: dict[str, Any] = json.loads(get(f"127.0.0.1:{up.router_admin}", "/api/v1/router")[1])
    used = {row["address"].partition(":")[0]: row["idleSeconds"] for row in table["endpoints"]}
    return used.keys() == {FIRST, SECOND} and all(idle >= 0 for idle in used.values())


def secrets_shown(up: Up, second: Second, password: str) -> list[str]:
    """Where a password stands that should not: arguments, environments, logs."""
    places = {f"process {pid}": words for pid, words in up.processes().items()}
    places |= {str(log): log.read_text() for log in (up.data / "logs").glob("*.log")}
    places["second"] = second.told()
    passwords = {password, *(file.read_text().strip() for file in users(up))}
    return [place for place, text in places.items() if any(each in text for each in passwords)]


def users(up: Up) -> Iterator[Path]:
    return (up.data / "nats" / "users").iterdir()


def test_without_tls_it_is_said_what_can_be_read_on_the_network(up: Up) -> None:
    with socket.create_server((FIRST, up.control)):  # So that nothing starts.
        up.start(*up.flags, "--listen", FIRST)
        told = up.until_told("[port_taken]")
    assert "no TLS: passwords" in told


def test_an_agent_with_a_file_that_is_none_does_not_start(tmp_path: Path) -> None:
    file = tmp_path / "node.join"
    file.write_text("nats: hello")
    agent = Program("agent", "services.agent", {"FLOTILLA_AGENT_JOIN": str(file)}, tmp_path)
    agent.start()
    blocking_until(lambda: not agent.running, "it ends")
    assert f"error: {file} is no join file" in agent.tail()
