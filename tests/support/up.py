"""`flotilla up`, whole: real nats-server, control, router, agent, and the real llama.cpp engine."""

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.ports import free_ports, free_range
from tests.support.waiting import blocking_until

BIN = Path(sys.executable).parent
CAP_SECONDS = 120.0
PORTS = ("--port", "--control-port", "--router-admin-port", "--agent-port", "--nats-port")


class Up:
    """One data folder, its ports, and the `up` that holds it now."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.data = folder / "data"
        self.router, self.control, self.router_admin, self.agent, self.nats = free_ports(len(PORTS))
        ports = (self.router, self.control, self.router_admin, self.agent, self.nats)
        first, last = free_range(10)
        self.flags = [word for pair in zip(PORTS, map(str, ports), strict=True) for word in pair]
        self.flags += ["--engine-ports", f"{first}-{last}", "--model", str(model)]
        self._output = folder / "output"
        self._process: subprocess.Popen[bytes] | None = None
        self._told = b""

    def start(self, *flags: str, terminal: int | None = None) -> None:
        """Without flags: those of the first time. Prints into a file, or to a terminal."""
        with self._output.open("wb") as file:
            output = file if terminal is None else terminal
            self._process = subprocess.Popen(
                [BIN / "flotilla", "up", "--data", self.data, *(flags or self.flags)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.data.parent,
                env={k: v for k, v in os.environ.items() if not k.startswith("FLOTILLA_")},
            )

    def until_told(self, text: str) -> str:
        """All that it has printed, once `text` is in there."""

        def told() -> str | None:
            printed = self._output.read_text()
            assert text in printed or self.running, printed
            return printed if text in printed else None

        return blocking_until(told, text)

    def read_terminal(self, terminal: int) -> bytes:
        """All that it has printed there so far, once there is more."""
        self._told += os.read(terminal, 65536)
        return self._told

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def end(self, number: signal.Signals) -> int:
        """Its exit code."""
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(CAP_SECONDS)

    def flotilla(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Any verb, looking at the same data folder."""
        return subprocess.run(
            [BIN / "flotilla", *words, "--data", self.data],
            capture_output=True,
            text=True,
            check=False,
            timeout=CAP_SECONDS,
        )

    def ask(self, *words: str) -> dict[str, Any]:
        done = self.flotilla(*words, "-o", "json")
        assert done.returncode == 0, done
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def processes(self) -> dict[int, str]:
        """Every live process that names this data folder: programs, shims, engines."""
        found: dict[int, str] = {}
        for entry in Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if str(self.data).encode() in words and state not in "ZX":
                found[int(entry.name)] = words.replace(b"\0", b" ").decode(errors="replace")
        return found

    def engines(self) -> dict[int, str]:
        """Of `processes`, those that serve a model."""
        return {pid: words for pid, words in self.processes().items() if "llamacpp_server" in words}


def answered(port: int) -> bool:
    """One real completion through the router."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        body = {"model": "tiny", "prompt": "a", "max_tokens": 2}
        connection.request(
            "POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"}
        )
        return connection.getresponse().status == 200
    finally:
        connection.close()


@pytest.fixture
def up(tmp_path: Path, tiny_gguf: Path) -> Iterator[Up]:
    model = tmp_path / "tiny.gguf"
    model.symlink_to(tiny_gguf)
    made = Up(tmp_path, model)
    try:
        yield made
    finally:
        if made.running:
            made.end(signal.SIGKILL)
        for pid in made.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        print((tmp_path / "output").read_text())  # noqa: T201
        for log in (made.data / "logs").glob("*.log"):
            print(f"--- {log.name}\n{log.read_text()[-4000:]}")  # noqa: T201
