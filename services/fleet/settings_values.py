"""One setting's text as its value, or why not. Unset, zero and off never mean the same."""

import re
import shlex
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from schemas.documents import EngineKind
from services.fleet.addresses import Address, can_be_advertised
from services.fleet.catalog_engines import ENGINES
from services.fleet.settings_table import Kind, Setting
from services.fleet.units import OFF, Wrong, duration, size, write_duration, write_size


class EngineCommand(Struct, frozen=True, kw_only=True):
    """An engine environment as the node's configuration states it."""

    name: str
    kind: EngineKind
    command: tuple[str, ...]
    """An argv, to which the adapter adds its flags."""
    version: str = ""
    """Empty: the agent asks the engine."""


class Ports(NamedTuple):
    """First and last of a range."""

    first: int
    last: int


class Labels(Struct, frozen=True):
    """Of kind mapping."""

    values: dict[str, str]


class Commands(Struct, frozen=True):
    """Of kind engines."""

    values: dict[str, EngineCommand]


Value: TypeAlias = str | int | float | bool | Address | Ports | Labels | Commands
"""A duration that is off is OFF."""

_KINDS: dict[str, EngineKind] = {kind: kind for kind in ENGINES}
_ON_OFF = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
_ENGINE = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_WHOLE = re.compile(r"[0-9]{1,9}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def read(setting: Setting, text: str) -> Value | Wrong:
    """The value that `text` stands for."""
    if not text.strip():
        return Wrong("is empty", "leave it out to have it unset")
    if _CONTROL.search(text):
        return Wrong("holds a control character", "remove it")
    return _READERS[setting.kind](setting, text.strip())


def _text(_: Setting, text: str) -> Value | Wrong:
    return text


def _url(_: Setting, text: str) -> Value | Wrong:
    for server in text.split(","):
        try:
            parts = urlsplit(server)
            whole = parts.scheme in ("nats", "tls") and parts.hostname and parts.port
        except ValueError:
            return Wrong(f"`{server}` is no address of a server", "write `nats://HOST:PORT`")
        if "@" in parts.netloc:
            return Wrong("holds a password", "a setting is shown to everybody who may read it")
        if not whole:
            return Wrong(f"`{server}` is no address of a server", "write `nats://HOST:PORT`")
    return text


def _http(_: Setting, text: str) -> Value | Wrong:
    try:
        parts = urlsplit(text)
        whole = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        whole = False
    if not whole:
        return Wrong(f"`{text}` is not a server address", "write `http://HOST:PORT`")
    if "@" in text:
        return Wrong("holds a password", "a setting is shown to everybody who may read it")
    return text


def _host(setting: Setting, text: str) -> Value | Wrong:
    if text == OFF and setting.off:
        return OFF
    host = text.removeprefix("[").removesuffix("]")
    if text == OFF or not can_be_advertised(host):
        return Wrong(
            f"`{text}` is no host that others could reach", "write a name or an IP address"
        )
    return host


def _choice(setting: Setting, text: str) -> Value | Wrong:
    if text in setting.choices:
        return text
    return Wrong(f"`{text}` is none of its values", f"one of {', '.join(setting.choices)}")


def _port(_: Setting, text: str) -> Value | Wrong:
    port = _as_port(text)
    return port or Wrong(f"`{text}` is no port", "write a number from 1 to 65535")


def _as_port(text: str) -> int | None:
    return int(text) if _WHOLE.fullmatch(text) and 0 < int(text) < 65536 else None


def _ports(_: Setting, text: str) -> Value | Wrong:
    first, last = (_as_port(end.strip()) for end in text.partition("-")[::2])
    if first is None or last is None or last < first:
        return Wrong(f"`{text}` is no range of ports", "write for example `17000-17999`")
    return Ports(first, last)


def _address(_: Setting, text: str) -> Value | Wrong:
    host, _colon, port_text = text.rpartition(":")
    bare, port = host.removeprefix("[").removesuffix("]"), _as_port(port_text)
    if port is None or not bare or " " in bare or (":" in bare) != (host != bare):
        return Wrong(f"`{text}` is no address", "write `HOST:PORT`, for example `127.0.0.1:7400`")
    return Address(bare, port)


def _duration(setting: Setting, text: str) -> Value | Wrong:
    seconds = duration(text)
    if seconds == OFF and not setting.off:
        return Wrong("cannot be off", "write for example `10s`")
    if seconds == 0.0 and not setting.zero:
        hint = "write `off` for no limit" if setting.off else "write for example `1s`"
        return Wrong("cannot be 0", hint)
    return seconds


def _size(setting: Setting, text: str) -> Value | Wrong:
    if text == OFF:
        return Wrong("cannot be off", "write for example `64MiB`")
    number_bytes = size(text)
    if number_bytes == 0 and not setting.zero:
        return Wrong("cannot be 0", "write for example `64MiB`")
    return number_bytes


def _count(setting: Setting, text: str) -> Value | Wrong:
    if not _WHOLE.fullmatch(text):
        return Wrong(f"`{text}` is not a whole number")
    if text.strip("0") == "" and not setting.zero:
        return Wrong("cannot be 0", "1 or more")
    return int(text)


def _flag(_: Setting, text: str) -> Value | Wrong:
    if text in _ON_OFF:
        return _ON_OFF[text]
    return Wrong(f"`{text}` is neither on nor off", "write `on` or `off`")


def _mapping(_: Setting, text: str) -> Value | Wrong:
    pairs = [part.partition("=") for part in text.split(",")]
    if any(not equals for _name, equals, _value in pairs):
        return Wrong(f"`{text}` names no values", "write `NAME=VALUE,NAME=VALUE`")
    return read_labels([(name.strip(), value.strip()) for name, _equals, value in pairs])


def read_labels(pairs: list[tuple[str, str]]) -> Labels | Wrong:
    """Pairs, each name once."""
    names = [name for name, _ in pairs]
    for name in names:
        if not _LABEL.fullmatch(name):
            return Wrong(f"`{name}` is no name of a label", "write letters, digits, `.`, `_`, `-`")
        if names.count(name) > 1:
            return Wrong(f"`{name}` is there twice", "keep one")
    return Labels(dict(pairs))


def _engines(_: Setting, text: str) -> Value | Wrong:
    pairs = [part.partition("=") for part in text.split(";")]
    if any(not equals for _name, equals, _value in pairs):
        return Wrong(f"`{text}` names no commands", "write `NAME=COMMAND; NAME=COMMAND`")
    return read_commands({name.strip(): {"command": value} for name, _equals, value in pairs})


def read_commands(tables: Mapping[str, Mapping[str, str]]) -> Commands | Wrong:
    """By name; each has `command`, and may have `kind` (default: its name) and `version`."""
    found: dict[str, EngineCommand] = {}
    for name, keys in tables.items():
        engine = _engine(name, keys)
        if isinstance(engine, Wrong):
            return engine
        found[name] = engine
    return Commands(found)


def _engine(name: str, keys: Mapping[str, str]) -> EngineCommand | Wrong:
    for key in keys:
        if key not in ("kind", "command", "version"):
            return Wrong(f"`{name}` has an unknown key `{key}`", "it knows command, kind, version")
    kind = _KINDS.get(keys.get("kind", name))
    if kind is None or not _ENGINE.fullmatch(name):
        return Wrong(f"`{name}` is of no known kind", f"give its `kind`: {', '.join(ENGINES)}")
    try:
        command = tuple(shlex.split(keys.get("command", "")))
    except ValueError as error:
        return Wrong(f"the command of `{name}` cannot be split: {error}", "close its quotes")
    if not command:
        return Wrong(f"`{name}` has no command", 'write `command = "…"`')
    return EngineCommand(name=name, kind=kind, command=command, version=keys.get("version", ""))


_READERS: dict[Kind, Callable[[Setting, str], Value | Wrong]] = {
    "text": _text,
    "url": _url,
    "path": _text,
    "choice": _choice,
    "host": _host,
    "http": _http,
    "port": _port,
    "ports": _ports,
    "address": _address,
    "duration": _duration,
    "size": _size,
    "count": _count,
    "flag": _flag,
    "mapping": _mapping,
    "engines": _engines,
}


def write(setting: Setting, value: Value) -> str:
    """The text that `read` takes for this value; of engines without their version and kind."""
    match value:
        case bool():
            return "on" if value else "off"
        case int():
            return write_size(value) if setting.kind == "size" else str(value)
        case float():
            return write_duration(value)
        case Address():
            return value.text
        case Ports():
            return f"{value.first}-{value.last}"
        case Labels():
            return ",".join(f"{name}={text}" for name, text in value.values.items())
        case Commands():
            engines = value.values.items()
            return "; ".join(f"{name}={shlex.join(engine.command)}" for name, engine in engines)
        case str():
            return value
