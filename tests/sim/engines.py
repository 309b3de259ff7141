"""Engines of a machine: processes that load, serve and end, whatever becomes of the agent."""

from collections.abc import Callable
from dataclasses import dataclass

from schemas.documents import AssignedShard, LastError, ProcessIdentity
from schemas.ids import ReplicaId
from services.agent.shard import Process

DEADLY = LastError(failure="crash", message="engine core died", exit_code=1)
BAD_FLAG = LastError(failure="bad_argument", message="unknown flag", exit_code=2, permanent=True)
NEVER = "never-ready"
"""A model whose source holds this word never becomes ready."""


@dataclass
class Engine:
    """One process."""

    order: AssignedShard
    run: int
    process: Process
    ready_at: float
    ended: Callable[["Engine"], None]
    alive: bool = True
    streams: int = 0
    terminated: bool = False
    readied: bool = False

    @property
    def replica(self) -> ReplicaId:
        return self.order.replica


def identity(boot: str, pid: int) -> Process:
    """The shim, and the engine below it."""
    return Process(
        leader=ProcessIdentity(boot_id=boot, pid=pid, start_ticks=pid),
        engine=ProcessIdentity(boot_id=boot, pid=pid + 1, start_ticks=pid + 1),
    )
