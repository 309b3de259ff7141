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
from services.agent.shards import Standing
from services.fleet.reading import GONE, Read, read
from services.log.connect import Connection
from services.log.snapshot import get
from services.log.stored import Stored
from services.log.streams import subjects_in
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


async def read_shards(connection: Connection, node: NodeId, log_id: LogId) -> Standing:
    """What stands in the node's slots, whichever they are; not what is gone or of an earlier log."""
    found: Standing = {}
    for subject in sorted(await subjects_in(connection, subjects.node_shards(node))):
        stored = await get(connection, subject)
        status = GONE if stored is None else read(subject, stored.payload, ShardStatus)
        slot = subject.rpartition(".")[2]
        if not isinstance(status, Read):
            found |= {} if status == GONE else {slot: None}
        elif _is_of(status.event, log_id):
            found[slot] = status.document
    return found
