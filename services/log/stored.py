"""A message as it stands in the log."""

from msgspec import Struct


class Stored(Struct, frozen=True, gc=False):
    """One event with its place in LOG."""

    sequence: int
    """LOG sequence, also where it was read from STATE or from a live copy."""
    subject: str
    """Log subject."""
    payload: bytes
    stamp: float = 0.0
    """When LOG stored it, by the server's clock, in seconds; 0.0: not known (read from STATE)."""
