"""What must hold of LOG, event by event. Pure.

Sequences without a gap; every payload reads; the writer fits the subject; one log id, until a genesis
goes on from it; no decision of a leader that had been superseded.
"""

import hashlib
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from schemas import codec, subjects
from schemas.documents import Document, Genesis, Gone
from schemas.events import Event, log_prefix
from services.fleet.families import (
    Found,
    NotItsWriter,
    family_of,
    is_writer,
    read_document,
    writer_of,
)
from services.log.stored import Stored

HAPPENINGS = "flotilla.log.e."


class Finding(Struct, frozen=True):
    """What is wrong, and where."""

    sequence: int
    kind: str
    reason: str


class Last(Struct, frozen=True, gc=False):
    """The last message of a subject."""

    sequence: int
    digest: bytes


def last_of(stored: Stored) -> Last:
    """To compare it by, without its payload."""
    digest = hashlib.blake2b(stored.payload, digest_size=16).digest()
    return Last(stored.sequence, digest)


class Checker:
    """Given LOG's messages in order. Holds a few bytes a subject, whatever LOG's length."""

    def __init__(self, first: int) -> None:
        """`first`: the sequence that comes first."""
        self.events = 0
        self.last: dict[str, Last] = {}
        """Of state subjects."""
        self._whole = first <= 1
        """It begins with the log: there are no claims before it."""
        self._next = first
        self._log = ""
        self._earlier: set[str] = set()
        """Logs that this one goes on from."""
        self._fence = 0
        self._claimed = self._whole
        self._recovering = False

    def check(self, stored: Stored) -> list[Finding]:
        """What is wrong with the next message."""
        self.events += 1
        subject, found = stored.subject, self._gap(stored.sequence)
        is_state = subject.startswith(subjects.STATE_ROOT)
        if is_state:
            self.last[subject] = last_of(stored)
        family = family_of(subject) if is_state else None
        try:
            event = codec.decode_event(stored.payload)
            _, document = read_document(family, stored.payload)
        except NotItsWriter as error:
            return [*found, Finding(stored.sequence, "writer", f"{subject}: {error}")]
        except (msgspec.DecodeError, ValueError) as error:
            return [*found, Finding(stored.sequence, "unreadable", f"{subject}: {error}")]
        reasons = {
            "unknown": _unknown(event) if is_state and document is None else "",
            "log": self._of_another_log(event, document),
            "writer": self._foreign(event.src, family, document)
            if is_state
            else _not_its_happening(subject, event.src),
            "epoch": self._superseded(event, family),
        }
        self._learn(stored.sequence, family, document)
        return [
            *found,
            *(
                Finding(stored.sequence, kind, f"{subject}: {r}")
                for kind, r in reasons.items()
                if r
            ),
        ]

    def end(self, last: int) -> list[Finding]:
        """What is wrong once all up to `last` has been given."""
        return self._gap(last + 1)

    def _gap(self, sequence: int) -> list[Finding]:
        first, self._next = self._next, sequence + 1
        if sequence == first:
            return []
        missing = f"{first} to {sequence - 1}" if sequence - 1 > first else f"{first}"
        return [Finding(first, "gap", f"LOG does not hold {missing}")]

    def _of_another_log(self, event: Event, document: Document | None) -> str:
        if isinstance(document, Genesis):
            earlier = {log_prefix(log) for log in (document.parent, *document.ancestors) if log}
            if self._log and self._log not in earlier:
                return f"genesis of log {document.log_id}, which does not go on from {self._log}"
            self._log, self._earlier = log_prefix(document.log_id), earlier
        if event.log in self._earlier and not event.src.startswith("control/"):
            return ""  # Of who had not moved over yet; the state sets it aside, and its writer writes anew.
        if not self._log:
            self._log = event.log
            return "the log does not begin with its genesis" if self._whole else ""
        return "" if event.log == self._log else f"of log {event.log}, this is {self._log}"

    def _foreign(self, source: str, family: Found | None, document: Document | None) -> str:
        """What control wrote of others. What others wrote, the reading has held against its subject."""
        if family is None or is_writer(family[0].writer, family[1], source):
            return ""
        if isinstance(document, Gone) or self._recovering:
            return ""  # The leader retires what others wrote, and carries it over into a new log.
        return f"written by {source}, and is {writer_of(family)}'s"

    def _superseded(self, event: Event, family: Found | None) -> str:
        if not event.src.startswith("control/") or _table(family) in ("epoch", "genesis"):
            return ""
        if not self._claimed:
            self._fence = max(self._fence, event.epoch)
        if event.epoch < self._fence:
            return f"decided under epoch {event.epoch}, which {self._fence} had superseded"
        if event.epoch > self._fence:
            return f"decided under epoch {event.epoch}, which nobody had claimed"
        return ""

    def _learn(self, sequence: int, family: Found | None, document: Document | None) -> None:
        if isinstance(document, Genesis):
            self._recovering = document.parent is not None
        elif _table(family) == "catalog":
            self._recovering = False
        elif _table(family) == "epoch" and document is not None:
            self._fence, self._claimed = sequence, True


def _table(family: Found | None) -> str:
    return "" if family is None else family[0].table


def _unknown(event: Event) -> str:
    """Empty where a reader may skip it."""
    return "" if event.opt else f"{event.type} v{event.v} is not known to this version"


def _not_its_happening(subject: str, source: str) -> str:
    kind, _, name = subject.removeprefix(HAPPENINGS).partition(".")
    if kind == "command" and not is_writer("control", (), source):
        return f"written by {source}, and is control's"
    if kind == "usage" and not is_writer("router", (name,), source):
        return f"written by {source}, and is router/{name}'s"
    return ""


def compare(last: dict[str, Last], state: Iterable[Stored], first: int, head: int) -> list[Finding]:
    """LOG from `first` to `head` against STATE, which may have gone on since."""
    found: list[Finding] = []
    standing = {each.subject: each for each in state}
    for subject, each in last.items():
        there = standing.get(subject)
        if there is None:
            reason = f"{subject}: LOG's last document is not in STATE"
            found.append(Finding(each.sequence, "state", reason))
        elif there.sequence <= head and last_of(there) != each:
            reason = f"{subject}: STATE holds {there.sequence}, or other bytes"
            found.append(Finding(each.sequence, "state", reason))
    for subject, there in standing.items():
        if subject not in last and first <= there.sequence <= head:
            reason = f"{subject}: STATE holds what LOG does not"
            found.append(Finding(there.sequence, "state", reason))
    return found
