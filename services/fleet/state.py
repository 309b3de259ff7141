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
from schemas.ids import EventId, LogId, ModelName, NodeId, ReplicaId, Token, parse_replica, token
from schemas.versions import version_of
from services.fleet.families import FAMILIES, Found, Key, family_of, read_document

D = TypeVar("D", bound=Document)

_OF_NODES = ("infos", "shards", "assignments")


class Held(Struct, Generic[D], frozen=True, gc=False):
    """The last document of one subject and where it stands in the log."""

    sequence: int
    event: EventId
    type: str
    at: str
    document: D


Table = dict[Any, Held[Any]]
"""One family's, by Key; or those that are gone, by subject."""


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
        self.shards_by_replica: dict[ReplicaId, tuple[Key, ...]] = {}
        """Where in `shards` those stand that name a replica, in the order of their subjects."""
        self._log = ""
        """What events of this log carry; empty before the genesis was seen."""

    def apply(self, sequence: int, subject: str, payload: bytes) -> None:
        """Fold one stored message in. Older than what the subject holds: no effect.

        What nearly every message needs is done here and in `_apply_event`: another call is 2 % of it,
        and so is `isinstance` of a Struct that it is not.
        """
        if sequence > self.sequence:
            self.sequence = sequence
        if sequence < self.began or not subject.startswith(subjects.STATE_ROOT):
            return  # Of an earlier log, or a happening, which changes no state.
        found = family_of(subject)
        table: Table
        key: Any
        if found is None:
            table, key = self.gone, subject
        else:
            table, key = getattr(self, found[0].table), found[1]
        old = table.get(key)
        if old is None and self.gone:
            old = self.gone.get(subject)
        if old is not None and sequence <= old.sequence:
            return
        if (self.unreadable or self.unknown) and sequence <= self._set_aside(subject):
            return
        try:
            self._apply_event(sequence, subject, payload, found, table, key, old)
        except (msgspec.DecodeError, ValueError) as error:
            self.unreadable[subject] = Unreadable(sequence, str(error))
            self._list(subject)

    def _apply_event(
        self,
        sequence: int,
        subject: str,
        payload: bytes,
        found: Found | None,
        table: Table,
        key: Any,
        old: Held[Any] | None,
    ) -> None:
        event, document = read_document(found, payload)
        if document is None:
            self.unreadable.pop(subject, None)
            self.unknown[subject] = Unknown(sequence, event.type, event.v, event.opt)
            self._list(subject)
            return
        at = event.at
        if is_newest := (
            at > self.newest_control_at and found is not None and found[0].writer == "control"
        ):
            codec.seconds(at)  # Raises for what is no time: it moves no clock, and is no document.
        if event.log != self._log or table is self.genesis:
            self._check_log(sequence, event.log, document)
        if is_newest:
            self.newest_control_at = at
        if self.unknown or self.unreadable:
            self.unknown.pop(subject, None)
            self.unreadable.pop(subject, None)
            self._list(subject)
        if old is not None:
            self.gone.pop(subject, None)
            self._remove(table, key)
        held: Held[Any] = Held(sequence, event.id, event.type, at, document)
        if type(document) is Gone:
            self.gone[subject] = held
            return
        table[key] = held
        if table is self.shards:
            self._add_shard(held.document.replica, key)

    def _check_log(self, sequence: int, log: str, document: Document) -> None:
        """One log id in one log; its genesis is what the rest is held against.

        The first genesis, or a recovery of the log at hand, begins the state. Raises ValueError for
        what is foreign.
        """
        mine = self.log_id
        if isinstance(document, Genesis):
            if mine is not None and not document.succeeds(mine):
                log_id = document.log_id
                raise ValueError(f"genesis of log {log_id}, which does not go on from {mine}")
            self._begin(sequence, document)
        elif mine is not None and log != log_prefix(mine):
            raise ValueError(f"belongs to log {log}, this is {log_prefix(mine)}")

    def _begin(self, sequence: int, genesis: Genesis) -> None:
        self.began, self._log = sequence, log_prefix(genesis.log_id)
        for family in FAMILIES:
            table: Table = getattr(self, family.table)
            for key in [key for key, held in table.items() if held.sequence < sequence]:
                self._remove(table, key)
        for rest in (self.gone, self.unknown, self.unreadable):
            for subject in [each for each, found in rest.items() if found.sequence < sequence]:
                del rest[subject]
                self._list(subject)

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

    def is_set_aside(self, subject: str) -> bool:
        """Whether the subject's newest message could not be folded."""
        return subject in self.unreadable or subject in self.unknown

    def held(self, subject: str) -> Held[Any] | None:
        """What the subject holds, a Gone document included."""
        found = family_of(subject)
        if found is not None:
            family, key = found
            table: Table = getattr(self, family.table)
            if (held := table.get(key)) is not None:
                return held
        return self.gone.get(subject)

    def _remove(self, table: Table, key: Any) -> None:
        old = table.pop(key, None)
        if old is None or table is not self.shards:
            return
        replica = old.document.replica
        rest = tuple(other for other in self.shards_by_replica[replica] if other != key)
        if rest:
            self.shards_by_replica[replica] = rest
        else:
            del self.shards_by_replica[replica]

    def _add_shard(self, replica: ReplicaId, key: Key) -> None:
        alone = (key,)
        found = self.shards_by_replica.setdefault(replica, alone)
        if found is not alone:
            self.shards_by_replica[replica] = tuple(sorted((*found, key)))

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
        return self.infos.get((token(node),))

    def replica(self, replica: ReplicaId) -> Held[ReplicaDocument] | None:
        """What control decided of it; None: its slot is another's by now, or nobody's."""
        parts = parse_replica(replica)
        held = None if parts is None else self.replicas.get((parts.model, str(parts.slot)))
        return held if held is not None and held.document.id == replica else None

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
        return tuple([self.shards[key] for key in self.shards_by_replica.get(replica, ())])

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
