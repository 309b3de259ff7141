"""Secrets of engines: a profile names them, only the node knows their values.

`<folder>/<name>`, readable by its owner alone, else the variable FLOTILLA_SECRET_<NAME>. A value goes
into the engine's environment and nowhere else: no argv, no log, no event, no state file.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from schemas.documents import LastError, SecretRef
from services.agent.engines.adapter import refusal

ENVIRONMENT_PREFIX = "FLOTILLA_SECRET_"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_OTHERS = 0o077


class Resolved(Struct, frozen=True):
    """Variables of an engine, and which of their values must never be shown."""

    env: dict[str, str]
    secrets: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Resolved({', '.join(sorted(self.env))})"


def resolve(
    wanted: Mapping[str, str | SecretRef], folder: Path, environ: Mapping[str, str]
) -> Resolved | LastError:
    """Every variable with its value, or which secret this node does not have."""
    env: dict[str, str] = {}
    secrets: list[str] = []
    for name, value in wanted.items():
        if isinstance(value, str):
            env[name] = value
            continue
        found = _find(value.secret, folder, environ)
        if isinstance(found, LastError):
            return found
        env[name] = found
        secrets.append(found)
    return Resolved(env, tuple(secrets))


def known(
    wanted: Mapping[str, str | SecretRef],
    folder: Path,
    own: Mapping[str, str],
    live: Mapping[str, str],
    sealed: str,
) -> tuple[str, ...] | None:
    """The secrets of a run that an earlier agent started; None: not all of them can be had.

    `live` is the environment of its processes, empty where none lives; values found elsewhere may be
    newer ones, so they count only under the seal of the start.
    """
    names = [name for name, value in wanted.items() if isinstance(value, SecretRef)]
    held = tuple(live[name] for name in names if name in live)
    found = resolve(wanted, folder, own)
    now = found.secrets if isinstance(found, Resolved) else ()
    if len(held) == len(names) or (len(now) == len(names) and is_sealed(now, sealed)):
        return (*held, *now)
    return None


def seal(secrets: Iterable[str], salt: str = "") -> str:
    """Salted: it tells equal secrets from others, and nothing else of them."""
    salt = salt or os.urandom(16).hex()
    text = "\0".join(secrets).encode()
    return f"{salt}:{hashlib.scrypt(text, salt=salt.encode(), n=2**12, r=8, p=1).hex()}"


def is_sealed(secrets: Iterable[str], sealed: str) -> bool:
    """Whether it is the seal of these very secrets."""
    salt = sealed.partition(":")[0]
    return bool(salt) and seal(secrets, salt) == sealed


def _find(name: str, folder: Path, environ: Mapping[str, str]) -> str | LastError:
    if not _NAME.fullmatch(name):
        return refusal("secret_missing", f"{name!r} is no name of a secret")
    path = folder / name
    try:
        mode = path.stat().st_mode
        if mode & _OTHERS:
            return refusal(
                "secret_exposed", f"secret {name!r}: {path} is open to others; chmod 600"
            )
        return path.read_text().rstrip("\r\n")
    except FileNotFoundError:
        pass
    except (OSError, UnicodeDecodeError) as error:
        return refusal("secret_missing", f"secret {name!r}: {path} cannot be read: {error}")
    variable = ENVIRONMENT_PREFIX + re.sub(r"[^A-Z0-9]", "_", name.upper())
    if variable in environ:
        return environ[variable]
    return refusal("secret_missing", f"secret {name!r} is neither at {path} nor in {variable}")
