"""YAML text as a catalog tree and back. The only file that knows YAML.

It reads parser events, not PyYAML's own nodes: depth and repeated anchors are bounded while
reading, equal keys are seen, and a scalar keeps its text.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn

import msgspec
import yaml

from services.fleet.catalog_source import Source, Value
from services.fleet.catalog_tree import (
    DEEPEST,
    LONGEST_BYTES,
    Entries,
    Entry,
    Faults,
    Items,
    Node,
    Scalar,
    seen,
    under,
)

MOST_COPIED = 10_000
_BLANK = frozenset({"", "~", "null", "Null", "NULL"})
_UNREADABLE = re.compile(
    "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
_STRAY_BACKSLASH = re.compile(r"\\[ \t]*$")
_HINTS = {
    "mapping values are not allowed": "line it up with the line above, or put a value that holds `: ` in quotes",
    "did not find expected ',' or": "close it, with a comma between its parts",
    "did not find expected key": "line up the keys of one mapping below each other",
    "did not find expected '-' indicator": "line up the dashes of one list below each other",
    "unexpected end of stream": "close the quote",
    "unknown escape character": r"write `\\` for a backslash, or use single quotes",
    "could not find expected ':'": "write `key: value`",
}


class _Stop(Exception):
    """Reading cannot go on; the fault is noted."""


def read_yaml(text: str | bytes, faults: Faults) -> Node | None:
    """The tree of a YAML text, or None and a fault. Faults may come with a tree, too."""
    try:
        return _Reader(_checked(text, faults), faults).document()
    except _Stop:
        return None


def _checked(text: str | bytes, faults: Faults) -> str:
    """The text as a YAML parser may have it."""
    length = len(text) if isinstance(text, bytes) else len(text.encode(errors="replace"))
    if length > LONGEST_BYTES:
        _stop(faults, 1, 1, f"{length} bytes are more than a catalog may have", "1 MiB at most")
    if isinstance(text, bytes):
        text = text.decode(errors="surrogateescape")
    text = text.removeprefix("\ufeff")
    if found := _UNREADABLE.search(text):
        _unreadable(text, found.start(), faults)
    return text


def _unreadable(text: str, at: int, faults: Faults) -> NoReturn:
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    escaped = "\udc80" <= text[at] <= "\udcff"  # How surrogateescape marks a byte.
    what = "not UTF-8" if escaped else f"the character U+{ord(text[at]):04X}"
    _stop(faults, line, column, f"this is no text: {what}", "save it as UTF-8 text")


def _stop(faults: Faults, line: int, column: int, message: str, hint: str = "") -> NoReturn:
    faults.add_at(line, column, message, hint)
    raise _Stop


class _Reader:
    def __init__(self, text: str, faults: Faults) -> None:
        self._events = self._parse(text)
        self._lines = re.split("\r\n|[\n\r\x85\u2028\u2029]", text)
        self._faults = faults
        self._anchors: dict[str, Node | None] = {}
        self._copied = 0

    def _parse(self, text: str) -> Iterator[yaml.Event]:
        try:
            yield from yaml.parse(text, Loader=yaml.CSafeLoader)
        except yaml.MarkedYAMLError as error:
            self._syntax(error)
        except yaml.YAMLError as error:
            _stop(self._faults, 1, 1, f"this is no YAML: {error}")

    def _syntax(self, error: yaml.MarkedYAMLError) -> NoReturn:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line, mark.column) if mark else (0, 0)
        problem = str(error.problem or error)
        hint = next((hint for known, hint in _HINTS.items() if known in problem), "")
        if "cannot start any token" in problem and line < len(self._lines):
            found = self._lines[line][column : column + 1]
            problem, hint = _bad_start(found)
        if error.context_mark and error.context_mark.line != line:
            problem += f", {error.context} that begins in line {error.context_mark.line + 1}"
        _stop(self._faults, line + 1, column + 1, f"this is no YAML: {problem}", hint)

    def document(self) -> Node | None:
        """The one document of the text."""
        root: Node | None = None
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    hint = "one file, one catalog: remove the `---`"
                    _stop(self._faults, *_at(event), "a second document", hint)
            elif isinstance(event, yaml.NodeEvent):
                root = self._node(event, "", 0)
        if root is None:
            self._faults.add_at(1, 1, "this is empty", "a catalog without models is `models: {}`")
        return root

    def _node(self, event: yaml.Event, path: str, depth: int) -> Node:
        line, column = _at(event)
        if depth > DEEPEST:
            _stop(self._faults, line, column, f"more than {DEEPEST} levels deep")
        match event:
            case yaml.AliasEvent():
                return self._copy_of(event, path)
            case yaml.ScalarEvent():
                self._open(event, event.tag, path)
                node: Node = self._scalar(event, path)
            case yaml.SequenceStartEvent():
                self._open(event, event.tag, path)
                node = self._items(event, path, depth)
            case yaml.MappingStartEvent():
                self._open(event, event.tag, path)
                node = self._entries(event, path, depth)
            case _:
                raise AssertionError("a parser gives no other event where a value begins")
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _open(self, event: yaml.NodeEvent, tag: str | None, path: str) -> None:
        if tag is not None:
            line, column = _at(event)
            message = f"the tag `{tag}` means nothing here"
            self._faults.add_at(line, column, message, "remove it", path)
        if event.anchor is not None:
            self._anchors[event.anchor] = None  # Not whole yet: it cannot hold itself.

    def _scalar(self, event: yaml.ScalarEvent, path: str) -> Scalar:
        line, column = _at(event)
        text = event.value.removesuffix("\n") if event.style in ("|", ">") else event.value
        blank = not event.style and event.value in _BLANK
        scalar = Scalar(path=path, line=line, column=column, text=text, blank=blank)
        if event.style != '"' and self._continued(event, path):
            return scalar
        return seen(scalar, self._faults)

    def _continued(self, event: yaml.ScalarEvent, path: str) -> bool:
        r"""Whether a shell's `\` ends one of its lines; that is told where it stands."""
        for number, text in self._written(event):
            if found := _STRAY_BACKSLASH.search(text):
                message = r"`\` at the end of a line is a part of the value, not a line end"
                column = found.start() + 1
                self._faults.add_at(number, column, message, r"remove the `\`", path)
                return True
        return False

    def _written(self, event: yaml.ScalarEvent) -> Iterator[tuple[int, str]]:
        """The lines that hold the scalar, as far as its own text ends them."""
        start, end = event.start_mark, event.end_mark
        if start is None or end is None:
            return
        for index in range(start.line, min(end.line + 1, len(self._lines))):
            text = self._lines[index]
            if index < end.line or not text[end.column :].strip():
                yield index + 1, text if index < end.line else text[: end.column]

    def _items(self, start: yaml.Event, path: str, depth: int) -> Items:
        line, column = _at(start)
        nodes: list[Node] = []
        for event in self._events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            nodes.append(self._node(event, f"{path}[{len(nodes)}]", depth + 1))
        return Items(path=path, line=line, column=column, items=tuple(nodes))

    def _entries(self, start: yaml.Event, path: str, depth: int) -> Entries:
        line, column = _at(start)
        entries: dict[str, Entry] = {}
        for event in self._events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            key = self._key(event, path, depth)
            value = self._node(next(self._events), key.path, depth + 1)
            if key.text in entries:
                first = entries[key.text].key.line
                message = f"`{key.text}` is written twice: in line {first} and in line {key.line}"
                self._faults.add(key, message, "keep one of the two")
            entries.setdefault(key.text, Entry(key, value))
        return Entries(path=path, line=line, column=column, entries=entries)

    def _key(self, event: yaml.Event, path: str, depth: int) -> Scalar:
        key = self._node(event, path, depth + 1)
        if not isinstance(key, Scalar):
            self._faults.add(key, "a key must be one word", "write `key: value`")
            return Scalar(path=path, line=key.line, column=key.column, text="", blank=True)
        if key.text == "<<":
            self._faults.add(
                key,
                "`<<` does not merge here",
                "repeat the keys, or use an anchor on a whole value",
            )
        return msgspec.structs.replace(key, path=under(path, key.text))

    def _copy_of(self, event: yaml.AliasEvent, path: str) -> Node:
        line, column = _at(event)
        node = self._anchors.get(event.anchor or "")
        if node is None:
            known = event.anchor in self._anchors
            why = "stands inside itself" if known else "names no anchor above it"
            _stop(self._faults, line, column, f"`*{event.anchor}` {why}")
        return self._moved(node, path, event)

    def _moved(self, node: Node, path: str, alias: yaml.Event) -> Node:
        """The anchor's value under another path; its places stay where it was written."""
        self._copied += 1
        if self._copied > MOST_COPIED:
            _stop(self._faults, *_at(alias), f"anchors repeat more than {MOST_COPIED} values")
        match node:
            case Scalar():
                return msgspec.structs.replace(node, path=path)
            case Items():
                items = [
                    self._moved(item, f"{path}[{i}]", alias) for i, item in enumerate(node.items)
                ]
                return msgspec.structs.replace(node, path=path, items=tuple(items))
            case Entries():
                moved: dict[str, Entry] = {}
                for name, (key, value) in node.entries.items():
                    below = under(path, name)
                    key = msgspec.structs.replace(key, path=below)
                    moved[name] = Entry(key, self._moved(value, below, alias))
                return msgspec.structs.replace(node, path=path, entries=moved)


