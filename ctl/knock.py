"""Whether NATS lets somebody in, by the first words of its protocol. By hand: no NATS library."""

import socket
from urllib.parse import urlsplit

import msgspec

from services.log.door import Door

ANSWER_SECONDS = 2.0


def gets_in(door: Door) -> bool:
    """False: it does not, or nobody answers. Raises Shut."""
    where, context = urlsplit(door.url), door.context()
    told = {"user": door.user, "pass": door.password(), "verbose": False, "pedantic": False}
    host = where.hostname or ""
    try:
        with socket.create_connection((host, where.port or 0), ANSWER_SECONDS) as plain:
            _line(plain)
            peer = context.wrap_socket(plain, server_hostname=host) if context else plain
            with peer:
                peer.sendall(b"CONNECT " + msgspec.json.encode(told) + b"\r\nPING\r\n")
                return _line(peer).startswith(b"PONG")
    except OSError:
        return False


def _line(peer: socket.socket) -> bytes:
    """No more than it: what follows may be TLS."""
    found = b""
    while not found.endswith(b"\n") and (byte := peer.recv(1)):
        found += byte
    return found
