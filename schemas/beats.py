"""What programs tell each other once a second over core NATS. Stored nowhere; losing one is harmless."""

from msgspec import Struct

from schemas.ids import ControlId, LogId, ModelName, NodeId, ReplicaId, RouterId


class AgentBeat(Struct, frozen=True, gc=False, kw_only=True):
    """An agent is alive."""

    node: NodeId
    incarnation: str
    log: LogId | None
    """The log it follows, None before it has seen one."""
    highest: int
    """Highest LOG sequence it has seen."""
    assignment: int
    """LOG sequence of the assignment that it has applied, 0 for none."""
    damaged: str = ""
    """Not empty: it acts on no assignment, and why."""
    held: dict[ReplicaId, ModelName] | None = None
    """What it runs, told while it has obeyed no assignment of a log: a recovery waits for its reports of
    them. None: its log has them."""


class RouterBeat(Struct, frozen=True, gc=False, kw_only=True):
    """A router is alive, and what it has applied."""

    router: RouterId
    incarnation: str
    log: LogId | None
    highest: int
    applied: int
    """Every catalog and endpoints document up to this LOG sequence is in its table."""
    damaged: str = ""
    """Not empty: it applies nothing of the log, and why."""


class ControlBeat(Struct, frozen=True, gc=False, kw_only=True):
    """A control service is alive, and how far each class of documents has come."""

    control: ControlId
    incarnation: str
    leading: bool = True
    """It holds the lead as far as it knows: nobody else claims."""
    resigned: bool = False
    """It held `epoch`, and ends: another may claim at once."""
    epoch: int
    """LOG sequence of its claim, 0 for none."""
    log: LogId
    head: int
    """LOG sequence applied."""
    routing: int
    """Newest LOG sequence of any catalog or endpoints document."""
    damaged: str = ""
    """Not empty: it decides nothing, and why."""


class EngineLoad(Struct, frozen=True, gc=False, kw_only=True):
    """Scraped figures of one engine. None = unknown, never 0."""

    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    """0..1."""
    prompt_tokens: float | None = None
    generation_tokens: float | None = None


class NodeLoad(Struct, frozen=True, gc=False, kw_only=True):
    """Figures of all engines of a node."""

    node: NodeId
    engines: dict[ReplicaId, EngineLoad]
