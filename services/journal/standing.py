"""What log stands in NATS, for verbs that need one."""

from msgspec import Struct

from schemas import subjects
from schemas.documents import Genesis
from services.fleet.reading import Read, read
from services.log.connect import Connection
from services.log.history import Bounds, bounds
from services.log.snapshot import get
from services.log.streams import LogMissing
from services.runtime.failure import Exit, Failure


class Standing(Struct, frozen=True):
    """LOG, and which log it is."""

    genesis: Genesis
    bounds: Bounds


async def standing(connection: Connection) -> Standing:
    """Raises Failure where there is no log, or none that can be read; Unavailable."""
    try:
        found = await bounds(connection)
    except LogMissing as error:
        raise Failure(
            Exit.NOT_FOUND,
            "no_log",
            "there is no log",
            why=str(error),
            steps=["flotilla journal recover"],
        ) from error
    stored = await get(connection, subjects.GENESIS)
    if stored is None:
        raise Failure(Exit.NOT_FOUND, "no_log", "the log has not begun: it has no genesis")
    match read(stored.subject, stored.payload, Genesis):
        case Read(document=genesis):
            return Standing(genesis, found)
        case bad:
            raise Failure(
                Exit.REFUSED,
                "no_genesis",
                "nobody can say which log this is",
                why=f"the genesis at {stored.sequence} cannot be read: {bad.reason}",
                steps=["flotilla journal recover"],
            )
