"""Which ways there are out of a lost log, and whether the one chosen may be taken. Pure."""

import shlex
from collections.abc import Iterable, Mapping

from msgspec import Struct

from schemas.beats import AgentBeat
from schemas.documents import CatalogRevision
from schemas.ids import ModelName, NodeId, ReplicaId
from schemas.recovery import Recover, Way, WayOut
from services.control.commanding.commands import No, typed_file, with_reason
from services.control.deciding.current import CurrentCatalog, find_revision, next_revision
from services.control.recovery.handover import would_end
from services.fleet.catalog import EMPTY, Catalog, CatalogFaults, from_yaml
from services.fleet.state import FleetState

VERB = "flotilla journal recover"


class Known(Struct, frozen=True):
    """What a recovery may be made from."""

    memory: FleetState | None
    """What this control held of the lost log; None: it was started since."""
    left: FleetState | None
    """What stands in NATS; None: that could not be read."""
    beats: tuple[AgentBeat, ...]
    nodes: frozenset[NodeId] = frozenset()
    """Names that this control's disk has of the lost log's nodes."""

    def away(self, base: FleetState) -> tuple[NodeId, ...]:
        """Nodes of the lost log that do not beat, and of which this base says nothing."""
        return tuple(sorted(self._nodes() - {beat.node for beat in self.beats} - _nodes(base)))

    def unsure(self, base: FleetState) -> str:
        """Why there may be others; empty: the base names all that the log had."""
        known = self._nodes() or base.log_id
        return "" if known else "no node is known but those that beat: others may be away"

    def _nodes(self) -> frozenset[NodeId]:
        states = [state for state in (self.memory, self.left) if state is not None]
        return self.nodes.union(*map(_nodes, states))

    def base(self, way: Way) -> FleetState | None:
        """None: this way has none."""
        return {"memory": self.memory, "log": self.left, "agents": FleetState()}[way]


def _nodes(state: FleetState) -> set[NodeId]:
    return {held.document.node for held in state.infos.values()}


class Chosen(Struct, frozen=True):
    """A way that may be taken."""

    base: FleetState
    catalog: Catalog
    revision: CatalogRevision
    told: str
    """`memory: log 0123… to 120`."""


def ways(known: Known) -> tuple[WayOut, ...]:
    """All of them, the impossible ones with the reason."""
    return tuple(_way(known, way) for way in ("memory", "log", "agents"))


def _way(known: Known, way: Way) -> WayOut:
    base = known.base(way)
    reason = _reason(way, base)
    if base is None or reason:
        return WayOut(way=way, impossible=reason)
    current = CurrentCatalog().read(base)
    needs_catalog = way == "agents" or bool(current.refused)
    return WayOut(
        way=way,
        log=base.log_id or "",
        sequence=base.sequence,
        revision=current.revision,
        models=len(current.catalog.models),
        replicas=len(base.replicas),
        nodes=len(base.infos) if base.log_id else len(known.beats),
        away=known.away(base),
        unsure=known.unsure(base),
        command=f"{VERB} --from {way}" + (" --catalog FILE" if needs_catalog else ""),
    )


def _reason(way: Way, base: FleetState | None) -> str:
    """Why there is no way out from there; empty: there is."""
    if base is None and way == "memory":
        return "this control was started after the log was lost: it holds nothing of it"
    if base is None:
        return "what stands in NATS cannot be read now"
    if way == "log" and base.log_id is None:
        return "nothing of a log stands in NATS"
    return ""


def choose(known: Known, request: Recover, run: Mapping[ReplicaId, ModelName]) -> Chosen | No:
    """`run`: what agents run now. Nothing is ended that is not named by `prune`."""
    base = known.base(request.way)
    reason = _reason(request.way, base)
    if base is None or reason:
        return No("impossible", f"there is no way out from {request.way}", why=reason, next=VERB)
    found = _catalog(base, request)
    if isinstance(found, No):
        return found
    catalog, revision = found
    ending = would_end(run, catalog.models, request.prune)
    if ending:
        return No(
            "would_stop",
            f"engines would be stopped: {', '.join(ending.values())}",
            why="nothing was written",
            next=_again(request, ending, ()),
        )
    away = sorted(set(known.away(base)) - set(request.without))
    if away:
        return No(
            "nodes_away",
            f"nodes are away of which nothing is known from {request.way}: {', '.join(away)}",
            why="nothing was written; what they run is taken over once they are back",
            next=_again(request, (), away),
        )
    log = "agents" if base.log_id is None else f"log {base.log_id} to {base.sequence}"
    return Chosen(base, catalog, revision, f"{request.way}: {log}")


def _again(request: Recover, ending: Iterable[ModelName], away: Iterable[NodeId]) -> str:
    """The same command, with the models that may end named, and the nodes that may be missing."""
    file = "" if request.catalog is None else f" --catalog {typed_file(request.file)}"
    models, nodes = sorted({*request.prune, *ending}), sorted({*request.without, *away})
    prune = "".join(f" --prune {shlex.quote(name)}" for name in models)
    without = "".join(f" --without {shlex.quote(name)}" for name in nodes)
    return f"{VERB} --from {request.way}{file}{prune}{without}{with_reason(request.reason)}"


def _catalog(base: FleetState, request: Recover) -> tuple[Catalog, CatalogRevision] | No:
    """The one given, else the one known."""
    if request.catalog is not None:
        made = from_yaml(request.catalog, request.file)
        if isinstance(made, CatalogFaults):
            return No(
                "bad_catalog", "the catalog has faults", "nothing was written", "", made.faults
            )
        return made, _revision(next_revision(base), made)
    if request.way == "agents":
        return No(
            "no_catalog",
            "agents know no catalog: one must be given",
            next=f"{VERB} --from agents --catalog FILE{with_reason(request.reason)}",
        )
    current = CurrentCatalog().read(base)
    if current.refused:
        return No(
            "no_catalog",
            "the catalog that was in force cannot be used",
            why=current.refused,
            next=f"{VERB} --from {request.way} --catalog FILE{with_reason(request.reason)}",
        )
    held = find_revision(base, current.revision) if current.revision else None
    if held is None:
        return EMPTY, _revision(next_revision(base), EMPTY)
    return current.catalog, held.document


def _revision(number: int, catalog: Catalog) -> CatalogRevision:
    return CatalogRevision(revision=number, hash=catalog.hash, source=catalog.source())
