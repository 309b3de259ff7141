"""What goes over a connection, and how it fails."""

from collections.abc import Mapping

from msgspec import Struct


class Unavailable(Exception):
    """NATS, or the stream asked, gave no answer. Whether a write took effect is not known."""


class Message(Struct, frozen=True, gc=False):
    """One message as it came in."""

    subject: str
    payload: bytes
    headers: Mapping[str, str] = {}
    """`Status` holds the code of a message that the server made itself."""
    reply: str = ""
    """Where an answer is awaited; empty: nowhere."""


Reply = Message

NO_RESPONDERS = "503"


def status(message: Message) -> str:
    """Code of a message that the server made itself: `404`, `408`, `503`; empty for all others."""
    return "" if message.payload else message.headers.get("Status", "")
