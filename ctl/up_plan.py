"""What `flotilla up` will run: ports, folders, and each program with its environment. Starts nothing."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ctl.failure import Exit, Failure
from ctl.ports import free, holder
from ctl.remembered import Ports
from ctl.supervise import Child
from services.log import server

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Plan:
    """One machine's fleet. `data` is absolute."""

    data: Path
    ports: Ports
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
        return f"http://{LOOPBACK}:{self.ports.control}"

    @property
    def base_url(self) -> str:
        """What an OpenAI client is given."""
        return f"http://{LOOPBACK}:{self.ports.router}/v1"


def check_ports(ports: Ports) -> None:
    """Refuse a taken port, and one that two programs would share; names the flags that change them."""
    wanted = _by_flag(ports)
    faults = [*_doubled(wanted), *_taken(wanted)]
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


def _taken(wanted: Mapping[str, int]) -> Iterator[str]:
    for flag, port in wanted.items():
        if not free(port):
            who = holder(port)
            yield f"port {port} ({flag}) is taken" + (f" by {who}" if who else "")


def programs(plan: Plan) -> dict[str, Child]:
    """By name, in the order in which they are started."""
    ports, shared = plan.ports, _shared(plan)
    return {
        "nats": child(plan, "nats", [_nats_server(), "-c", str(_nats_config(plan))], {}),
        "control": _program(
            plan,
            "control",
            shared
            | {
                "FLOTILLA_CONTROL_LISTEN": f"{LOOPBACK}:{ports.control}",
                "FLOTILLA_CONTROL_NATS_MONITOR": f"{LOOPBACK}:{plan.nats_monitor}",
            },
        ),
        "agent": _program(
            plan,
            "agent",
            shared
            | {
                "FLOTILLA_AGENT_LISTEN": f"{LOOPBACK}:{ports.agent}",
                "FLOTILLA_AGENT_ADDRESS": LOOPBACK,
                "FLOTILLA_AGENT_PORTS": "-".join(map(str, ports.engines)),
            },
        ),
        "router": _program(
            plan,
            "router",
            shared
            | {
                "FLOTILLA_ROUTER_LISTEN": f"{LOOPBACK}:{ports.router}",
                "FLOTILLA_ROUTER_ADMIN_LISTEN": f"{LOOPBACK}:{ports.router_admin}",
            },
        ),
    }


def _shared(plan: Plan) -> dict[str, str]:
    named = {"FLOTILLA_CONFIG": str(plan.config)} if plan.config else {}
    return {
        "FLOTILLA_NATS_URL": f"nats://{LOOPBACK}:{plan.ports.nats}",
        "FLOTILLA_DATA_DIR": str(plan.data),
        "FLOTILLA_LOG_LEVEL": plan.log_level,
        **named,
    }


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
    """Folders, and the configuration of nats-server."""
    for folder in (plan.logs, plan.identities, _nats_config(plan).parent):
        folder.mkdir(parents=True, exist_ok=True)
    store = plan.data / "nats" / "store"
    text = server.config(store, plan.ports.nats, monitor_port=plan.nats_monitor)
    _nats_config(plan).write_text(text)
