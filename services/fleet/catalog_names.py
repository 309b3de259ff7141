"""Names of models: each alone, and all of a catalog together. A client's word must mean one model."""

import re
import unicodedata

from msgspec import Struct

from schemas.ids import ModelName, Token, token
from services.fleet.catalog_tree import Entries, Faults, Items, Scalar, place

LONGEST_NAME = 128
_SPACE = re.compile(r"\s")


class _Taken(Struct, frozen=True):
    """Who has a name."""

    node: Scalar
    model: str
    alias: bool


def check_names(entries: list[tuple[Scalar, Entries]], faults: Faults) -> None:
    """Models' names first, so that an alias is the one at fault where the two meet."""
    taken = dict[str, _Taken]()
    tokens = dict[Token, Scalar]()
    for key, _ in entries:
        if _good(key, "a model's name", faults):
            _take(_Taken(key, key.text, alias=False), taken, faults)
            _check_token(key, tokens, faults)
    for key, node in entries:
        for alias in _aliases(node):
            if not _good(alias, "an alias", faults):
                continue
            if _same(alias.text) == _same(key.text):
                message = f"the alias `{alias.text}` is the model's own name ({place(key)})"
                faults.add(alias, message, "remove it")
            else:
                _take(_Taken(alias, key.text, alias=True), taken, faults)


def _aliases(node: Entries) -> list[Scalar]:
    entry = node.entries.get("aliases")
    items = entry.value.items if entry and isinstance(entry.value, Items) else ()
    return [item for item in items if isinstance(item, Scalar)]


def _good(name: Scalar, what: str, faults: Faults) -> bool:
    if not name.text.strip():
        faults.add(name, f"{what} is empty", "remove it, or give a name")
    elif _SPACE.search(name.text):
        hint = f"write `{_SPACE.sub('-', name.text.strip())}`"
        faults.add(name, f"`{name.text}` has a blank in it", hint)
    elif len(name.text) > LONGEST_NAME:
        message = f"{what} has {len(name.text)} characters; {LONGEST_NAME} at most"
        faults.add(name, message, "shorten it")
    elif name.text.startswith("-"):
        faults.add(name, f"`{name.text}` begins with `-`, like a flag", "begin with a letter")
    else:
        return True
    return False


def _same(name: str) -> str:
    """Equal for names that people take for one: large and small letters, forms of one letter."""
    return unicodedata.normalize("NFKC", name).casefold()


def _take(new: _Taken, taken: dict[str, _Taken], faults: Faults) -> None:
    old = taken.setdefault(_same(new.node.text), new)
    if old is not new:
        faults.add(new.node, f"{_called(new)} {_meets(new, old)}", _mend(new, old))


def _called(new: _Taken) -> str:
    return f"the alias `{new.node.text}` of `{new.model}`" if new.alias else f"`{new.node.text}`"


def _meets(new: _Taken, old: _Taken) -> str:
    twin = "" if new.node.text == old.node.text else f" but for the spelling `{old.node.text}`,"
    if not old.alias:
        return f"is{twin} the name of another model ({place(old.node)})"
    if old.model == new.model:
        return f"is{twin} twice in the list ({place(old.node)})"
    return f"is{twin} an alias of `{old.model}` too ({place(old.node)})"


def _mend(new: _Taken, old: _Taken) -> str:
    if new.alias:
        return "remove it here" if old.model == new.model else "remove it from one of the two"
    return "rename one of the two"


def _check_token(key: Scalar, tokens: dict[Token, Scalar], faults: Faults) -> None:
    old = tokens.setdefault(token(ModelName(key.text)), key)
    if old is not key and old.text != key.text:
        message = f"`{key.text}` and `{old.text}` ({place(old)}) share a subject in the log"
        faults.add(key, message, "rename one of the two")
