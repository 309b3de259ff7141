"""The router's settings as one value."""

from pathlib import Path

from msgspec import Struct

from schemas.ids import RouterId
from services.fleet.settings import Resolved
from services.log.door import Door, door
from services.router.proxy import Timing


class Config(Struct, frozen=True, kw_only=True):
    """Made by `from_settings` alone."""

    name: RouterId | None
    """None: made on first start and kept in the data folder."""
    listen: str
    admin_listen: str
    nats: Door
    data: Path
    """The router's own folder."""
    catalog: Path | None
    endpoints: Path | None
    control_plane: bool
    """Off: static mode."""
    timing: Timing
    max_body_bytes: int
    report_seconds: float


def from_settings(found: Resolved) -> Config:
    """Raises ValueError where settings contradict each other."""
    config = Config(
        name=RouterId(found.text("router.name")) if found.has("router.name") else None,
        listen=found.address("router.listen").text,
        admin_listen=found.address("router.admin-listen").text,
        nats=door(found),
        data=Path(found.text("data.dir")) / "router",
        catalog=_path(found, "router.catalog"),
        endpoints=_path(found, "router.endpoints"),
        control_plane=found.flag("router.control-plane"),
        timing=Timing(
            connect=found.duration("router.connect-timeout"),
            first_byte=found.duration("router.first-byte-timeout"),
            whole_first_byte=found.duration("router.whole-first-byte-timeout"),
            idle=found.duration("router.idle-timeout"),
        ),
        max_body_bytes=found.size("router.max-body"),
        report_seconds=found.seconds("router.report-interval"),
    )
    if not config.control_plane and (config.catalog is None or config.endpoints is None):
        raise ValueError(
            "without a control plane (`router.control-plane = off`) both `router.catalog` and "
            "`router.endpoints` must be set"
        )
    if (config.catalog is None) != (config.endpoints is None):
        raise ValueError("`router.catalog` and `router.endpoints` are set together")
    return config


def _path(found: Resolved, name: str) -> Path | None:
    return Path(found.text(name)) if found.has(name) else None
