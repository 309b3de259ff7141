"""Events as rows with their documents, for tables and scripts. Pure."""

from msgspec import Raw
from msgspec.structs import asdict

from schemas.history import EventRow
from services.fleet.telling.happened import Happened
from services.fleet.telling.why import row

LARGEST_DETAIL = 8192


def event_row(found: Happened) -> EventRow | None:
    """None: not an event at all."""
    if found.event is None:
        return None
    data = bytes(found.event.data)
    detail = Raw(data) if len(data) <= LARGEST_DETAIL else Raw(b"null")
    return EventRow(**asdict(row(found)), detail=detail, detail_bytes=len(data))
