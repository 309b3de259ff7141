"""FleetState and its fold: the fleet as the log tells it.

State is the last document of each subject. `apply` is the only place that changes it; everything
else reads. Applying is idempotent and needs no order between subjects: for one subject the higher
LOG sequence wins. So a state read from STATE and LOG's tail is byte-equal to one folded from the
first event (tests/unit/fleet/test_state.py).

A payload that cannot be read is set aside: its entity keeps the last good value, is listed in
`unreadable` and must not be acted on. An event that this version does not understand is listed in
`unknown`; unless it is marked optional, deciding must stop (`halted`).

A genesis that names the log at hand among its ancestors begins the state anew: whatever stands below it
is void, whenever it is read. Any other second genesis is foreign: it is set aside as unreadable.
"""

import hashlib
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from schemas import codec, subjects
from schemas.documents import (
    Assignment,
    CatalogPointer,
    CatalogRevision,
    ControlBrake,
    ControlEpoch,
    Document,
    EndpointShard,
    Genesis,
    Gone,
    NodeInfo,
    NodeVerdict,
    PlacementVerdict,
    ReplicaDocument,
    RouterReport,
    ShardStatus,
)
from schemas.events import log_prefix
from schemas.ids import EventId, LogId, ModelName, NodeId, ReplicaId, Token, token
from schemas.versions import version_of
from services.fleet.families import FAMILIES, Family, Found, Key, family_of, read_document

D = TypeVar("D", bound=Document)

_OF_NODES = ("infos", "shards", "assignments")


class Held(Struct, Generic[D], frozen=True, gc=False):
    """The last document of one subject and where it stands in the log."""

    sequence: int
    event: EventId
    type: str
    at: str
    document: D


class Unreadable(Struct, frozen=True, gc=False):
    """A subject whose last message could not be read."""

    sequence: int
    reason: str


class Unknown(Struct, frozen=True, gc=False):
    """A last message that this version does not understand."""

    sequence: int
    type: str
    version: int
    optional: bool


