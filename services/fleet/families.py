"""The families of state documents: where each stands, what it looks like, how a message of it is read. Pure.

The subject's family picks the document's type; the event's own type is a label for people. Families
are told apart by the subject alone, so a subject of none of them is one that only a newer version
knows.
"""

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
from schemas.events import Event
from schemas.ids import EventId
from schemas.versions import FIRST, from_older, version_of

D = TypeVar("D", bound=Document)


class Family(Struct, frozen=True, gc=False):
    """Where documents of one kind live: `pattern` in subject tokens after `flotilla.log.s.`, `*` a name."""

    pattern: tuple[str, ...]
    struct: type[Document]
    table: str
    """The attribute of FleetState that holds them."""


FAMILIES = (
    Family(("genesis",), Genesis, "genesis"),
    Family(("catalog",), CatalogPointer, "catalog"),
    Family(("catalog", "rev", "*"), CatalogRevision, "revisions"),
    Family(("node", "*", "info"), NodeInfo, "infos"),
    Family(("node", "*", "shard", "*"), ShardStatus, "shards"),
    Family(("node", "*", "verdict"), NodeVerdict, "verdicts"),
    Family(("replica", "*", "*"), ReplicaDocument, "replicas"),
    Family(("assignment", "*"), Assignment, "assignments"),
    Family(("endpoints", "*", "*"), EndpointShard, "endpoints"),
    Family(("placement", "*"), PlacementVerdict, "placements"),
    Family(("control", "epoch"), ControlEpoch, "epoch"),
    Family(("router", "*", "*"), RouterReport, "routers"),
    Family(("control", "brake"), ControlBrake, "brake"),
)


class _Whole(Struct, Generic[D], frozen=True, gc=False, kw_only=True):
    """An event with its document, decoded in one go. Its other fields are those of Event."""

    id: EventId
    log: str
    type: str
    v: int = FIRST
    at: str
    src: str
    corr: EventId | None = None
    cause: EventId | None = None
    seen: int = 0
    epoch: int = 0
    opt: bool = False
    data: D


def _whole(struct: type[Document]) -> "msgspec.json.Decoder[_Whole[Any]]":
    whole: Any = _Whole
    return msgspec.json.Decoder(whole[struct])


_WHOLE: dict[type[Document], msgspec.json.Decoder[_Whole[Any]]] = {
    family.struct: _whole(family.struct) for family in FAMILIES
}
_DECODERS: dict[type[Document], msgspec.json.Decoder[Any]] = {
    family.struct: msgspec.json.Decoder(family.struct) for family in FAMILIES
}
_GONE = msgspec.json.Decoder(Gone)
_GONE_MARK = b'{"gone":true'

Key = tuple[str, ...]
"""The names in a subject, in order: (node token, slot) for a shard, () for the catalog pointer."""


class _Route(Struct, frozen=True, gc=False):
    """How subjects of one family are told from others of as many words with the same first one."""

    family: Family
    words: tuple[tuple[int, str], ...]
    """What else stands where."""
    names: slice
    """Where the names stand: every pattern has them side by side, or at every other place."""


def _route(family: Family) -> _Route:
    pattern = family.pattern
    words = tuple((at, word) for at, word in enumerate(pattern) if at and word != "*")
    names = [at for at, word in enumerate(pattern) if word == "*"] or [len(pattern)]
    step = names[1] - names[0] if len(names) > 1 else 1
    return _Route(family, words, slice(names[0], names[-1] + 1, step))


def _by_shape() -> dict[tuple[int, str], tuple[_Route, ...]]:
    shapes: dict[tuple[int, str], tuple[_Route, ...]] = {}
    for family in FAMILIES:
        shape = (len(family.pattern), family.pattern[0])
        shapes[shape] = (*shapes.get(shape, ()), _route(family))
    return shapes


_SHAPES = _by_shape()


def family_of(subject: str) -> tuple[Family, Key] | None:
    """The family of a state subject and the names in it; None for a subject of no known family."""
    tokens = subject[len(subjects.STATE_ROOT) :].split(".")
    for route in _SHAPES.get((len(tokens), tokens[0]), ()):
        for at, word in route.words:
            if tokens[at] != word:
                break
        else:
            return route.family, tuple(tokens[route.names])
    return None


def read_document(
    family: Family | None, payload: bytes
) -> tuple[_Whole[Any] | Event, Document | None]:
    """The envelope, and the document unless only a newer version than this one understands it.

    Nearly every message is a document of today's version, and read in one go. Whatever does not fit
    is looked at with care. Raises msgspec.DecodeError.
    """
    newest = FIRST if family is None else version_of(family.struct)
    if family is not None:
        try:
            whole = _WHOLE[family.struct].decode(payload)
            if whole.v == newest:
                return whole, whole.data
        except msgspec.ValidationError:
            pass
    event = codec.decode_event(payload)
    if family is None or event.v > newest:
        return event, None
    return event, _decode(family, event, newest)


def _decode(family: Family, event: Event, newest: int) -> Document:
    if event.v < newest:
        return from_older(event.data, family.struct, event.v)
    payload = bytes(event.data)
    if payload.startswith(_GONE_MARK):
        gone: Gone = _GONE.decode(payload)
        return gone
    document: Document = _DECODERS[family.struct].decode(payload)
    return document
