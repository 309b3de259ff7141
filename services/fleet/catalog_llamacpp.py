"""The flags of our llama.cpp engine, as data: the launcher's parser and the catalog's allow-list are
both made of it, so a flag that a catalog may name is one that the engine takes.
"""

import re
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from services.fleet.units import Wrong

Kind = Literal["text", "name", "list", "whole", "switch", "choice"]
"""`name`: one word, so neither a path nor a text; `list`: the flag may stand several times."""


class Flag(Struct, frozen=True, kw_only=True):
    """One flag, under llama-server's name without dashes."""

    name: str
    kind: Kind = "text"
    short: str = ""
    also: str = ""
    """A second long name."""
    negatable: bool = False
    """`no-<name>` is there too."""
    choices: tuple[str, ...] = ()


FLAGS = (
    Flag(name="model", short="m"),
    Flag(name="alias", short="a", kind="list"),
    Flag(name="host"),
    Flag(name="port", kind="whole"),
    Flag(name="ctx-size", short="c", kind="whole"),
    Flag(name="parallel", short="np", kind="whole"),
    Flag(name="batch-size", short="b", kind="whole"),
    Flag(name="ubatch-size", short="ub", kind="whole"),
    Flag(name="n-gpu-layers", short="ngl", kind="whole"),
    Flag(name="threads", short="t", kind="whole"),
    Flag(name="threads-batch", short="tb", kind="whole"),
    Flag(name="threads-http", kind="whole"),
    Flag(name="api-key", kind="list"),
    Flag(name="chat-template", kind="name"),
    Flag(name="embeddings", also="embedding", kind="switch"),
    Flag(name="pooling", kind="choice", choices=("none", "mean", "cls", "last", "rank")),
    Flag(name="metrics", kind="switch"),
    Flag(name="slots", kind="switch", negatable=True),
    Flag(name="no-webui", kind="switch"),
    Flag(name="warmup", kind="switch", negatable=True),
    Flag(name="verbosity", short="lv", kind="whole"),
)

_WHOLE = re.compile(r"-?[0-9]{1,9}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def spelt(flag: Flag) -> Iterator[str]:
    """Its long names."""
    yield flag.name
    if flag.also:
        yield flag.also
    if flag.negatable:
        yield f"no-{flag.name}"


BY_NAME = {name: flag for flag in FLAGS for name in spelt(flag)}


def check(name: str, text: str) -> Wrong | None:
    """Why the engine would not take the value. A switch alone is empty."""
    flag = BY_NAME[name]
    match flag.kind:
        case "switch" if text not in ("", "on", "off"):
            return Wrong(f"`{text}` is neither on nor off", f"write `{name}: on`")
        case "whole" if not _WHOLE.fullmatch(text):
            return Wrong(f"`{text}` is no whole number", f"write for example `{name}: 8`")
        case "choice" if text not in flag.choices:
            return Wrong(f"`{text}` is none of its values", f"one of {', '.join(flag.choices)}")
        case "name" if not _NAME.fullmatch(text):
            hint = "write the name of a template that llama.cpp has, such as `chatml`"
            return Wrong(f"`{text}` is no name", hint)
        case _:
            return None
