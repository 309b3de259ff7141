"""Control's settings as one value."""

from pathlib import Path

from msgspec import Struct

from schemas.ids import ControlId
from services.fleet.addresses import Address
from services.fleet.settings import Resolved
from services.log.door import Door, door

LEAST_UNREACHABLE_SECONDS = 3.0
"""A beat or two may be lost."""


class Config(Struct, frozen=True, kw_only=True):
    """Made by `from_settings` alone."""

    name: ControlId | None
    """None: made on first start and kept in the data folder."""
    listen: str
    address: str
    """host:port that a standby sends callers to while this one leads."""
    nats: Door
    nats_monitor: Address | None
    """Where nats-server says how it is set up."""
    log_replicas: int | None
    """Copies of each stream; None: as the server is set up."""
    data: Path
    """Control's own folder."""
    tokens: Path
    tokens_named: bool
    """By a setting: the file must be there."""
    tick_seconds: float
    unreachable_after: float | None
    """Silence of a node, in seconds; None: it does not become unreachable."""


def from_settings(found: Resolved) -> Config:
    """Raises ValueError where settings contradict each other."""
    data = Path(found.text("data.dir")) / "control"
    return Config(
        name=ControlId(found.text("control.name")) if found.has("control.name") else None,
        listen=found.address("control.listen").text,
        address=found.advertised("control.address").text,
        nats=door(found),
        nats_monitor=found.address("control.nats-monitor")
        if found.has("control.nats-monitor")
        else None,
        log_replicas=found.count("control.log-replicas")
        if found.has("control.log-replicas")
        else None,
        data=data,
        tokens=Path(found.text("control.tokens"))
        if found.has("control.tokens")
        else data / "tokens.toml",
        tokens_named=found.has("control.tokens"),
        tick_seconds=found.seconds("control.tick"),
        unreachable_after=_unreachable_after(found),
    )


def _unreachable_after(found: Resolved) -> float | None:
    after = found.duration("control.unreachable-after")
    if after is not None and after < LEAST_UNREACHABLE_SECONDS:
        raise ValueError(
            f"control.unreachable-after is {after:g}s, but agents beat once a second or two: "
            f"write at least {LEAST_UNREACHABLE_SECONDS:g}s"
        )
    return after
