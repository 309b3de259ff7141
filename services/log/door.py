"""How a program gets into NATS, and as whom: read from its settings. Secrets stay in their files.

How it fails: a file that cannot be read, or that holds nothing of use, is Shut with its name. It is
read anew for every link, so that a file that was mended or renewed counts without a restart.
"""

import re
import ssl
from pathlib import Path

from msgspec import Struct

from services.fleet.settings import Resolved
from services.log.message import Unavailable

_USER = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


class Shut(Unavailable):
    """There is no way in with this door's files."""


class Door(Struct, frozen=True, kw_only=True):
    """Of one user. Holds no secret itself, so it may be logged and shown."""

    url: str
    """One server, or several with commas."""
    user: str = ""
    """Empty: NATS asks for none."""
    password_file: Path | None = None
    ca: Path | None = None
    """Certificates that the server's is checked by; None: those that the machine trusts."""
    cert: Path | None = None
    """For servers that check their clients too, with its `key`."""
    key: Path | None = None

    @property
    def inbox(self) -> str:
        """Answers to this user come under it, and under it alone: nobody else may listen there."""
        return f"_INBOX.{self.user}" if self.user else "_INBOX"

    @property
    def secure(self) -> bool:
        """Nothing is said to a server without TLS, the password least of all."""
        return self.ca is not None or self.cert is not None or self.url.startswith("tls:")

    def password(self) -> str | None:
        """None: there is no user. Raises Shut."""
        if self.password_file is None:
            return None
        try:
            found = self.password_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Shut(f"the password file {self.password_file} cannot be read: {error}") from error
        if not found:
            raise Shut(f"the password file {self.password_file} is empty")
        return found

    def context(self) -> ssl.SSLContext | None:
        """None: as the server wants it. Raises Shut."""
        if not self.secure:
            return None
        try:
            made = ssl.create_default_context(cafile=self.ca)
            if self.cert is not None:
                made.load_cert_chain(self.cert, self.key)
        except OSError as error:  # Of which ssl's own errors are a kind.
            named = ", ".join(str(file) for file in (self.ca, self.cert, self.key) if file)
            raise Shut(f"no TLS with {named}: {error.strerror or error}") from error
        return made


def door(found: Resolved) -> Door:
    """Raises ValueError where settings contradict each other."""

    def path(name: str) -> Path | None:
        return Path(found.text(name)) if found.has(name) else None

    user = found.text("nats.user") if found.has("nats.user") else ""
    made = Door(
        url=found.text("nats.url"),
        user=user,
        password_file=path("nats.password-file"),
        ca=path("nats.ca"),
        cert=path("nats.cert"),
        key=path("nats.key"),
    )
    if user and not _USER.fullmatch(user):
        raise ValueError(f"nats.user `{user}`: letters, digits, `-` and `_`, in words with dots")
    if bool(user) != (made.password_file is not None):
        raise ValueError("nats.user and nats.password-file go together")
    if (made.cert is None) != (made.key is None):
        raise ValueError("nats.cert and nats.key go together")
    return made
