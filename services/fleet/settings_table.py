"""Every setting of every program, as data.

`control.listen` is `listen` under `[control]` in flotilla.toml, `FLOTILLA_CONTROL_LISTEN` in the
environment and `--listen` on `flotilla control`. What all programs share keeps its section in the
flag: `nats.url` is `--nats-url`. Secrets are never settings: only the paths of files that hold them.
"""

from collections.abc import Iterator
from typing import Literal, get_args

from msgspec import Struct

Program = Literal["control", "router", "agent", "journal", "up", "operator"]
"""`operator` stands for all verbs that ask the management API."""
PROGRAMS: tuple[Program, ...] = get_args(Program)
SHARED = ("nats", "data", "log")
"""Sections that belong to no single program."""
_READ: dict[Program, tuple[str, ...]] = {
    "journal": ("nats",),
    "up": ("data", "log"),
    "operator": ("data",),
}
"""Shared sections that a program reads, where it does not read all."""

Kind = Literal[
    "text",
    "url",
    "http",
    "path",
    "choice",
    "port",
    "ports",
    "address",
    "host",
    "duration",
    "size",
    "count",
    "flag",
    "mapping",
    "engines",
]


class Setting(Struct, frozen=True, kw_only=True):
    """One row: what it may be, and what it is when nobody says."""

    name: str
    """section.key"""
    kind: Kind
    default: str | None = None
    """As it would be written; None: unset, and `help` says what that means."""
    help: str
    off: bool = False
    """`off` is a value of its own."""
    zero: bool = False
    """0 is a value."""
    choices: tuple[str, ...] = ()
    short: str = ""
    """A second spelling of its flag."""
    advertises: str = ""
    """The listener whose host others are told by it. Unset, it is the listener's own; a listener on
    every address has none, so then it must be set."""

    @property
    def section(self) -> str:
        """In the file."""
        return self.name.partition(".")[0]

    @property
    def key(self) -> str:
        """In its section of the file."""
        return self.name.partition(".")[2]

    @property
    def flag(self) -> str:
        """On the command line, without dashes."""
        return self.name.replace(".", "-") if self.section in SHARED else self.key

    @property
    def variable(self) -> str:
        """In the environment."""
        return "FLOTILLA_" + self.name.replace(".", "_").replace("-", "_").upper()


def settings_of(program: Program) -> Iterator[Setting]:
    """Its own, and the shared ones that it reads."""
    sections = {program, *_READ.get(program, SHARED)}
    return (row for row in SETTINGS if row.section in sections)


SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="nats.url",
        kind="url",
        default="nats://127.0.0.1:4222",
        help="NATS server; several with commas",
    ),
    Setting(
        name="nats.user",
        kind="text",
        help="who this program is to NATS, with nats.password-file; unset: NATS asks for no user",
    ),
    Setting(
        name="nats.password-file",
        kind="path",
        help="file with the user's password and nothing else; unset: NATS asks for none",
    ),
    Setting(
        name="nats.ca",
        kind="path",
        help="certificates that NATS' own is checked by, and TLS with it; unset: those that the "
        "machine trusts",
    ),
    Setting(
        name="nats.cert",
        kind="path",
        help="certificate shown to NATS, with nats.key; unset: none",
    ),
    Setting(name="nats.key", kind="path", help="key of nats.cert; unset: none"),
    Setting(
        name="data.dir",
        kind="path",
        default=".flotilla",
        short="data",
        help="folder for state that must survive a restart",
    ),
    Setting(
        name="log.level",
        kind="choice",
        default="info",
        choices=("debug", "info", "warning", "error"),
        help="least level that is logged",
    ),
    Setting(
        name="control.name",
        kind="text",
        help="name of this control service; unset: made on first start and kept in the data folder",
    ),
    Setting(
        name="control.listen",
        kind="address",
        default="127.0.0.1:7400",
        help="management API, /livez, /readyz, /metrics",
    ),
    Setting(
        name="control.address",
        kind="host",
        help="host that a standby sends callers to; unset: the one of control.listen",
        advertises="control.listen",
    ),
    Setting(
        name="control.tokens",
        kind="path",
        help="file of token hashes and roles, which must be there; unset: control/tokens.toml in the data folder, "
        "made on first start",
    ),
    Setting(
        name="control.tick",
        kind="duration",
        default="1s",
        help="longest time between two turns of the loop",
    ),
    Setting(
        name="control.unreachable-after",
        kind="duration",
        default="5s",
        off=True,
        help="silence after which a node's endpoints are the last choice; "
        "off: they stay as they are until the node is lost",
    ),
    Setting(
        name="control.nats-monitor",
        kind="address",
        help="nats-server's HTTP monitoring, where it says whether its writes are synced; unset: not asked",
    ),
    Setting(
        name="control.log-replicas",
        kind="count",
        help="copies of each stream of the log; unset: 3 in a cluster of NATS servers, 1 on a single one",
    ),
    Setting(
        name="router.name",
        kind="text",
        help="name of this router; unset: made on first start and kept in the data folder",
    ),
    Setting(
        name="router.listen",
        kind="address",
        default="127.0.0.1:8000",
        help="clients' OpenAI-compatible port",
    ),
    Setting(
        name="router.admin-listen",
        kind="address",
        default="127.0.0.1:7401",
        help="/livez, /readyz, /metrics, the endpoint table",
    ),
    Setting(
        name="router.catalog",
        kind="path",
        help="catalog to seed from; without a control plane the only one; unset: none",
    ),
    Setting(
        name="router.endpoints",
        kind="path",
        help="endpoints to seed from; without a control plane the only ones; unset: none",
    ),
    Setting(
        name="router.control-plane",
        kind="flag",
        default="on",
        help="off: static mode, without NATS and control",
    ),
    Setting(
        name="router.first-byte-timeout",
        kind="duration",
        default="120s",
        off=True,
        help="longest wait for the first byte of a stream",
    ),
    Setting(
        name="router.whole-first-byte-timeout",
        kind="duration",
        default="600s",
        off=True,
        help="longest wait for the first byte of an answer that is no stream",
    ),
    Setting(
        name="router.idle-timeout",
        kind="duration",
        default="60s",
        off=True,
        help="longest silence inside an answer",
    ),
    Setting(
        name="router.connect-timeout",
        kind="duration",
        default="1s",
        help="longest wait for a connection to an engine",
    ),
    Setting(
        name="router.max-body",
        kind="size",
        default="64MiB",
        help="largest request body",
    ),
    Setting(
        name="router.report-interval",
        kind="duration",
        default="10s",
        help="time between two idle reports",
    ),
    Setting(name="agent.node", kind="text", help="name of this node; unset: the host's name"),
    Setting(
        name="agent.join",
        kind="path",
        help="file made by `flotilla join create`: the node's name, and all of [nats]; unset: they "
        "are set one by one",
    ),
    Setting(
        name="agent.listen",
        kind="address",
        default="127.0.0.1:7402",
        help="/livez, /readyz, /metrics, direct probes; with agent.join and nobody naming it, this "
        "machine's address towards NATS",
    ),
    Setting(
        name="agent.address",
        kind="host",
        help="host that routers use for this node's engines, and control for its probes; "
        "unset: the one of agent.listen",
        advertises="agent.listen",
    ),
    Setting(
        name="agent.fabric-address",
        kind="host",
        help="host that the other nodes of a gang use; unset: agent.address",
    ),
    Setting(
        name="agent.ports",
        kind="ports",
        default="17000-17999",
        help="ports that engines may be given",
    ),
    Setting(
        name="agent.engines",
        kind="engines",
        help="command of each engine environment; unset: what is found on the node",
    ),
    Setting(
        name="agent.fabric",
        kind="text",
        help="nodes of one fabric can form one replica; unset: none",
    ),
    Setting(name="agent.labels", kind="mapping", help="labels of this node; unset: none"),
    Setting(
        name="agent.cores",
        kind="count",
        zero=True,
        help="cores that replicas without cards may take; unset: all; 0: none",
    ),
    Setting(
        name="agent.memory",
        kind="size",
        zero=True,
        help="memory that replicas without cards may take; unset: all; 0: none",
    ),
    Setting(
        name="agent.secrets-dir",
        kind="path",
        help="folder with one file a secret; unset: secrets in the data folder",
    ),
    Setting(
        name="agent.survive",
        kind="flag",
        default="on",
        help="off: engines end with the agent, as inside its container",
    ),
    Setting(name="up.port", kind="port", default="8000", help="clients' OpenAI-compatible port"),
    Setting(name="up.nats-port", kind="port", default="4222", help="NATS"),
    Setting(
        name="up.nats-monitor-port",
        kind="port",
        help="NATS monitoring, read by control; unset: a free one",
    ),
    Setting(name="up.control-port", kind="port", default="7400", help="management API"),
    Setting(name="up.router-admin-port", kind="port", default="7401", help="router's admin port"),
    Setting(name="up.agent-port", kind="port", default="7402", help="agent's admin port"),
    Setting(name="up.engine-ports", kind="ports", default="17000-17999", help="engines' ports"),
    Setting(
        name="up.listen",
        kind="host",
        off=True,
        help="address of this machine at which others may come in, with a password; unset: as the "
        "time before; off: loopback only",
    ),
    Setting(
        name="up.tls-cert",
        kind="path",
        help="certificate that NATS shows, with up.tls-key; unset: as the time before",
    ),
    Setting(name="up.tls-key", kind="path", help="key of up.tls-cert; unset: as the time before"),
    Setting(
        name="up.tls-ca",
        kind="path",
        help="certificates that others check up.tls-cert by; unset: as the time before, else those "
        "that each machine trusts",
    ),
    Setting(
        name="up.model",
        kind="path",
        help="GGUF file that the first catalog serves; unset: the demo's model",
    ),
    Setting(
        name="operator.server",
        kind="http",
        help="management API; unset: the one that `flotilla up` started with this data folder, "
        "else http://127.0.0.1:7400",
    ),
    Setting(
        name="operator.token-file",
        kind="path",
        help="file with the token; unset: the one that control made in the data folder",
    ),
)

BY_NAME = {row.name: row for row in SETTINGS}

OTHER_VARIABLES = ("FLOTILLA_CONFIG", "FLOTILLA_REPLICA")
"""Of ours in the environment, and no settings: where the file is, and the mark of our engines."""
OTHER_PREFIXES = ("FLOTILLA_SECRET_",)
