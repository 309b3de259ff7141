"""What differs between two catalogs, entry by entry, out of their canonical sources. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import Raw, Struct

from schemas import codec
from schemas.documents import CatalogPointer, CatalogRevision
from schemas.history import EntryChange, FieldChange, RevisionRow
from schemas.ids import ModelName
from services.fleet.state import Held
from services.fleet.telling.happened import Happened

Section = Literal["models", "engines"]


class Sections(Struct, frozen=True):
    """A catalog's source, its entries left as they are."""

    models: dict[str, Raw] = {}
    engines: dict[str, Raw] = {}


def sections(source: Raw) -> Sections:
    """Of a stored revision. One that cannot be read has no entries."""
    try:
        return codec.decode(source, Sections)
    except msgspec.DecodeError:
        return Sections()


def difference(old: Sections, new: Sections) -> tuple[EntryChange, ...]:
    """Engines, then models, each by name."""
    return (
        *_section("engines", old.engines, new.engines),
        *_section("models", old.models, new.models),
    )


def _section(
    section: Section, old: Mapping[str, Raw], new: Mapping[str, Raw]
) -> Iterator[EntryChange]:
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        if before is None or after is None:
            change: Literal["added", "removed"] = "added" if before is None else "removed"
            yield EntryChange(section=section, name=name, change=change)
        elif bytes(before) != bytes(after):
            fields = tuple(_fields("", before, after))
            yield EntryChange(section=section, name=name, change="changed", fields=fields)


def _fields(path: str, old: Raw, new: Raw) -> Iterator[FieldChange]:
    before, after = _object(old), _object(new)
    if before is None or after is None:
        yield FieldChange(path=path, old=_text(old), new=_text(new))
        return
    for key in sorted(before.keys() | after.keys()):
        one, other = before.get(key), after.get(key)
        deeper = f"{path}.{key}" if path else key
        if one is None or other is None:
            yield FieldChange(path=deeper, old=_text(one), new=_text(other))
        elif bytes(one) != bytes(other):
            yield from _fields(deeper, one, other)


def _text(value: Raw | None) -> str:
    return "" if value is None else bytes(value).decode()


def _object(value: Raw) -> dict[str, Raw] | None:
    try:
        return codec.decode(value, dict[str, Raw])
    except msgspec.DecodeError:
        return None


def revision_rows(
    kept: Sequence[Held[CatalogRevision]], current: int, swaps: Sequence[Happened]
) -> tuple[RevisionRow, ...]:
    """The newest first; `swaps` are the kept events of the pointer, which know who and why."""
    pointers: dict[int, tuple[Happened, CatalogPointer]] = {}
    for swap in swaps:
        if isinstance(swap.document, CatalogPointer):
            pointers.setdefault(swap.document.revision, (swap, swap.document))
    rows: list[RevisionRow] = []
    before = Sections()
    for held in sorted(kept, key=lambda held: held.document.revision):
        now = sections(held.document.source)
        rows.append(_row(held, held.document.revision == current, before, now, pointers))
        before = now
    return tuple(reversed(rows))


def _row(
    held: Held[CatalogRevision],
    current: bool,
    before: Sections,
    now: Sections,
    pointers: Mapping[int, tuple[Happened, CatalogPointer]],
) -> RevisionRow:
    revision = held.document.revision
    swap, pointer = pointers.get(revision, (None, None))
    changes = [each for each in difference(before, now) if each.section == "models"]

    def names(change: str) -> tuple[ModelName, ...]:
        return tuple(ModelName(each.name) for each in changes if each.change == change)

    return RevisionRow(
        revision=revision,
        current=current,
        seq=held.sequence if swap is None else swap.sequence,
        at=held.at,
        author="" if pointer is None else pointer.author,
        reason="" if pointer is None else pointer.reason,
        hash=held.document.hash,
        models=len(now.models),
        added=names("added"),
        removed=names("removed"),
        changed=names("changed"),
    )
