"""The families of state documents: where each stands, what it looks like, how a message of it is read. Pure.

The subject's family picks the document's type; the event's own type is a label for people. Families
are told apart by the subject alone, so a subject of none of them is one that only a newer version
knows, until control retires what stands there.

A document stands where its own names put it, and an agent or a router writes of itself alone: what does
not is no document, whoever reads it.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Generic, Literal, TypeVar

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
from schemas.ids import EventId, parse_replica, token
from schemas.versions import FIRST, from_older, version_of

D = TypeVar("D", bound=Document)

Key = tuple[str, ...]
"""The names in a subject, in order: (node token, slot) for a shard, () for the catalog pointer."""
Writer = Literal["control", "agent", "router"]


def _nameless(_document: Any, _key: Key) -> Key:
    return ()


def _of_node(document: NodeInfo | NodeVerdict | Assignment, _key: Key) -> Key:
    return (token(document.node),)


def _of_shard(document: ShardStatus, key: Key) -> Key:
    """It does not say its slot, which is a number."""
    return token(document.node), key[1] if _is_number(key[1]) else "SLOT"


def _of_replica(document: ReplicaDocument, _key: Key) -> Key:
    model, slot = token(document.model), str(document.slot)
    if document.id != f"{model}-{slot}-{document.generation}":
        return (document.id,)  # Which `replica_id` would not have given.
    return model, slot


def _of_endpoints(document: EndpointShard, _key: Key) -> Key:
    return token(document.model), f"{document.shard:02d}"


def _of_placement(document: PlacementVerdict, _key: Key) -> Key:
    return (token(document.model),)


def _of_router(document: RouterReport, _key: Key) -> Key:
    return token(document.router), f"{document.chunk:02d}"


def _of_revision(document: CatalogRevision, _key: Key) -> Key:
    return (str(document.revision % subjects.REVISION_SLOTS),)


@lru_cache(maxsize=4096)
def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and (text[0] != "0" or text == "0")


class NotItsWriter(msgspec.ValidationError):
    """Written by who may not write there."""


class Family(Struct, frozen=True, gc=False):
    """Where documents of one kind live: `pattern` in subject tokens after `flotilla.log.s.`, `*` a name."""

    pattern: tuple[str, ...]
    struct: type[Document]
    table: str
    """The attribute of FleetState that holds them."""
    names: Callable[[Any, Key], Key] = _nameless
    """Of a document, as they belong in its subject; given those that are in it."""
    writer: Writer = "control"
    """An agent or a router writes under its own name alone, which is the subject's first."""


FAMILIES = (
    Family(("genesis",), Genesis, "genesis"),
    Family(("catalog",), CatalogPointer, "catalog"),
    Family(("catalog", "rev", "*"), CatalogRevision, "revisions", _of_revision),
    Family(("node", "*", "info"), NodeInfo, "infos", _of_node, "agent"),
    Family(("node", "*", "shard", "*"), ShardStatus, "shards", _of_shard, "agent"),
    Family(("node", "*", "verdict"), NodeVerdict, "verdicts", _of_node),
    Family(("replica", "*", "*"), ReplicaDocument, "replicas", _of_replica),
    Family(("assignment", "*"), Assignment, "assignments", _of_node),
    Family(("endpoints", "*", "*"), EndpointShard, "endpoints", _of_endpoints),
    Family(("placement", "*"), PlacementVerdict, "placements", _of_placement),
    Family(("control", "epoch"), ControlEpoch, "epoch"),
    Family(("router", "*", "*"), RouterReport, "routers", _of_router, "router"),
    Family(("control", "brake"), ControlBrake, "brake"),
)

Found = tuple[Family, Key]
"""What a subject is."""


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
_GONE_MARK = b'{"gone":true'


class _Shape(Struct, frozen=True, gc=False):
    """Subjects of as many words with the same first one, told apart by one word."""

    at: int
    """Where that word stands; 0 where there is but one family."""
    families: dict[str, tuple[Family, slice]]
    """By that word; and where the names stand: side by side, or at every other place."""


def _names_in(pattern: tuple[str, ...]) -> slice:
    names = [at for at, word in enumerate(pattern) if word == "*"] or [len(pattern)]
    step = names[1] - names[0] if len(names) > 1 else 1
    return slice(names[0], names[-1] + 1, step)


