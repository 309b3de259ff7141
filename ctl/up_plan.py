"""What `flotilla up` will run: ports, folders, and each program with its environment. Starts nothing."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ctl.admitted import INCLUDED, admit
from ctl.doors import (
    ADMIN,
    CLOSED,
    OPERATOR,
    Doors,
    agent_user,
    control_url,
    door,
    nats_url,
    router_user,
)
from ctl.failure import Exit, Failure
from ctl.ports import free, holder
from ctl.remembered import Ports
from ctl.supervise import Child
from schemas.ids import NodeId, RouterId
from services.fleet.addresses import Address
from services.log import server
from services.log.permissions import User
from services.runtime.names import own_name

LOOPBACK = server.LOOPBACK
CONTROL = User("control")


@dataclass(frozen=True)
class Plan:
    """One machine's fleet. `data` is absolute."""

    data: Path
    ports: Ports
    node: NodeId
    """Of this machine."""
    doors: Doors = CLOSED
    router_name: RouterId | None = None
    """None: it has the name that it makes on its first start."""
    model: Path | None = None
    """What the first catalog serves; None: the demo's model."""
    nats_monitor: int = 0
    """Port of nats-server's monitoring; 0: it has none."""
    log_level: str = "info"
    config: Path | None = None
    """Settings file for all programs; None: the one in the working directory, if any."""

    @property
    def logs(self) -> Path:
        """Where each program's output goes."""
        return self.data / "logs"

    @property
    def identities(self) -> Path:
        """Which processes were started, for the next `up` to find."""
        return self.data / "run"

    @property
    def control_url(self) -> str:
        """Of the management API."""
        return control_url(self.doors, self.ports)

    @property
    def router(self) -> RouterId:
        """Its name, made on first need."""
        return self.router_name or RouterId(own_name(self.data / "router", "router"))

    @property
    def base_url(self) -> str:
        """What an OpenAI client is given."""
        return f"http://{LOOPBACK}:{self.ports.router}/v1"


def check_ports(ports: Ports, doors: Doors = CLOSED) -> None:
    """Refuse a taken port, and one that two programs would share; names the flags that change them."""
    wanted = _by_flag(ports)
    try:
        faults = [*_doubled(wanted), *_taken(wanted, doors.host)]
    except OSError as error:
        raise Failure(
            Exit.USAGE,
            "not_ours",
            f"nothing can listen on {doors.host}: {error.strerror}",
            why="--listen names an address of this machine",
            steps=["flotilla up --listen ADDRESS"],
        ) from error
    if faults:
        raise Failure(
            Exit.REFUSED,
            "port_taken",
            "; ".join(faults),
            why="every port can be chosen, and a chosen one is remembered in the data folder",
            steps=["flotilla up --help"],
        )


def _by_flag(ports: Ports) -> dict[str, int]:
    monitor = {"--nats-monitor-port": ports.nats_monitor} if ports.nats_monitor else {}
    return {
        "--port": ports.router,
        "--control-port": ports.control,
        "--router-admin-port": ports.router_admin,
        "--agent-port": ports.agent,
        "--nats-port": ports.nats,
        **monitor,
    }


def _doubled(wanted: Mapping[str, int]) -> Iterator[str]:
    first, last = "", 0
    for flag, port in sorted(wanted.items(), key=lambda pair: pair[1]):
        if port == last:
            yield f"port {port} is given to both {first} and {flag}"
        first, last = flag, port


def _taken(wanted: Mapping[str, int], host: str) -> Iterator[str]:
    for flag, port in wanted.items():
        if not (free(port) and (host == LOOPBACK or free(port, host))):
            who = holder(port)
            yield f"port {port} ({flag}) is taken" + (f" by {who}" if who else "")


def programs(plan: Plan) -> dict[str, Child]:
    """By name, in the order in which they are started."""
    ports, shared, host = plan.ports, _shared(plan), plan.doors.host
    return {
        "nats": child(plan, "nats", [_nats_server(), "-c", str(_nats_config(plan))], {}),
        "control": _program(
            plan,
            "control",
            shared
            | _user(plan, CONTROL)
            | {
                "FLOTILLA_CONTROL_LISTEN": Address(host, ports.control).text,
                "FLOTILLA_CONTROL_NATS_MONITOR": f"{LOOPBACK}:{plan.nats_monitor}",
            },
        ),
        "agent": _program(
            plan,
            "agent",
            shared
            | _user(plan, agent_user(plan.node))
            | {
                "FLOTILLA_AGENT_LISTEN": Address(host, ports.agent).text,
                "FLOTILLA_AGENT_ADDRESS": host,
                "FLOTILLA_AGENT_PORTS": "-".join(map(str, ports.engines)),
            },
        ),
        "router": _program(
            plan,
            "router",
            shared
            | (_user(plan, router_user(plan.router)) if plan.doors.is_open else {})
            | {
                "FLOTILLA_ROUTER_LISTEN": f"{LOOPBACK}:{ports.router}",
                "FLOTILLA_ROUTER_ADMIN_LISTEN": f"{LOOPBACK}:{ports.router_admin}",
            },
        ),
    }


def _shared(plan: Plan) -> dict[str, str]:
    named = {"FLOTILLA_CONFIG": str(plan.config)} if plan.config else {}
    return {
        "FLOTILLA_NATS_URL": nats_url(plan.doors, plan.ports),
        "FLOTILLA_DATA_DIR": str(plan.data),
        "FLOTILLA_LOG_LEVEL": plan.log_level,
        **named,
    }


def _user(plan: Plan, user: User) -> dict[str, str]:
    """What tells a program who it is. Without doors NATS asks nobody."""
    found = door(plan.data, plan.doors, plan.ports, user)
    told = {
        "FLOTILLA_NATS_USER": found.user,
        "FLOTILLA_NATS_PASSWORD_FILE": found.password_file,
        "FLOTILLA_NATS_CA": found.ca,
    }
    return {name: str(value) for name, value in told.items() if value}


def _program(plan: Plan, name: str, environ: dict[str, str]) -> Child:
    return child(plan, name, [sys.executable, "-m", f"services.{name}"], environ)


def child(plan: Plan, name: str, command: list[str], environ: dict[str, str]) -> Child:
    """A process of this fleet, with its log and identity in the usual places."""
    return Child(
        name=name,
        command=command,
        log=plan.logs / f"{name}.log",
        identity_file=plan.identities / f"{name}.json",
        environ=environ,
    )


def _nats_server() -> str:
    try:
        return str(server.binary())
    except server.NoServer as error:
        raise Failure(Exit.USAGE, "no_nats_server", str(error), steps=["uv sync"]) from error


def _nats_config(plan: Plan) -> Path:
    return plan.data / "nats" / "nats-server.conf"


def write_files(plan: Plan) -> None:
    """Folders, and the configuration of nats-server; its users, if it has any."""
    for folder in (plan.logs, plan.identities, _nats_config(plan).parent):
        folder.mkdir(parents=True, exist_ok=True)
    store = plan.data / "nats" / "store"
    doors = plan.doors
    if doors.is_open:
        admit(plan.data, CONTROL, ADMIN, OPERATOR, agent_user(plan.node), router_user(plan.router))
    text = server.config(
        store,
        plan.ports.nats,
        host=doors.host,
        monitor_port=plan.nats_monitor,
        tls=doors.tls,
        include=INCLUDED if doors.is_open else "",
    )
    _nats_config(plan).write_text(text)
