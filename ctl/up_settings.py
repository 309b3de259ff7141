"""From the settings of `up` to its plan: flags and environment, else what the last `up` here used."""

import socket
from collections.abc import Mapping
from pathlib import Path

import click

from ctl.doors import CLOSED, Doors, recall_doors
from ctl.failure import Exit, Failure
from ctl.remembered import Ports, recall
from ctl.settings import flags, option, settings
from ctl.up_names import node_here, router_here
from ctl.up_plan import LOOPBACK, Plan
from services.fleet.settings import Resolved
from services.fleet.settings_table import settings_of
from services.fleet.units import OFF

_PORTS = {
    "router": "up.port",
    "control": "up.control-port",
    "router_admin": "up.router-admin-port",
    "agent": "up.agent-port",
    "nats": "up.nats-port",
}


def options() -> list[click.Parameter]:
    """One for each setting of `up`, so that flag, variable and file cannot drift apart."""
    config = click.Option(
        ["--config"], type=click.Path(path_type=Path), help="Settings file of all programs."
    )
    return [*map(option, settings_of("up")), config]


def planned(given: Mapping[str, str | None], config: Path | None) -> Plan:
    """The plan; `given` is by argument name."""
    found = settings("up", flags("up", given), config)
    data = Path(found.text("data.dir")).resolve()
    ports = _ports(found, recall(data) or Ports())
    return Plan(
        data=data,
        ports=ports,
        doors=_doors(found, recall_doors(data)),
        node=node_here(config),
        router_name=router_here(config),
        nats_monitor=ports.nats_monitor or _a_free_port(),
        model=Path(found.text("up.model")) if found.has("up.model") else None,
        log_level=found.text("log.level"),
        config=config.resolve() if config else None,
    )


def _ports(found: Resolved, before: Ports) -> Ports:
    """A port that nobody names is the one of the time before."""
    single = {
        field: getattr(before, field) if _by_default(found, name) else found.count(name)
        for field, name in _PORTS.items()
    }
    first, last = (
        before.engines if _by_default(found, "up.engine-ports") else found.ports("up.engine-ports")
    )
    monitor = (
        found.count("up.nats-monitor-port")
        if found.has("up.nats-monitor-port")
        else before.nats_monitor
    )
    return Ports(**single, nats_monitor=monitor, engines=(first, last))


def _doors(found: Resolved, before: Doors) -> Doors:
    """What nobody names is as the time before."""

    def path(name: str, otherwise: str) -> str:
        return str(Path(found.text(name)).resolve()) if found.has(name) else otherwise

    listen = found.text("up.listen") if found.has("up.listen") else before.listen
    if listen == OFF:
        return CLOSED
    doors = Doors(
        listen=listen,
        tls_cert=path("up.tls-cert", before.tls_cert),
        tls_key=path("up.tls-key", before.tls_key),
        tls_ca=path("up.tls-ca", before.tls_ca),
    )
    if bool(doors.tls_cert) != bool(doors.tls_key) or (doors.tls_ca and not doors.tls_cert):
        raise _wrong("--tls-cert and --tls-key go together; --tls-ca is what others check them by")
    if doors.tls_cert and not listen:
        raise _wrong("certificates are for other machines: name the address with --listen")
    return doors


def _wrong(message: str) -> Failure:
    return Failure(Exit.USAGE, "bad_settings", message, steps=["flotilla up --help"])


def _a_free_port() -> int:
    with socket.create_server((LOOPBACK, 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


def _by_default(found: Resolved, name: str) -> bool:
    return found.values[name][1] == "default"
