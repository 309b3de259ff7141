"""The node's own document, and who may write it."""

import platform
from importlib import metadata

from msgspec import DecodeError, Struct

from schemas import codec, subjects
from schemas.documents import NodeInfo, Session, ShardStatus
from schemas.events import Event, log_prefix
from schemas.ids import LogId, NodeId
from services.agent import gpus
from services.agent.config import Config
from services.agent.environments import shown
from services.agent.shards import Stranger
from services.fleet.reading import Read, read
from services.log.connect import Connection
from services.log.snapshot import get
from services.log.stored import Stored
from services.runtime import proc


class NameTaken(Exception):
    """Another agent speaks for this node's name: this one must not."""


def describe(
    config: Config,
    incarnation: str,
    machine_id: str,
    snapshot: gpus.Snapshot,
    sessions: tuple[Session, ...],
) -> NodeInfo:
    """The node as this start of the agent found it."""
    return NodeInfo(
        node=config.node,
        machine_id=machine_id,
        boot_id=proc.boot_id(),
        incarnation=incarnation,
        agent_version=metadata.version("flotilla"),
        address=config.address,
        fabric_address=config.fabric_address,
        admin_address=config.admin_address,
        ports=config.ports,
        cards=gpus.cards(snapshot),
        cards_fault=snapshot.fault,
        fabric=config.fabric,
        labels=config.labels,
        cores=config.cores,
        memory_bytes=config.memory_bytes,
        engines=shown(config.environments),
        sessions=sessions,
        engines_survive_agent=config.engines_survive,
    )


def read_info(stored: Stored | None, log_id: LogId) -> NodeInfo | None:
    """None: there is none of this log, or none that can be read."""
    found = None if stored is None else read(stored.subject, stored.payload, NodeInfo)
    return found.document if isinstance(found, Read) and _is_of(found.event, log_id) else None


def _is_of(event: Event, log_id: LogId) -> bool:
    """What an earlier log left on a subject is void."""
    return event.log == log_prefix(log_id)


class _Written(Struct, frozen=True):
    incarnation: str = ""


def incarnation_of(stored: Stored) -> str:
    """The start of an agent that wrote the document; empty: it does not say."""
    try:
        event = codec.decode_event(stored.payload)
        return codec.decode(event.data, _Written).incarnation
    except DecodeError:
        return ""


def check_name(standing: NodeInfo | None, machine_id: str) -> None:
    """Raises NameTaken where another machine has written the node's document."""
    if standing is not None and standing.machine_id != machine_id:
        raise NameTaken(
            f"name in use: node {standing.node} is machine {standing.machine_id} "
            f"(agent at {standing.admin_address}), this is {machine_id or platform.node()}"
        )


async def read_shards(connection: Connection, node: NodeId, log_id: LogId) -> list[Stranger]:
    """Every shard document of the node that stands in this log."""
    found: list[Stranger] = []
    slot = 0
    while (stored := await get(connection, subjects.node_shard(node, slot))) is not None:
        status = read(stored.subject, stored.payload, ShardStatus)
        if isinstance(status, Read) and _is_of(status.event, log_id):
            found.append(Stranger(slot, status.document))
        slot += 1  # Another is `gone`, and so free; or it cannot be read, and is written over.
    return found
