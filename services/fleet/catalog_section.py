"""Reads one mapping of the catalog key by key; what is wrong becomes a fault and reading goes on.

A reader that meets a fault gives back a value that stands in, since the catalog is refused anyway.
"""

import re

from services.fleet import units
from services.fleet.catalog_tree import Entries, Faults, Items, Node, Scalar
from services.fleet.nearest import nearest

KEYS: dict[str, tuple[str, ...]] = {
    "a catalog": ("models", "engines"),
    "an engine": ("kind", "version", "metrics"),
    "a model": (
        "engine",
        "source",
        "task",
        "gpu",
        "cpu",
        "nodes",
        "replicas",
        "min_ready",
        "args",
        "env",
        "aliases",
        "hidden",
        "patience",
        "drain_grace",
        "load_stall",
    ),
    "`gpu`": ("class", "count", "memory"),
    "`cpu`": ("cores", "memory"),
}
"""What each place of a catalog knows."""

_ELSEWHERE = {
    "path": "write `source`",
    "model": "write `source` for the weights; the model's name is the key of its entry",
    "name": "the name is the key of the entry: `models: {tiny-chat: {…}}`",
    "gpus": "write `gpu: {class: …, count: N}`",
    "tensor_parallel": "write `gpu: {count: N}`; the engine's adapter derives the rest",
    "tensor_parallel_size": "write `gpu: {count: N}`; the engine's adapter derives the rest",
    "command": "the command stands in the agent's configuration; flags go into `args`",
    "cmd": "the command stands in the agent's configuration; flags go into `args`",
    "load_timeout": "write `load_stall`: how long a load may stand still",
    "port": "the agent's ports are given by control",
    "min_replicas": "write `min_ready`",
    "list_aliases": "list a model's other names in its `aliases`",
}
_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_WHOLE = re.compile(r"[0-9]{1,9}")
_DECIMAL = re.compile(r"[0-9]{1,6}(\.[0-9]{1,3})?")
_KIND_NAMES = {Items: "a list", Entries: "a mapping", Scalar: "a single value"}


class Section:
    """One mapping, with what it is called in messages (a key of KEYS)."""

    def __init__(self, node: Entries, called: str, faults: Faults) -> None:
        self.node = node
        self.faults = faults
        for name, entry in node.entries.items():
            if name not in KEYS[called]:
                where = node.path or called
                faults.add(entry.key, f"unknown key `{name}` in {where}", _hint(name, called))

    def get(self, key: str) -> Node | None:
        """The node under `key`; None: unset. Nothing written there is a fault."""
        entry = self.node.entries.get(key)
        if entry is None:
            return None
        if isinstance(entry.value, Scalar) and entry.value.blank:
            self.faults.add(entry.key, f"`{key}` has no value", "give one, or remove the key")
            return None
        return entry.value

    def scalar(self, key: str) -> Scalar | None:
        """A single value."""
        return as_scalar(self.get(key), f"`{key}`", self.faults)

    def entries(self, key: str) -> Entries | None:
        """A mapping."""
        node = self.get(key)
        if node is None or isinstance(node, Entries):
            return node
        self.faults.add(node, f"`{key}` is {_KIND_NAMES[type(node)]} where a mapping belongs")
        return None

    def items(self, key: str) -> tuple[Node, ...]:
        """A list."""
        node = self.get(key)
        if node is None or isinstance(node, Items):
            return node.items if node else ()
        hint = f"write `{key}: [{node.text}]`" if isinstance(node, Scalar) else ""
        self.faults.add(node, f"`{key}` is {_KIND_NAMES[type(node)]} where a list belongs", hint)
        return ()

    def count(self, key: str, default: int, least: int, most: int) -> int:
        """A whole number between two others."""
        node = self.scalar(key)
        if node is None:
            return default
        if not _WHOLE.fullmatch(node.text):
            self.faults.add(node, f"`{key}` is `{node.text}`, not a whole number")
            return default
        if not least <= int(node.text) <= most:
            self.faults.add(node, f"`{key}` is {node.text}, outside of {least} to {most}")
            return default
        return int(node.text)

    def decimal(self, key: str, default: float, most: float) -> float:
        """A number above 0, with up to three decimals."""
        node = self.scalar(key)
        if node is None:
            return default
        if _DECIMAL.fullmatch(node.text) and 0 < float(node.text) <= most:
            return float(node.text)
        message = f"`{key}` is `{node.text}`, not a number above 0 and up to {most:g}"
        self.faults.add(node, message, "write for example `2` or `0.5`")
        return default

    def duration(self, key: str, default: float | None) -> float | None:
        """Seconds; None: off."""
        node = self.scalar(key)
        if node is None:
            return default
        read = units.duration(node.text)
        if isinstance(read, units.Wrong):
            self.faults.add(node, f"`{key}`: {read.message}", read.hint)
            return default
        return None if isinstance(read, str) else read

    def size(self, key: str) -> int | None:
        """Bytes; None: unset."""
        node = self.scalar(key)
        if node is None:
            return None
        read = units.size(node.text)
        if isinstance(read, units.Wrong):
            self.faults.add(node, f"`{key}`: {read.message}", read.hint)
            return None
        return read

    def word(self, key: str, default: bool) -> bool:
        """Yes or no."""
        node = self.scalar(key)
        if node is None or node.text in _WORDS:
            return _WORDS[node.text] if node else default
        self.faults.add(node, f"`{key}` is `{node.text}`", "write `true` or `false`")
        return default


def as_scalar(node: Node | None, what: str, faults: Faults) -> Scalar | None:
    """The node, if it is a single value; else a fault."""
    if node is None or isinstance(node, Scalar):
        return node
    faults.add(node, f"{what} is {_KIND_NAMES[type(node)]} where a single value belongs")
    return None


def _hint(name: str, called: str) -> str:
    homes = [home for home, keys in KEYS.items() if name in keys]
    if homes:
        return f"`{name}` belongs inside {' or '.join(homes)}"
    if called == "a model" and name in _ELSEWHERE:
        return _ELSEWHERE[name]
    if near := nearest(name, KEYS[called]):
        return f"did you mean `{near}`?"
    for home, keys in KEYS.items():
        if near := nearest(name, keys):
            return f"did you mean `{near}`? It belongs inside {home}"
    return f"{called} knows {', '.join(KEYS[called])}"
