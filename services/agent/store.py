"""State files of the shards: what a new agent needs to go on. One file a replica, never torn."""

import secrets
from pathlib import Path

import msgspec
import structlog

from schemas import codec
from schemas.ids import ReplicaId, Token, token
from services.agent.shard import Life
from services.runtime.files import read_if_there, write_atomically

log = structlog.get_logger()


class Store:
    """Everything the agent keeps under its folder."""

    def __init__(self, data: Path) -> None:
        self.data = data.resolve()
        self.unread: set[Token] = set()
        """Replicas whose state file cannot be read."""
        self._shards = self.data / "agent" / "shards"
        self._logs = self.data / "agent" / "logs"
        self._shards.mkdir(parents=True, exist_ok=True, mode=0o700)

    def load(self) -> list[Life]:
        """Every shard, in the order of their names. A file that cannot be read is left alone."""
        lives: list[Life] = []
        for path in sorted(self._shards.glob("*.json")):
            if path.name.endswith(".exit.json"):
                continue
            try:
                lives.append(codec.decode(path.read_bytes(), Life))
            except msgspec.DecodeError as error:
                log.warning("agent.state_unreadable", path=str(path), reason=str(error))
                self.unread.add(Token(path.stem))
        return lives

    def save(self, life: Life) -> None:
        """Durable when it returns."""
        write_atomically(self._state(life.replica), codec.encode(life), 0o600)

    def forget(self, replica: ReplicaId) -> None:
        """Its state, exit code and logs."""
        log_file = self.log(replica)
        for path in (self._state(replica), self.exit_file(replica), log_file):
            path.unlink(missing_ok=True)
        log_file.with_suffix(".log.1").unlink(missing_ok=True)

    def log(self, replica: ReplicaId) -> Path:
        """Output of its engines, run after run."""
        return self._logs / f"{token(replica)}.log"

    def exit_file(self, replica: ReplicaId) -> Path:
        """Written by the shim."""
        return self._shards / f"{token(replica)}.exit.json"

    def _state(self, replica: ReplicaId) -> Path:
        return self._shards / f"{token(replica)}.json"

    @property
    def seen(self) -> Path:
        """The log followed, and how far."""
        return self.data / "agent" / "seen.json"

    @property
    def lock(self) -> Path:
        """Held by the agent of this folder."""
        return self.data / "agent" / "lock"

    def machine_id(self) -> str:
        """Of this machine; where it has none, one made here once."""
        own = self.data / "agent" / "machine-id"
        for path in (Path("/etc/machine-id"), own):
            if text := (read_if_there(path) or b"").decode(errors="replace").strip():
                return text
        made = secrets.token_hex(16)
        write_atomically(own, made.encode())
        return made
