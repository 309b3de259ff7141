"""Is this still the log that was here before?

Every program keeps on disk which log it has followed and how far (`Seen`). Another log id, a head
below what was seen, or STATE holding another id than LOG means that the log was wiped, restored or
replaced: the program says so, keeps everything running and acts on nothing. A program that has seen
no log accepts the one it finds; a genesis that names the known log as its parent is a recovery.
"""

import msgspec
from msgspec import Struct

from schemas import codec
from schemas.documents import Genesis
from schemas.ids import LogId


class Seen(Struct, frozen=True):
    """The log that a program has followed, and the highest sequence it has seen there."""

    log: LogId
    highest: int


def read_seen(content: bytes | None) -> Seen | None:
    """From a program's disk copy; None where there is none. A torn file counts as none."""
    if content is None:
        return None
    try:
        return codec.decode(content, Seen)
    except msgspec.DecodeError:
        return None


def damage(seen: Seen | None, found: Genesis | None, head: int) -> str | None:
    """Why the log found must not be acted on; None: it is the one known, or the first one seen.

    `found` is LOG's genesis (None: LOG is gone or empty), `head` LOG's last sequence.
    """
    if seen is None:
        return None
    if found is None:
        return f"log {seen.log} is gone: no genesis, head at {head}, {seen.highest} was seen"
    if found.log_id == seen.log:
        if head < seen.highest:
            return f"log {seen.log} ends at {head}, but {seen.highest} was seen: it was shortened"
        return None
    if found.parent == seen.log:
        return None
    return f"another log: {found.log_id} stands where {seen.log} was followed to {seen.highest}"
