"""Free TCP ports on loopback."""

import socket


def free_port() -> int:
    """A port that nobody listens on right now."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Distinct ports that nobody listens on right now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def free_range(size: int) -> tuple[int, int]:
    """A run of free ports, first and last: below the ephemeral ones, so that no client takes one."""
    for first in range(20000, 32000, size):
        if all(_is_free(port) for port in range(first, first + size)):
            return first, first + size - 1
    raise AssertionError("no run of free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
