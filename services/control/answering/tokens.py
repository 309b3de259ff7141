"""Bearer tokens of the management API: made on first start, kept as hashes, each with a role.

`tokens.toml` holds `[[token]]` entries (name, role, sha256 of the token) and is read anew when it
changes; a file that is bad then leaves the last good one in force, and `trouble` says why. The first start
also writes `admin.token` beside it, readable by its owner alone: the one place where a token stands in the
clear, for the command line on this machine. A file that a setting names is made by nobody: control services
share one, and a name that is wrong must not bring a token into being that the others do not know.
"""

import hashlib
import hmac
import secrets
from pathlib import Path

import msgspec
import structlog
from msgspec import Struct

from schemas.frames import ROLES, Role
from services.runtime.files import read_if_there, write_atomically

PRINTABLE = "admin.token"
"""Holds one token in the clear, beside the file of hashes."""
_PRIVATE = 0o600
_GONE = (0, 0)
_BYTES = 32
_WHENCE = (
    "a second control service is given the tokens.toml of the first, "
    "and a first one makes its own where no setting names any"
)


log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Token(Struct, frozen=True, forbid_unknown_fields=True):
    """One holder. `sha256` in hex."""

    name: str
    role: Role
    sha256: str


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    token: list[Token] = []


class TokensUnreadable(Exception):
    """The file is there and says nothing that can be understood."""


class Tokens:
    """Who may call, by what they show."""

    def __init__(self, path: Path, *, named: bool = False) -> None:
        """`named`: by a setting. Raises TokensUnreadable."""
        self.trouble = ""
        """Why the file as it stands is not in force; empty: it is."""
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._tokens: list[Token] = []
        if read_if_there(path) is None:
            if named:
                raise TokensUnreadable(f"control.tokens: {path} is not there; {_WHENCE}")
            _make(path)
        self._refresh()

    def holder(self, shown: str) -> Token | None:
        """Whose token this is. Takes as long for a wrong one as for a right one."""
        self._refresh()
        digest = hashlib.sha256(shown.encode(errors="surrogateescape")).hexdigest()
        found = None
        for token in self._tokens:
            if hmac.compare_digest(token.sha256.encode(), digest.encode()):
                found = token
        return found

    def _refresh(self) -> None:
        """A file that is bad, or gone, on a later read leaves the last good one in force."""
        try:
            status = self._path.stat()
        except OSError as error:
            self._keep(str(error))
            self._stamp = _GONE
            return
        stamp = (status.st_mtime_ns, status.st_size)
        if stamp == self._stamp:
            return
        try:
            self._tokens = msgspec.toml.decode(self._path.read_bytes(), type=_File).token
        except (msgspec.DecodeError, ValueError, OSError) as error:
            if self._stamp is None:
                raise TokensUnreadable(f"{self._path}: {error}; {_WHENCE}") from error
            self._keep(f"{self._path}: {error}")
        else:
            self.trouble = ""
        self._stamp = stamp

    def _keep(self, trouble: str) -> None:
        """Told once a reason."""
        if trouble != self.trouble:
            log.error("tokens.not_taken", reason=trouble)
        self.trouble = trouble


def allows(role: Role, needed: Role) -> bool:
    """Each role may do all that the ones before it may."""
    return ROLES.index(role) >= ROLES.index(needed)


def _make(path: Path) -> None:
    token = secrets.token_urlsafe(_BYTES)
    digest = hashlib.sha256(token.encode()).hexdigest()
    entry = f'[[token]]\nname = "admin"\nrole = "admin"\nsha256 = "{digest}"\n'
    write_atomically(path.parent / PRINTABLE, f"{token}\n".encode(), _PRIVATE)
    write_atomically(path, entry.encode(), _PRIVATE)
