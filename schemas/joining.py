"""What a second machine is given to come in: one file, readable by its owner alone."""

from msgspec import Struct

FORMAT = 1


class Joining(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Of one node."""

    flotilla_join: int
    """FORMAT: a version that does not know a later one says so."""
    node: str
    url: str
    """Of NATS."""
    user: str
    password: str
    ca: str = ""
    """Certificates in PEM that NATS' own is checked by; empty: those that the machine trusts."""
    control: str
    """Of the management API."""

    def __repr__(self) -> str:
        """Without the password: it may stand in a log."""
        return f"Joining(node={self.node!r}, url={self.url!r}, user={self.user!r})"