class FleetState:
    """The last document of every subject, in one table a family, keyed by the names in the subject.

    Keys hold tokens; `info`, `verdict` and the like take real names. Only `apply` changes it.
    """

    def __init__(self) -> None:
        self.sequence = 0
        """Highest LOG sequence applied, happenings included."""
        self.began = 0
        """LOG sequence of the genesis in force: what stands below it is void."""
        self.newest_control_at = ""
        """Newest `at` of control's documents: the fleet's clock never runs behind it. Not in `dump`."""
        self.genesis: dict[Key, Held[Genesis]] = {}
        self.catalog: dict[Key, Held[CatalogPointer]] = {}
        self.revisions: dict[Key, Held[CatalogRevision]] = {}
        self.infos: dict[Key, Held[NodeInfo]] = {}
        self.shards: dict[Key, Held[ShardStatus]] = {}
        self.verdicts: dict[Key, Held[NodeVerdict]] = {}
        self.replicas: dict[Key, Held[ReplicaDocument]] = {}
        self.assignments: dict[Key, Held[Assignment]] = {}
        self.endpoints: dict[Key, Held[EndpointShard]] = {}
        self.placements: dict[Key, Held[PlacementVerdict]] = {}
        self.epoch: dict[Key, Held[ControlEpoch]] = {}
        self.routers: dict[Key, Held[RouterReport]] = {}
        self.brake: dict[Key, Held[ControlBrake]] = {}
        self.gone: dict[str, Held[Gone]] = {}
        """By subject: retired entities, whose ids must not be used again."""
        self.unreadable: dict[str, Unreadable] = {}
        self.unknown: dict[str, Unknown] = {}
        self.unread_of_node: dict[Token, set[str]] = {}
        """Of both, what agents say of a node and what it was told, by the node's token."""
        self.infos_by_node: dict[NodeId, Held[NodeInfo]] = {}
        self.replicas_by_id: dict[ReplicaId, Held[ReplicaDocument]] = {}
        self.shards_by_replica: dict[ReplicaId, dict[Key, Held[ShardStatus]]] = {}
        self._log = ""
        """What events of this log carry; empty before the genesis was seen."""

    def apply(self, sequence: int, subject: str, payload: bytes) -> None:
        """Fold one stored message in. Older than what the subject holds: no effect."""
        if sequence > self.sequence:
            self.sequence = sequence
        if sequence < self.began or not subject.startswith(subjects.STATE_ROOT):
            return  # Of an earlier log, or a happening, which changes no state.
        found = family_of(subject)
        held = self._held(subject, found)
        if held is not None and sequence <= held.sequence:
            return
        if (self.unreadable or self.unknown) and sequence <= self._set_aside(subject):
            return
        try:
            self._apply_event(sequence, subject, payload, found, is_new=held is None)
        except (msgspec.DecodeError, ValueError) as error:
            self.unreadable[subject] = Unreadable(sequence, str(error))
            self._list(subject)

    def _apply_event(
        self, sequence: int, subject: str, payload: bytes, found: Found | None, *, is_new: bool
    ) -> None:
        event, document = read_document(found, payload)
        if document is None:
            self.unreadable.pop(subject, None)
            self.unknown[subject] = Unknown(sequence, event.type, event.v, event.opt)
            self._list(subject)
            return
        is_newest = self._is_newest(found, event.at)
        if isinstance(document, Genesis):
            self._begin(sequence, document)
        elif event.log != self._log:
            self._check_log(event.log)
        if is_newest:
            self.newest_control_at = event.at
        if self.unknown or self.unreadable:
            self.unknown.pop(subject, None)
            self.unreadable.pop(subject, None)
            self._list(subject)
        if not is_new:
            self.gone.pop(subject, None)
            if found is not None:
                self._remove(*found)
        if isinstance(document, Gone):
            self.gone[subject] = Held(sequence, event.id, event.type, event.at, document)
        elif found is not None:
            self._put(*found, Held(sequence, event.id, event.type, event.at, document))

    def _is_newest(self, found: Found | None, at: str) -> bool:
        """Whether it moves the fleet's clock, which is control's. Raises ValueError if it is no time."""
        if found is None or found[0].writer != "control" or at <= self.newest_control_at:
            return False
        codec.seconds(at)
        return True

    def _begin(self, sequence: int, genesis: Genesis) -> None:
        """The first genesis, or a recovery of the log at hand. Raises ValueError on a foreign one."""
        mine = self.log_id
        if mine is not None and not genesis.succeeds(mine):
            raise ValueError(f"genesis of log {genesis.log_id}, which does not go on from {mine}")
        self.began, self._log = sequence, log_prefix(genesis.log_id)
        for family in FAMILIES:
            table: dict[Key, Held[Any]] = getattr(self, family.table)
            for key in [key for key, held in table.items() if held.sequence < sequence]:
                self._remove(family, key)
        for rest in (self.gone, self.unknown, self.unreadable):
            for subject in [each for each, found in rest.items() if found.sequence < sequence]:
                del rest[subject]
                self._list(subject)

    def _check_log(self, log: str) -> None:
        """One log id in one log; its genesis is what the rest is held against."""
        mine = self.log_id
        if mine is not None and log != log_prefix(mine):
            raise ValueError(f"belongs to log {log}, this is {log_prefix(mine)}")

    def _list(self, subject: str) -> None:
        """By its node, as long as it cannot be read."""
        if (node := _node_in(subject)) is None:
            return
        if subject in self.unreadable or subject in self.unknown:
            self.unread_of_node.setdefault(node, set()).add(subject)
        elif (of_node := self.unread_of_node.get(node)) is not None:
            of_node.discard(subject)
            if not of_node:
                del self.unread_of_node[node]

    def _set_aside(self, subject: str) -> int:
        """LOG sequence of the subject's newest message that could not be folded; 0: there is none."""
        unreadable, unknown = self.unreadable.get(subject), self.unknown.get(subject)
        return max(
            0 if unreadable is None else unreadable.sequence,
            0 if unknown is None else unknown.sequence,
        )

    def held(self, subject: str) -> Held[Any] | None:
        """What the subject holds, a Gone document included."""
        return self._held(subject, family_of(subject))

    def _held(self, subject: str, found: Found | None) -> Held[Any] | None:
        if found is not None:
            family, key = found
            table: dict[Key, Held[Any]] = getattr(self, family.table)
            if (held := table.get(key)) is not None:
                return held
        return self.gone.get(subject)

    def _put(self, family: Family, key: Key, held: Held[Any]) -> None:
        table: dict[Key, Held[Any]] = getattr(self, family.table)
        table[key] = held
        if isinstance(held.document, ReplicaDocument):
            self.replicas_by_id[held.document.id] = held
        elif isinstance(held.document, ShardStatus):
            self.shards_by_replica.setdefault(held.document.replica, {})[key] = held
        elif isinstance(held.document, NodeInfo):
            self.infos_by_node[held.document.node] = held

    def _remove(self, family: Family, key: Key) -> None:
        table: dict[Key, Held[Any]] = getattr(self, family.table)
        old = table.pop(key, None)
        if old is None:
            return
        if isinstance(old.document, ReplicaDocument):
            self.replicas_by_id.pop(old.document.id, None)
        elif isinstance(old.document, ShardStatus):
            shards = self.shards_by_replica[old.document.replica]
            shards.pop(key, None)
            if not shards:
                del self.shards_by_replica[old.document.replica]
        elif isinstance(old.document, NodeInfo):
            self.infos_by_node.pop(old.document.node, None)

    @property
    def log_id(self) -> LogId | None:
        """None before the genesis was seen."""
        held = self.genesis.get(())
        return None if held is None else held.document.log_id

    @property
    def fence(self) -> int:
        """LOG sequence of the epoch document; 0 before the first claim."""
        held = self.epoch.get(())
        return 0 if held is None else held.sequence

    def info(self, node: NodeId) -> Held[NodeInfo] | None:
        """The node as its agent describes it."""
        return self.infos_by_node.get(node)

    def verdict(self, node: NodeId) -> Held[NodeVerdict] | None:
        """What control holds of the node's silence; None: never judged, so alive."""
        return self.verdicts.get((token(node),))

    def assignment(self, node: NodeId) -> Held[Assignment] | None:
        """What the node was last told to run."""
        return self.assignments.get((token(node),))

    def placement(self, model: ModelName) -> Held[PlacementVerdict] | None:
        """The model's last placement verdict."""
        return self.placements.get((token(model),))

    def shards_of(self, replica: ReplicaId) -> tuple[Held[ShardStatus], ...]:
        """Every shard document that names the replica, in the order of their subjects."""
        shards = self.shards_by_replica.get(replica, {})
        if len(shards) < 2:
            return tuple(shards.values())
        return tuple(held for _, held in sorted(shards.items()))

    def halted(self) -> tuple[str, ...]:
        """Why deciding must stop, if it must: events that only a newer version understands."""
        return tuple(
            f"{subject} holds {unknown.type} v{unknown.version} at sequence {unknown.sequence}; "
            f"this version knows {_known(subject)}"
            for subject, unknown in sorted(self.unknown.items())
            if not unknown.optional
        )

    def dump(self) -> bytes:
        """Every document with its place in the log, as deterministic JSON, without `control.epoch`.

        Two states that hold the same give the same bytes, however they came about.
        """
        documents = {
            ".".join([family.table, *key]): held
            for family in FAMILIES
            if family.table != "epoch"
            for key, held in getattr(self, family.table).items()
        }
        return codec.encode(
            {
                "sequence": self.sequence,
                "documents": documents,
                "gone": self.gone,
                "unreadable": self.unreadable,
                "unknown": self.unknown,
            }
        )

    def digest(self) -> str:
        """sha256 of `dump`."""
        return hashlib.sha256(self.dump()).hexdigest()


def _node_in(subject: str) -> Token | None:
    """The node whose description, shard or assignment stands there."""
    found = family_of(subject)
    return Token(found[1][0]) if found and found[0].table in _OF_NODES else None


def _known(subject: str) -> str:
    found = family_of(subject)
    return "no such subject" if found is None else f"v{version_of(found[0].struct)}"
