"""Names of streams and subjects: the only place where they are spelt.

`flotilla.log.s.…` holds state documents (the last one of a subject wins), `flotilla.log.e.…` holds
happenings (history only). The server republishes what it stored from `flotilla.log.…` to
`flotilla.live.…`. Beats, load figures and request/reply are core NATS and stored nowhere.
"""

from schemas.ids import ControlId, ModelName, NodeId, ReplicaId, ReplicaParts, RouterId, token

LOG = "FLOTILLA_LOG"
STATE = "FLOTILLA_STATE"
TAILS = "FLOTILLA_TAILS"
CHECKPOINT = "FLOTILLA_CHECKPOINT"

LOG_ROOT = "flotilla.log."
IMPORT_ROOT = "flotilla.import."
"""In place of `LOG_ROOT`, while an import makes LOG anew: the server stores it under `LOG_ROOT`."""
LIVE_ROOT = "flotilla.live."
STATE_ROOT = "flotilla.log.s."
TAIL_ROOT = "flotilla.tail."
CHECKPOINT_ROOT = "flotilla.checkpoint."

GENESIS = "flotilla.log.s.genesis"
CATALOG = "flotilla.log.s.catalog"
CHECKPOINT_COMPLETE = "flotilla.checkpoint.complete"
CONTROL_EPOCH = "flotilla.log.s.control.epoch"
CONTROL_BRAKE = "flotilla.log.s.control.brake"

ALL_REVISIONS = "flotilla.log.s.catalog.rev.*"
ALL_REPLICAS = "flotilla.log.s.replica.>"
ALL_ENDPOINTS = "flotilla.log.s.endpoints.>"
ALL_CONTROL_BEATS = "flotilla.beat.control.*"
ALL_AGENT_BEATS = "flotilla.beat.agent.*"
ALL_ROUTER_BEATS = "flotilla.beat.router.*"
ALL_LOADS = "flotilla.load.*"

ECHO_ROOT = "flotilla.echo."
"""Core NATS: who listens for others' beats hears by a word of its own whether NATS lets any through."""

RPC_ROOT = "flotilla.rpc."
"""Core NATS: requests to `agent.<node>.…` and `control.…`, and their answers."""

REVISION_SLOTS = 200
ENDPOINTS_PER_SHARD = 500


def catalog_revision(revision: int) -> str:
    """One of 200 slots, so that the number of subjects stays bounded."""
    return f"flotilla.log.s.catalog.rev.{revision % REVISION_SLOTS}"


def node_info(node: NodeId) -> str:
    """Written by the node's agent."""
    return f"flotilla.log.s.node.{token(node)}.info"


def node_shards(node: NodeId) -> str:
    """Filter: every shard document of one node, whatever its slot."""
    return node_slot(node, "*")


def node_shard(node: NodeId, slot: int) -> str:
    """Written by the node's agent; slots are used again."""
    return node_slot(node, str(slot))


def node_slot(node: NodeId, slot: str) -> str:
    """`slot` as a subject spells it: a number, unless a stranger made it."""
    return f"flotilla.log.s.node.{token(node)}.shard.{slot}"


def node_verdict(node: NodeId) -> str:
    """Written by control: alive, unreachable or lost."""
    return f"flotilla.log.s.node.{token(node)}.verdict"


def replica(model: ModelName, slot: int) -> str:
    """Written by control; slots are used again under a new generation."""
    return f"flotilla.log.s.replica.{token(model)}.{slot}"


def replica_slot(parts: ReplicaParts) -> str:
    """Where a replica's document stands, by its id alone."""
    return f"flotilla.log.s.replica.{parts.model}.{parts.slot}"


def assignment(node: NodeId) -> str:
    """Written by control: the full set of shards that the node should run."""
    return f"flotilla.log.s.assignment.{token(node)}"


def endpoints(model: ModelName, shard: int) -> str:
    """Written by control: ready replicas of a model, at most 500 a shard."""
    return f"flotilla.log.s.endpoints.{token(model)}.{shard:02d}"


def placement(model: ModelName) -> str:
    """Written by control: the model's last placement verdict."""
    return f"flotilla.log.s.placement.{token(model)}"


def router_reports(router: RouterId) -> str:
    """Filter: everything that one router reports."""
    return f"flotilla.log.s.router.{token(router)}.*"


def router_report(router: RouterId, chunk: int) -> str:
    """Written by the router: idle map and counters, at most 256 KiB a chunk."""
    return f"flotilla.log.s.router.{token(router)}.{chunk:02d}"


def command(verb: str) -> str:
    """Written by control: an operator's command and its outcome."""
    return f"flotilla.log.e.command.{verb}"


def tail(node: NodeId, replica: ReplicaId) -> str:
    """Written by the node's agent: the engine's last output, outside the log."""
    return f"flotilla.tail.{token(node)}.{token(replica)}"


def checkpoint_chunk(dump: str, number: int | str) -> str:
    """One part of a dump; `*` stands for all of them."""
    return f"flotilla.checkpoint.chunk.{dump}.{number}"


def live(subject: str) -> str:
    """Where the server republishes what it stored under a log subject."""
    return LIVE_ROOT + subject.removeprefix(LOG_ROOT)


def logged(live_subject: str) -> str:
    """The log subject of a republished message."""
    return LOG_ROOT + live_subject.removeprefix(LIVE_ROOT)


def agent_beat(node: NodeId) -> str:
    """Core NATS, once a second."""
    return f"flotilla.beat.agent.{token(node)}"


def router_beat(router: RouterId) -> str:
    """Core NATS, once a second."""
    return f"flotilla.beat.router.{token(router)}"


def control_beat(control: ControlId) -> str:
    """Core NATS, once a second."""
    return f"flotilla.beat.control.{token(control)}"


def control_rpc(command: str) -> str:
    """Request/reply with the leader: the body of the management API's route, its frame back."""
    return f"{RPC_ROOT}control.{command}"


def load(node: NodeId) -> str:
    """Core NATS, once a second: scraped figures of the node's engines."""
    return f"flotilla.load.{token(node)}"
