"""What a new log takes over from a lost one. Pure.

A recovery begins a log whose genesis names the lost one. Until that log has a catalog pointer it is
*recovering*: nothing is decided and no catalog applied. Agents move over and tell it what they run;
then, in this order, stand

1. what the base (the lost log, as far as it is known) says and no decision makes anew: catalog
   revisions, verdicts, intents, …; of nodes that do not beat also what their agents last said, so that
   their cards stay held;
2. the replicas of the base, unless every node of them beats and one knows nothing of them;
3. whatever `decide` makes of that, by the recovered catalog: what agents run and the base does not know,
   or knows in an older attempt, it takes over (`deciding/adopting.py`);
4. the pointer.

Each step leaves out what stands already, so a recovery that was cut off goes on where it was. An
assignment of the lost log is never taken over: it may not name what its node has been told since.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from schemas import subjects
from schemas.beats import AgentBeat
from schemas.catalog import Model
from schemas.documents import (
    Document,
    Gone,
    ReplicaDocument,
)
from schemas.ids import ModelName, NodeId, ReplicaId
from services.control.deciding.drafts import Draft, Drafts, Order
from services.control.moved import untold
from services.fleet.families import FAMILIES, family_of
from services.fleet.standing import holding
from services.fleet.state import FleetState

_OF_AGENTS = {"infos", "shards"}
_DECIDED_ANEW = {
    "genesis",
    "catalog",
    "epoch",
    "brake",
    "replicas",
    "assignments",
    "endpoints",
    "routers",
}
"""Tables that are not taken over as they stand. All others are, also those of a later version."""


class Carried(Struct, frozen=True):
    """One document of the lost log."""

    subject: str
    type: str
    document: Document


class Base(Struct, frozen=True):
    """What is known of the lost log."""

    carried: tuple[Carried, ...]
    """Taken over as it stands."""
    of_agents: tuple[Carried, ...]
    """For nodes that do not beat."""
    replicas: tuple[Carried, ...]
    """ReplicaDocument, or Gone for a slot that was used before."""


def is_recovering(state: FleetState) -> bool:
    """A log that goes on from another one and has no catalog yet."""
    held = state.genesis.get(())
    if held is None or held.document.parent is None:
        return False
    return not state.catalog and subjects.CATALOG not in {**state.unreadable, **state.unknown}


def base_of(state: FleetState) -> Base:
    """What a state of the lost log says; of what cannot be read, the last good value."""
    found: dict[str, list[Carried]] = {"carried": [], "of_agents": [], "replicas": []}
    for family in FAMILIES:
        kind = _kind(family.table)
        if kind is None:
            continue
        for key, held in sorted(getattr(state, family.table).items()):
            names = iter(key)
            tokens = [next(names) if part == "*" else part for part in family.pattern]
            subject = subjects.STATE_ROOT + ".".join(tokens)
            found[kind].append(Carried(subject, held.type, held.document))
    root = subjects.ALL_REPLICAS.removesuffix(">")
    found["replicas"] += [
        Carried(subject, held.type, held.document)
        for subject, held in sorted(state.gone.items())
        if subject.startswith(root)
    ]
    return Base(*(tuple(found[kind]) for kind in ("carried", "of_agents", "replicas")))


def _kind(table: str) -> str | None:
    if table in _OF_AGENTS:
        return "of_agents"
    if table == "replicas":
        return "replicas"
    return None if table in _DECIDED_ANEW else "carried"


def running(state: FleetState, beats: Iterable[AgentBeat]) -> dict[ReplicaId, ModelName]:
    """What runs: as agents that obey no log say now, else as their last documents do."""
    found: dict[ReplicaId, ModelName] = {}
    told: set[NodeId] = set()
    for beat in beats:
        if beat.held is not None:
            told.add(beat.node)
            found |= beat.held
    for held in holding(state):
        if held.document.node not in told:
            found[held.document.replica] = held.document.model
    ending = {held.document.id for held in state.replicas.values() if held.document.goal != "run"}
    return {replica: model for replica, model in sorted(found.items()) if replica not in ending}


def would_end(
    run: Mapping[ReplicaId, ModelName],
    models: Mapping[ModelName, Model],
    prune: Collection[ModelName],
) -> dict[ModelName, str]:
    """Models of which this catalog would end engines that run, and why."""
    found: dict[ModelName, str] = {}
    for name, count in sorted(Counter(run.values()).items()):
        if name in prune:
            continue
        model = models.get(name)
        replicas = f"{count} replica{'s' * (count != 1)} of {name} run"
        if model is None:
            found[name] = f"{replicas}, the catalog has no such model"
        elif model.replicas < count:
            found[name] = f"{replicas}, the catalog wants {model.replicas}"
    return found


def waits_for(state: FleetState, beats: Iterable[AgentBeat]) -> dict[NodeId, str]:
    """Nodes that beat and have not told this log yet all that they run."""
    found: dict[NodeId, str] = {}
    for beat in sorted(beats, key=lambda beat: beat.node):
        if reason := untold(state, beat):
            found[beat.node] = beat.damaged or reason
    return found


def carry(state: FleetState, base: Base, beating: Collection[NodeId]) -> tuple[Draft, ...]:
    """Step 1."""
    drafts = Drafts(state)
    silent = [each for each in base.of_agents if _node_of(each.document) not in beating]
    for each in (*base.carried, *silent):
        if state.held(each.subject) is None:
            drafts.put(Order.VERDICT, each.subject, each.type, each.document)
    return drafts.ordered()


def _node_of(document: Document) -> NodeId | None:
    node: NodeId | None = getattr(document, "node", None)
    return node


def take_over(
    state: FleetState, base: Base, models: Mapping[ModelName, Model], beating: Collection[NodeId]
) -> tuple[Draft, ...]:
    """Step 2, once step 1 stands in the state."""
    drafts = Drafts(state)
    for each in base.replicas:
        if state.held(each.subject) is not None:
            continue
        type_, document = each.type, each.document
        if isinstance(document, ReplicaDocument):
            if _is_known(state, document, beating):
                document = _startable(state, document, models)
            else:
                type_, document = "replica.gone", Gone(id=document.id)
        drafts.put(Order.TAKE, each.subject, type_, document)
    return drafts.ordered()


def _is_known(state: FleetState, replica: ReplicaDocument, beating: Collection[NodeId]) -> bool:
    """No node that beats knows nothing of its part."""
    told = {held.document.node for held in state.shards_of(replica.id)}
    return all(plan.node in told or plan.node not in beating for plan in replica.shards)


def _startable(
    state: FleetState, replica: ReplicaDocument, models: Mapping[ModelName, Model]
) -> ReplicaDocument:
    """Without the revision that it was placed for, nobody could tell its node how to go on."""
    model = models.get(replica.model)
    kept = any(held.document.revision == replica.revision for held in state.revisions.values())
    if kept or model is None:
        return replica
    return replace(replica, profile_hash=model.profile_hash)


def struct_of(subject: str) -> type[Document]:
    """What a document that stands there is made as. Raises ValueError."""
    found = family_of(subject)
    if found is None:
        raise ValueError(f"{subject} is no subject of a document")
    return found[0].struct