def _by_shape() -> dict[str, dict[int, _Shape]]:
    """By the first word, and by the number of words."""
    shapes: dict[str, dict[int, _Shape]] = {}
    for family in FAMILIES:
        pattern = family.pattern
        at = next((at for at, word in enumerate(pattern) if at and word != "*"), 0)
        of_first = shapes.setdefault(pattern[0], {})
        shape = of_first.setdefault(len(pattern), _Shape(at, {}))
        shape.families[pattern[at]] = family, _names_in(pattern)
    return shapes


_SHAPES = _by_shape()
_ROOT_LENGTH = len(subjects.STATE_ROOT)


def family_of(subject: str) -> Found | None:
    """The family of a state subject and the names in it; None for a subject of no known family."""
    words = subject[_ROOT_LENGTH:].split(".")
    try:
        shape = _SHAPES[words[0]][len(words)]
        family, names = shape.families[words[shape.at]]
    except KeyError:
        return None
    return family, tuple(words[names])


def read_document(
    found: Found | None, payload: bytes
) -> tuple[_Whole[Any] | Event, Document | None]:
    """The envelope, and the document unless only a newer version than this one understands it.

    Nearly every message is a document of today's version, and read in one go. Whatever does not fit
    is looked at with care. Raises msgspec.DecodeError, also for what must not stand there.
    """
    if found is None:
        event = codec.decode_event(payload)
        return event, _retired(event)
    family, key = found
    newest = version_of(family.struct)
    try:
        whole = _WHOLE[family.struct].decode(payload)
        document = whole.data
        if whole.v == newest and family.names(document, key) == key and may_write(found, whole.src):
            return whole, document
    except (msgspec.ValidationError, RecursionError):
        pass
    event = codec.decode_event(payload)
    document = None if event.v > newest else decode_document(event, family.struct)
    check_place(found, event.src, document)
    return event, document


def check_place(found: Found, source: str, document: Document | None) -> None:
    """Raises msgspec.ValidationError where it must not stand there. None: it could not be read."""
    family, key = found
    if not may_write(found, source):
        raise NotItsWriter(f"written by {source}, and is {writer_of(found)}'s")
    if isinstance(document, Gone):
        if family.struct is ReplicaDocument and not _is_id_of(key, document.id):
            raise msgspec.ValidationError(f"it retires {document.id}, which is not its subject's")
    elif document is not None and (names := family.names(document, key)) != key:
        raise msgspec.ValidationError(f"it is of {'.'.join(names)}, not of {'.'.join(key)}")


def is_writer(role: Writer, key: Key, source: str) -> bool:
    """Whether an event's `src` is who speaks where these names stand."""
    speaker, name = _speaker(source)
    return speaker == role and (role == "control" or name == key[0])


def may_write(found: Found, source: str) -> bool:
    """Who speaks there; and control, which retires what is others' and carries it into a new log."""
    speaker, name = _speaker(source)
    if speaker == "control":
        return True
    family, key = found
    return speaker == family.writer and name == key[0]


@lru_cache(maxsize=100_000)
def _speaker(source: str) -> tuple[str, str]:
    """Role and token of an event's `src`; one without a name has no role."""
    role, _, name = source.partition("/")
    return (role, token(name)) if name else ("", "")


def writer_of(found: Found) -> str:
    """Who speaks there: a role, and the token of its name where there is but one."""
    family, key = found
    return family.writer if family.writer == "control" else f"{family.writer}/{key[0]}"


def _is_id_of(key: Key, replica: str) -> bool:
    """Its generation is what the slot's next one goes on from."""
    parts = parse_replica(replica)
    return parts is not None and (parts.model, str(parts.slot)) == key


def _retired(event: Event) -> Gone | None:
    """Of no known family, one thing is understood: that control has retired it."""
    data = bytes(event.data)
    if event.v > FIRST or not event.src.startswith("control/") or not data.startswith(_GONE_MARK):
        return None
    return codec.decode(data, Gone)


def decode_document(event: Event, struct: type[Document]) -> Document:
    """Of a version that this one knows; Gone where it is that. Raises msgspec.DecodeError."""
    if event.v < version_of(struct):
        return from_older(event.data, struct, event.v)
    payload = bytes(event.data)
    if payload.startswith(_GONE_MARK):
        return codec.decode(payload, Gone)
    return codec.decode(payload, struct)
