"""Where a program listens, and what others are told to reach it by."""

import ipaddress
import re
from typing import NamedTuple

_NAME = re.compile(r"(?=.*[A-Za-z])[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")


_PORT = re.compile(r"[1-9][0-9]{0,4}")
LAST_PORT = 65535


class Address(NamedTuple):
    """Host and port."""

    host: str
    """Without brackets, also an IPv6 one."""
    port: int

    @property
    def text(self) -> str:
        """host:port, the host in brackets where it is an IPv6 address."""
        return joined(self.host, self.port)


def parsed(text: str) -> Address | None:
    """What `joined` made; None: nobody can be reached there."""
    host, _, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not _PORT.fullmatch(port) or int(port) > LAST_PORT or not can_be_advertised(bare):
        return None
    return Address(bare, int(port)) if joined(bare, int(port)) == text else None


def joined(host: str, port: int) -> str:
    """host:port, the host in brackets where it is an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def advertised(listen: Address, host: str | None) -> Address | None:
    """What others are told: the named host, else the one that is listened on. None: that is every
    address of the machine, so nobody could tell from elsewhere which machine is meant."""
    if host is not None:
        return Address(host, listen.port)
    return None if is_wildcard(listen.host) else listen


def is_wildcard(host: str) -> bool:
    """Whether a listener on it takes connections on every address of the machine."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def can_be_advertised(host: str) -> bool:
    """A host name or one IP address, without port, brackets or zone."""
    try:
        return not ipaddress.ip_address(host).is_unspecified and "%" not in host
    except ValueError:
        return bool(_NAME.fullmatch(host))
