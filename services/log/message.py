"""What goes over a connection, and how it fails."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct


class Unavailable(Exception):
    """NATS, or the stream asked, gave no answer. Whether a write took effect is not known."""


class Denied(Unavailable):
    """NATS does not let this user do that. It had no effect, and has none until NATS is set up anew."""

    def __init__(self, verb: Literal["publish", "subscribe"], subject: str, user: str) -> None:
        who = f"user {user}" if user else "a client without a user"
        super().__init__(f"NATS does not let {who} {verb} to {subject}: permissions violation")
        self.verb = verb
        self.subject = subject


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
