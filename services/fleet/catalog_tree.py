"""What a catalog's text says, before any rule: words, lists and mappings, each with its place.

Both readers (YAML, JSON) make this one form, so that one set of rules serves both. Every value is
text: a bare `off` is the word, and `3` is read as a number only where a rule wants one.
"""

import json
from typing import NamedTuple, cast

from msgspec import Struct, structs

from schemas.frames import Fault
from services.fleet.unseen import UNSEEN, unseen

LONGEST_BYTES = 1024 * 1024
DEEPEST = 16
MOST_FAULTS = 200


class Scalar(Struct, frozen=True, kw_only=True):
    """One word or text."""

    path: str
    line: int = 0
    column: int = 0
    text: str
    blank: bool = False
    """Nothing was written, or a null: not the same as an empty text in quotes."""


class Items(Struct, frozen=True, kw_only=True):
    """A list."""

    path: str
    line: int = 0
    column: int = 0
    items: "tuple[Node, ...]"


class Entries(Struct, frozen=True, kw_only=True):
    """A mapping; its keys differ from one another."""

    path: str
    line: int = 0
    column: int = 0
    entries: "dict[str, Entry]"


class Entry(NamedTuple):
    """A key and its value."""

    key: Scalar
    value: "Node"


Node = Scalar | Items | Entries


class TooManyFaults(Exception):
    """Nobody reads more of them: reading ends."""


class Faults:
    """Collects every fault, so that all of them are told at once; raises TooManyFaults above 200."""

    def __init__(self, file: str = "") -> None:
        self.file = file
        self._found: dict[Fault, None] = {}
        """In order, each once: a value that is read twice is at fault twice."""

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, at: Node, message: str, hint: str = "") -> None:
        """A fault at the place of `at`."""
        self.add_at(at.line, at.column, message, hint, at.path)

    def add_at(self, line: int, column: int, message: str, hint: str = "", path: str = "") -> None:
        """A fault at a place that no node has."""
        shown = UNSEEN.sub("\ufffd", message)
        fault = Fault(file=self.file, line=line, column=column, path=path, message=shown, hint=hint)
        self._found[fault] = None
        if len(self._found) > MOST_FAULTS:
            raise TooManyFaults

    def all(self) -> tuple[Fault, ...]:
        """In order of place. The 200 that were found first, and that there are more."""
        told = list(self._found)[:MOST_FAULTS]
        ordered = sorted(told, key=lambda fault: (fault.line, fault.column))
        if len(self._found) <= MOST_FAULTS:
            return tuple(ordered)
        return (*ordered, Fault(file=self.file, message="and more faults, which are not told"))


def under(path: str, key: str) -> str:
    """The path of what stands under `key`."""
    return f"{path}.{key}" if path else key


def place(node: Node) -> str:
    """Where the other end of a collision stands, in words."""
    return f"line {node.line}" if node.line else node.path


def seen(node: Scalar, faults: Faults) -> Scalar:
    """The scalar without characters that nobody sees; each is a fault.

    They make one value look like another on a terminal, or cut an argument short.
    """
    message = unseen(node.text)
    if not message:
        return node
    clean = structs.replace(node, text=UNSEEN.sub("\ufffd", node.text))
    faults.add(clean, message, "remove it: every value is one line of visible text")
    return clean


def read_json(raw: bytes, faults: Faults) -> Node | None:
    """The tree of a JSON text, or None and a fault."""
    if len(raw) > LONGEST_BYTES:
        faults.add_at(0, 0, f"{len(raw)} bytes are more than a catalog may have")
        return None
    try:
        # Not msgspec: it keeps the last of two equal keys without a word.
        value = json.loads(
            raw, object_pairs_hook=_Pairs, parse_int=str, parse_float=str, parse_constant=str
        )
        return _from_builtins(value, "", 0, faults)
    except (ValueError, RecursionError) as error:
        faults.add_at(0, 0, f"this is no JSON: {error}")
        return None


class _Pairs(list[tuple[str, object]]):
    """A JSON object with all of its keys, also equal ones."""


def _from_builtins(value: object, path: str, depth: int, faults: Faults) -> Node:
    if depth > DEEPEST:
        faults.add_at(0, 0, f"more than {DEEPEST} levels deep", path=path)
        return Scalar(path=path, text="", blank=True)
    if isinstance(value, _Pairs):
        return _from_pairs(value, path, depth, faults)
    if isinstance(value, list):
        parts = enumerate(cast("list[object]", value))
        nodes = (_from_builtins(part, f"{path}[{n}]", depth + 1, faults) for n, part in parts)
        return Items(path=path, items=tuple(nodes))
    return seen(Scalar(path=path, text=_text(value), blank=value is None), faults)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else ""


def _from_pairs(pairs: _Pairs, path: str, depth: int, faults: Faults) -> Entries:
    entries: dict[str, Entry] = {}
    for written, value in pairs:
        name = seen(Scalar(path=path, text=written), faults).text
        key = Scalar(path=under(path, name), text=name)
        if name in entries:
            faults.add(key, f"`{name}` is written twice", "keep one of the two")
        entries.setdefault(name, Entry(key, _from_builtins(value, key.path, depth + 1, faults)))
    return Entries(path=path, entries=entries)
