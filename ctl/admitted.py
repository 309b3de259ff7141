"""Who may connect to this machine's NATS: a file a user, and the configuration made of them.

The file's content is the password, 256 random bits; it and the configuration are readable by their
owner alone. A server that runs is told to read them again; nobody else's connection is touched.
"""

import os
import secrets
import signal
from collections.abc import Generator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path

import msgspec

from ctl.doors import users_folder
from schemas.documents import ProcessIdentity
from services.log import server
from services.log.permissions import User, user
from services.runtime import proc
from services.runtime.files import read_if_there, write_atomically

INCLUDED = "users.conf"
"""Beside nats-server's configuration, which includes it."""
SYSTEM = "sys"
"""Sees the server itself and no log."""
_PRIVATE = 0o600
_BYTES = 32


def admitted(data: Path) -> dict[User, float]:
    """Users, and since when, in seconds since 1970."""
    try:
        files = list(users_folder(data).iterdir())
    except FileNotFoundError:
        return {}
    found = ((user(file.name), file) for file in files)
    return {each: file.stat().st_mtime for each, file in found if each is not None}


def admit(data: Path, *users: User) -> None:
    """Give each a password, if it has none, and write the server's configuration."""
    with _held(data):
        for name in (SYSTEM, *(each.text for each in users)):
            _password(data, name)
        _write(data)


def revoke(data: Path, found: User) -> None:
    """Its password is good no more once the server has read its configuration again."""
    with _held(data):
        (users_folder(data) / found.text).unlink(missing_ok=True)
        _write(data)


def reload(data: Path) -> bool:
    """Tell the nats-server that `up` runs with this folder. False: none runs."""
    content = read_if_there(data / "run" / "nats.json")
    if content is None:
        return False
    return proc.send(msgspec.json.decode(content, type=ProcessIdentity), signal.SIGHUP)


def _password(data: Path, name: str) -> str:
    file = users_folder(data) / name
    content = read_if_there(file)
    if content is None:
        content = f"{secrets.token_urlsafe(_BYTES)}\n".encode()
        write_atomically(file, content, _PRIVATE)
    return content.decode().strip()


def _write(data: Path) -> None:
    passwords = {each: server.secret(_password(data, each.text)) for each in admitted(data)}
    text = server.users(passwords, server.secret(_password(data, SYSTEM)))
    write_atomically(data / "nats" / INCLUDED, text.encode(), _PRIVATE)


@contextmanager
def _held(data: Path) -> Generator[None]:
    """One at a time, or one would write a configuration without the other's user."""
    folder = users_folder(data)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder.parent / "users.lock").open("a") as lock:
        os.fchmod(lock.fileno(), _PRIVATE)
        flock(lock, LOCK_EX)
        yield
