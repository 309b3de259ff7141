"""Who listens where, as the kernel tells."""

import ipaddress
import struct
from collections.abc import Iterable
from pathlib import Path

_LISTEN = "0A"


def listening(pids: Iterable[int]) -> set[tuple[str, int]]:
    """Host and port of every TCP listener that one of these processes holds."""
    held = {inode for pid in pids for inode in _inodes(pid)}
    found: set[tuple[str, int]] = set()
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == _LISTEN and rest[5] in held:
                host, _, port = local.partition(":")
                found.add((_address(host), int(port, 16)))
    return found


def _address(text: str) -> str:
    """Hexadecimal words in the machine's byte order."""
    raw = bytes.fromhex(text)
    words = struct.unpack(f">{len(raw) // 4}I", raw)
    return str(ipaddress.ip_address(struct.pack(f"={len(words)}I", *words)))


def _inodes(pid: int) -> set[str]:
    folder = Path("/proc", str(pid), "fd")
    found: set[str] = set()
    try:
        for descriptor in folder.iterdir():
            kind, _, inode = str(descriptor.readlink()).partition(":[")
            if kind == "socket":
                found.add(inode.removesuffix("]"))
    except OSError:  # It has ended.
        return found
    return found