def _at(event: yaml.Event) -> tuple[int, int]:
    mark = event.start_mark
    return (mark.line + 1, mark.column + 1) if mark else (0, 0)


def _bad_start(found: str) -> tuple[str, str]:
    if found == "\t":
        return "a tab cannot indent", "indent with spaces"
    return f"a value cannot begin with `{found}`", "put the value in quotes"


_BARE = re.compile(r"[A-Za-z0-9/_.][A-Za-z0-9/_.-]*")


def write_yaml(source: Source) -> str:
    """One key of an entry a line, what is below it in braces."""
    lines: list[str] = []
    for section, entries in source.items():
        lines.append(f"{section}:" if entries else f"{section}: {{}}")
        for name, keys in entries.items():
            lines.append(f"  {_word(name)}:")
            lines.extend(f"    {_word(key)}: {_flow(value)}" for key, value in keys.items())
    return "\n".join(lines) + "\n"


def _flow(value: Value) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_word(key)}: {_flow(part)}" for key, part in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(_flow(part) for part in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return _word(str(value))


def _word(text: str) -> str:
    """A bare word where no YAML reader takes it for something else; else in double quotes."""
    bare = _BARE.fullmatch(text) and text not in _BLANK
    return text if bare else msgspec.json.encode(text).decode()
