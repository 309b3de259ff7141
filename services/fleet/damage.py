"""Is this still the log that was here before?

Every program keeps on disk which log it has followed and how far (`Seen`). Another log id, a head
below what was seen, or STATE holding another id than LOG means that the log was wiped, restored or
replaced: the program says so, keeps everything running and acts on nothing. A program that has seen
no log accepts the one it finds; a genesis that names the known log among its ancestors is a recovery.
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
    stamp: float = 0.0
    """When LOG stored what stands at `highest`, in seconds; 0.0: not known."""
    obeyed: int = 0
    """LOG sequence of the assignment that an agent obeyed last: it never goes back to an older one."""
    proven: bool = False
    """Control followed it for long while it heard others, and nobody contradicted."""


def read_seen(content: bytes | None) -> Seen | None:
    """From a program's disk copy; None where there is none. A torn file counts as none."""
    if content is None:
        return None
    try:
        return codec.decode(content, Seen)
    except msgspec.DecodeError:
        return None


class Found(Struct, frozen=True):
    """What stands in NATS, and what its reader had seen before it looked: a log grows meanwhile."""

    genesis: Genesis | None
    """None: not there, or never."""
    head: int
    """LOG's last sequence."""
    missing: str = ""
    """Not empty: a stream is not there."""
    unreadable: str = ""
    """Not empty: a genesis is there that this version cannot read, and why."""
    seen: Seen | None = None
    stamp: float = 0.0
    """When LOG stored what stands at `seen.highest`; 0.0: not known, or no longer there."""
    genesis_at: int = 0
    """LOG sequence of the last genesis there, readable or not; 0: LOG holds none."""


SAME_SECONDS = 0.001
"""Two stamps of one message differ by rounding alone."""


def damage(found: Found) -> str | None:
    """Why the log found must not be acted on; None: it is the one known, the first one seen, or none."""
    seen = found.seen
    if found.unreadable:
        return f"the genesis cannot be read: {found.unreadable}"
    if seen is None:
        return None
    if found.missing:
        return f"{found.missing}; log {seen.log} was followed to {seen.highest}"
    if found.genesis is None:
        return f"log {seen.log} is gone: no genesis, head at {found.head}, {seen.highest} was seen"
    if found.genesis.log_id == seen.log:
        if found.head < seen.highest:
            return f"log {seen.log} ends at {found.head}, but {seen.highest} was seen: it was shortened"
        if seen.stamp and found.stamp and abs(seen.stamp - found.stamp) > SAME_SECONDS:
            return (
                f"log {seen.log} holds another message at {seen.highest} than was seen: "
                "it was shortened, and has grown since"
            )
        return None
    if found.genesis.succeeds(seen.log):
        return None
    stands = found.genesis.log_id
    return f"another log: {stands} stands where {seen.log} was followed to {seen.highest}"
