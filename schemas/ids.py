"""Names that must not pass for one another, and how any name becomes a token of a subject."""

import hashlib
import re
from functools import lru_cache
from typing import NewType

from msgspec import Struct

NodeId = NewType("NodeId", str)
ModelName = NewType("ModelName", str)
ReplicaId = NewType("ReplicaId", str)
RouterId = NewType("RouterId", str)
ControlId = NewType("ControlId", str)
EngineName = NewType("EngineName", str)
GpuUuid = NewType("GpuUuid", str)
EventId = NewType("EventId", str)
LogId = NewType("LogId", str)
Token = NewType("Token", str)

_CLEAN = re.compile(r"[a-z0-9-]{1,48}")
_REPLICA = re.compile(r"(.+)-(0|[1-9][0-9]{0,17})-(0|[1-9][0-9]{0,17})", re.ASCII)
"""Numbers as `replica_id` writes them, and none too long to be counted on."""
_HASH_TAIL = re.compile(r"-x[0-9a-f]{8}$")
_PREFIX_LENGTH = 38  # 48 less "-x" and 8 hex digits


@lru_cache(maxsize=100_000)
def token(name: str) -> Token:
    """The form of `name` that may stand in a subject: 1-48 of `[a-z0-9-]`.

    A clean name stands for itself; any other becomes a cleaned prefix and a hash, so that two names
    never share a token by cleaning alone. Documents hold the real name.
    """
    if _CLEAN.fullmatch(name) and not _HASH_TAIL.search(name):
        return Token(name)
    prefix = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")[:_PREFIX_LENGTH].strip("-")
    return Token(f"{prefix or 'name'}-x{hashlib.sha256(name.encode()).hexdigest()[:8]}")


def is_token(text: str) -> bool:
    """Whether `token` can have made it: of a clean name, or of any other."""
    return _CLEAN.fullmatch(text) is not None


def replica_id(model: ModelName, slot: int, generation: int) -> ReplicaId:
    """`<model token>-<slot>-<generation>`; a generation counts up each time the slot is used again."""
    return ReplicaId(f"{token(model)}-{slot}-{generation}")


class ReplicaParts(Struct, frozen=True):
    """A replica's id taken apart."""

    model: Token
    slot: int
    generation: int


def parse_replica(text: str) -> ReplicaParts | None:
    """None: no replica can have such an id."""
    found = _REPLICA.fullmatch(text)
    if found is None or not is_token(found[1]):
        return None
    return ReplicaParts(Token(found[1]), int(found[2]), int(found[3]))


def replica_parts(replica: ReplicaId) -> ReplicaParts:
    """Of an id that `replica_id` has made. Raises ValueError for any other text."""
    found = parse_replica(replica)
    if found is None:
        raise ValueError(f"{replica} is no id of a replica")
    return found
