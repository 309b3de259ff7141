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
from services.fleet.families import check_place, family_of
from services.fleet.reading import Read, Unreadable, read
from services.log.connect import Connection
from services.log.own import own_documents
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


class Described(Struct, frozen=True):
    """Whose a description of the node is."""

    machine_id: str | None = None
    admin_address: str = ""


def described(stored: Stored | None, log_id: LogId) -> Described | None:
    """None: there is none of this log, or it cannot be read.

    Of one that a newer version wrote so much is read: another machine's agent may live by it.
    """
    found = None if stored is None else read(stored.subject, stored.payload, NodeInfo)
    if stored is None or found is None or isinstance(found, Unreadable):
        return None
    try:
        event = codec.decode_event(stored.payload)
        return codec.decode(event.data, Described) if _is_of(event, log_id) else None
    except DecodeError:
        return None


class _Written(Struct, frozen=True):
    incarnation: str = ""


def incarnation_of(stored: Stored) -> str:
    """The start of an agent that wrote the document; empty: it does not say, or is nobody's."""
    found = family_of(stored.subject)
    try:
        event = codec.decode_event(stored.payload)
        if found is not None:
            check_place(found, event.src, None)
        return codec.decode(event.data, _Written).incarnation
    except DecodeError:
        return ""


def check_name(node: NodeId, standing: Described | None, machine_id: str) -> None:
    """Raises NameTaken where another machine has written the node's document."""
    if standing is not None and standing.machine_id not in (None, machine_id):
        raise NameTaken(
            f"name in use: node {node} is machine {standing.machine_id} "
            f"(agent at {standing.admin_address}), this is {machine_id or platform.node()}"
        )


async def read_shards(connection: Connection, node: NodeId, log_id: LogId) -> Standing:
    """What stands in the node's slots, whichever they are; not what is gone or of an earlier log."""
    found = await own_documents(connection, subjects.node_shards(node), ShardStatus, log_id)
    return {subject.rpartition(".")[2]: status for subject, status in found.items()}
