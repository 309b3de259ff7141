"""Who holds a port. Best effort: /proc tells only about processes of the same user, and only on Linux."""

import errno
import socket

from services.runtime import proc


def free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether `port` can be listened on there now. Raises OSError where nothing can."""
    family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(where)
        except OSError as error:
            if error.errno in {errno.EADDRINUSE, errno.EACCES}:
                return False
            raise
    return True


def holder(port: int) -> str:
    """`pid 4242 (nginx)`, or empty when it cannot be told."""
    pid = proc.listener(port)
    return "" if pid is None else f"pid {pid} ({proc.name(pid) or '?'})"
