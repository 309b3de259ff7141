"""Where the table comes from: the log, or the router's own files."""

from typing import Literal, Protocol

from msgspec import Struct

Mode = Literal["log", "disk", "seed", "static", "none"]


class Standing(Struct, frozen=True, kw_only=True):
    """How a source stands, for the admin listener."""

    mode: Mode
    connected: bool = False
    log: str = ""
    applied: int = 0
    revision: int = 0
    changed: float = 0.0
    """Monotonic seconds of the last change of the table."""
    damage: str = ""
    refused: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    trouble: str = ""
    """Why NATS is not of full use."""
    denials: int = 0
    """Times that NATS denied something."""
    beats_dropped: int = 0
    """Beats and load figures that were not believed."""
    namesakes: tuple[str, ...] = ()
    """Incarnations of other routers that run under the same name."""


class Source(Protocol):
    """Keeps a table current."""

    async def run(self) -> None:
        """For ever."""
        ...

    def standing(self) -> Standing:
        """Now."""
        ...
