"""The agent's settings as one struct."""

import os
import platform
from pathlib import Path

from msgspec import Struct

from schemas.ids import NodeId
from services.agent.engines.adapter import Environment
from services.agent.environments import configured, installed
from services.fleet.settings import Resolved
from services.log.door import Door, door

MEMINFO = Path("/proc/meminfo")


class Config(Struct, frozen=True, kw_only=True):
    """What an agent is told before it starts."""

    node: NodeId
    nats: Door
    data: Path
    listen: str
    """host:port of the admin listener."""
    admin_address: str
    """host:port that control probes it by."""
    address: str
    """Host of this node's engines."""
    fabric_address: str
    ports: tuple[int, int]
    environments: tuple[Environment, ...]
    fabric: str
    labels: dict[str, str]
    cores: float
    memory_bytes: int
    secrets_folder: Path
    engines_survive: bool


def configure(settings: Resolved) -> Config:
    """Asks the machine for what is not set. May run `--version` of configured engines."""
    data = Path(settings.text("data.dir")).resolve()
    listen, ports = settings.address("agent.listen"), settings.ports("agent.ports")
    admin = settings.advertised("agent.address")

    def text(name: str, otherwise: str) -> str:
        return settings.text(name) if settings.has(name) else otherwise

    return Config(
        node=NodeId(text("agent.node", platform.node())),
        nats=door(settings),
        data=data,
        listen=listen.text,
        admin_address=admin.text,
        address=admin.host,
        fabric_address=text("agent.fabric-address", admin.host),
        ports=(ports.first, ports.last),
        environments=_environments(settings),
        fabric=text("agent.fabric", ""),
        labels=settings.mapping("agent.labels") if settings.has("agent.labels") else {},
        cores=_cores(settings),
        memory_bytes=_memory_bytes(settings),
        secrets_folder=Path(text("agent.secrets-dir", str(data / "secrets"))),
        engines_survive=settings.flag("agent.survive"),
    )


def _environments(settings: Resolved) -> tuple[Environment, ...]:
    if settings.has("agent.engines"):
        return configured(settings.engines("agent.engines"))
    return installed()


def _cores(settings: Resolved) -> float:
    if settings.has("agent.cores"):
        return float(settings.count("agent.cores"))
    return float(len(os.sched_getaffinity(0)))


def _memory_bytes(settings: Resolved) -> int:
    if settings.has("agent.memory"):
        return settings.size("agent.memory")
    total = next(line for line in MEMINFO.read_text().splitlines() if line.startswith("MemTotal:"))
    return int(total.split()[1]) * 1024
