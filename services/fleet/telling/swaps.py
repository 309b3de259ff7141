"""Which swaps of the catalog changed a model: its entry, or that of its engine. Pure.

A swap's own event names a revision, and what stands in that is read from the log, too. Of a revision
that is not kept nothing is known: it counts as one without the model.
"""

from collections.abc import Sequence
from itertools import pairwise

import msgspec
from msgspec import Struct

from schemas import codec, subjects
from schemas.documents import CatalogPointer, CatalogRevision, CommandRecord
from schemas.ids import ModelName
from services.fleet.telling.asking import Asking, Past
from services.fleet.telling.catalog_diff import Sections, sections
from services.fleet.telling.happened import Happened

MOST_SWAPS = 200
"""Looked through, the newest first, for the last one that changed a model."""


class _Entry(Struct, frozen=True):
    engine: str = ""


def last_swap(model: ModelName) -> Asking[Happened | None]:
    """The newest one that changed it."""
    swaps = yield Past((subjects.CATALOG,))
    for before, swap in reversed(list(pairwise([None, *swaps]))[-MOST_SWAPS:]):
        if swap is not None and (yield from _differs(model, before, swap)):
            return swap
    return None


def refused_since() -> Asking[str]:
    """In words: that the last command about the catalog was refused. Empty: it was not."""
    commands = yield Past((subjects.command("apply"), subjects.command("rollback")))
    last = commands[-1] if commands else None
    if last is None or last.event is None or not isinstance(last.document, CommandRecord):
        return ""
    if last.document.outcome != "refused":
        return ""
    record = last.document
    return (
        f"the last {record.verb} was refused, at {last.event.at} (sequence {last.sequence:,}): "
        f"{record.detail}"
    )


def touches(swap: Happened, model: ModelName) -> Asking[bool]:
    """Whether a swap changed it."""
    swaps: Sequence[Happened] = yield Past((subjects.CATALOG,))
    earlier = [found for found in swaps if found.sequence < swap.sequence]
    return (yield from _differs(model, earlier[-1] if earlier else None, swap))


def _differs(model: ModelName, before: Happened | None, swap: Happened) -> Asking[bool]:
    return (yield from _wanted(model, before)) != (yield from _wanted(model, swap))


def _wanted(model: ModelName, swap: Happened | None) -> Asking[tuple[bytes, bytes] | None]:
    """What a swap wants of the model and of its engine; None: nothing."""
    if swap is None or not isinstance(swap.document, CatalogPointer):
        return None
    stored = yield Past((subjects.catalog_revision(swap.document.revision),))
    revision = swap.document.revision
    source = Sections()
    for found in stored:  # Revisions share subjects.
        if isinstance(found.document, CatalogRevision) and found.document.revision == revision:
            source = sections(found.document.source)
    entry = source.models.get(model)
    if entry is None:
        return None
    try:
        engine = source.engines.get(codec.decode(entry, _Entry).engine)
    except msgspec.DecodeError:
        engine = None
    return bytes(entry), b"" if engine is None else bytes(engine)
