"""The agent's settings as one struct."""

import os
import platform
from pathlib import Path

from msgspec import Struct

from schemas.ids import NodeId
from services.agent import joining
from services.agent.engines.adapter import Environment
from services.agent.environments import configured, installed
from services.fleet.addresses import Address
from services.fleet.settings import Resolved
from services.log.door import Door, door

MEMINFO = Path("/proc/meminfo")
FROM_JOIN_FILE = ("agent.node", "nats.user", "nats.password-file", "nats.ca", "nats.cert")


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


class _Place(Struct, frozen=True):
    """Which node this is, and where it is found."""

    node: NodeId
    nats: Door
    listen: Address
    admin: Address


def configure(settings: Resolved) -> Config:
    """Asks the machine for what is not set. May run `--version` of configured engines.

    Raises ValueError where settings contradict each other.
    """
    data = Path(settings.text("data.dir")).resolve()
    place = _joined(settings, data) if settings.has("agent.join") else _placed(settings)
    listen, ports, admin = place.listen, settings.ports("agent.ports"), place.admin

    def text(name: str, otherwise: str) -> str:
        return settings.text(name) if settings.has(name) else otherwise

    return Config(
        node=place.node,
        nats=place.nats,
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


def _placed(settings: Resolved) -> _Place:
    named = settings.text("agent.node") if settings.has("agent.node") else platform.node()
    listen, admin = settings.address("agent.listen"), settings.advertised("agent.address")
    return _Place(NodeId(named), door(settings), listen, admin)


def _joined(settings: Resolved, data: Path) -> _Place:
    """By the join file; a listener that nobody named is on the machine's address towards NATS."""
    if given := [name for name in FROM_JOIN_FILE if settings.has(name)]:
        raise ValueError(f"{given[0]} is in the file of agent.join: set one of the two")
    found = joining.read(Path(settings.text("agent.join")))
    listen, admin = settings.address("agent.listen"), settings.advertised("agent.address")
    if settings.values["agent.listen"][1] == "default":
        listen = Address(joining.own_address(found.url), listen.port)
        admin = Address(admin.host, listen.port) if settings.has("agent.address") else listen
    return _Place(NodeId(found.node), joining.unpack(found, data), listen, admin)


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
