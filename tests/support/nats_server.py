"""A real nats-server for a test: its own store, a free port, both kept over restarts."""

import signal
import socket
import subprocess
import time
from pathlib import Path

from services.log import server
from tests.support.ports import free_ports
from tests.support.waiting import blocking_until

START_CAP_SECONDS = 30.0
END_CAP_SECONDS = 60.0
LAME_DUCK = 'lame_duck_grace_period: "1s"\nlame_duck_duration: "30s"\n'
"""The shortest that the server takes: its clients are sent away one a second."""

RELOADED = "Reloaded server configuration"


class NatsServer:
    """One process. `stop` is SIGTERM, `kill` is SIGKILL; `start` brings the same store back."""

    def __init__(
        self,
        directory: Path,
        *,
        monitored: bool = False,
        sync: str = "always",
        name: str = "flotilla",
        cluster: server.Cluster | None = None,
        store: Path | None = None,
        users: str = "",
        tls: server.Tls | None = None,
    ) -> None:
        """`users`: who may connect, as `server.users` writes it. Empty: everybody."""
        self.directory = directory
        self.name = name
        self.store = store or directory / "store"
        self.port = 0
        self.monitor_port = 0
        """0: it has no monitoring."""
        self._monitored = monitored
        self._sync = sync
        self._cluster = cluster
        self._users = users
        self._tls = tls
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Returns once it answers. The first start takes another port if its own was snatched."""
        assert self._process is None
        self.directory.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + START_CAP_SECONDS
        fixed = self.port != 0
        while time.monotonic() < deadline:
            if not fixed:
                self.port, monitor_port = free_ports(2)
                self.monitor_port = monitor_port if self._monitored else 0
            if self._spawn(deadline):
                return
        raise AssertionError(self.log())

    def _spawn(self, deadline: float) -> bool:
        file = self.directory / "nats.conf"
        text = server.config(
            self.store,
            self.port,
            name=self.name,
            monitor_port=self.monitor_port,
            cluster=self._cluster,
            tls=self._tls,
            include=self._users_file.name if self._users else "",
        )
        self._users_file.write_text(self._users)
        text = text.replace("sync_interval: always", f"sync_interval: {self._sync}")
        file.write_text(text + LAME_DUCK)
        with self._log_file.open("ab") as log:
            command = [str(server.binary()), "-c", str(file)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        while time.monotonic() < deadline and self._process.poll() is None:
            if self._answers():
                return True
            time.sleep(0.01)
        self.kill()
        return False

    def _answers(self) -> bool:
        """A nats-server greets with INFO; whoever else may hold the port does not."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 0.2) as peer:
                return peer.recv(5) == b"INFO " and self._alive()
        except OSError:
            return False

    def _alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def reload(self, users: str) -> None:
        """Other users, in the server that runs. Returns once they are in force."""
        told = self.log().count(RELOADED)
        self._users = users
        self._users_file.write_text(users)
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)
        blocking_until(lambda: self.log().count(RELOADED) > told, "users are in force")

    def retire(self) -> None:
        """Lame duck: it hands over what it leads, sends its clients away, and ends."""
        self._end(signal.SIGUSR2)

    @property
    def running(self) -> bool:
        return self._alive()

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        self._process.wait(END_CAP_SECONDS)
        self._process = None

    @property
    def _users_file(self) -> Path:
        return self.directory / "users.conf"

    @property
    def _log_file(self) -> Path:
        return self.directory / "nats.log"

    def log(self) -> str:
        return self._log_file.read_text()
