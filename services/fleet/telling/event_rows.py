"""Events as rows with their documents, for tables and scripts. Pure."""

from msgspec import Raw
from msgspec.structs import asdict

from schemas.history import EventRow
from services.fleet.telling.happened import Happened
from services.fleet.telling.why import row

LARGEST_DETAIL = 8192


def event_row(found: Happened) -> EventRow:
    """Of what cannot be read, too: nothing that stands in the log is left out."""
    data = b"" if found.event is None else bytes(found.event.data)
    return EventRow(**asdict(row(found)), detail=_detail(data), detail_bytes=len(data))


def _detail(data: bytes) -> Raw:
    """As it stands; null where an answer cannot carry it."""
    if not data or len(data) > LARGEST_DETAIL or not _is_text(data):
        return Raw(b"null")
    return Raw(data)


def _is_text(data: bytes) -> bool:
    """A document that nobody has read may hold bytes that are none."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
