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
from schemas.ids import token
from services.fleet.families import Family, Key, family_of, read_document
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
            _, document = read_document(None if family is None else family[0], stored.payload)
        except (msgspec.DecodeError, ValueError) as error:
            return [*found, Finding(stored.sequence, "unreadable", f"{subject}: {error}")]
        reasons = {
            "unknown": _unknown(event) if is_state and document is None else "",
            "log": self._of_another_log(event, document),
            "writer": self._foreign(subject, event.src, family, document),
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
            self._log = log_prefix(document.log_id)
        if not self._log:
            self._log = event.log
            return "the log does not begin with its genesis" if self._whole else ""
        return "" if event.log == self._log else f"of log {event.log}, this is {self._log}"

    def _foreign(
        self,
        subject: str,
        source: str,
        family: tuple[Family, Key] | None,
        document: Document | None,
    ) -> str:
        role, name = _writer(subject, family)
        found, _, who = source.partition("/")
        if not role or (found == role and (not name or token(who) == name)):
            return ""
        if found == "control" and (isinstance(document, Gone) or self._recovering):
            return ""  # The leader retires what others wrote, and carries it over into a new log.
        return f"written by {source}, and is {role}{'/' if name else ''}{name}'s"

    def _superseded(self, event: Event, family: tuple[Family, Key] | None) -> str:
        if not event.src.startswith("control/") or _table(family) in ("epoch", "genesis"):
            return ""
        if not self._claimed:
            self._fence = max(self._fence, event.epoch)
        if event.epoch < self._fence:
            return f"decided under epoch {event.epoch}, which {self._fence} had superseded"
        if event.epoch > self._fence:
            return f"decided under epoch {event.epoch}, which nobody had claimed"
        return ""

    def _learn(
        self, sequence: int, family: tuple[Family, Key] | None, document: Document | None
    ) -> None:
        if isinstance(document, Genesis):
            self._recovering = document.parent is not None
        elif _table(family) == "catalog":
            self._recovering = False
        elif _table(family) == "epoch" and document is not None:
            self._fence, self._claimed = sequence, True


def _table(family: tuple[Family, Key] | None) -> str:
    return "" if family is None else family[0].table


def _unknown(event: Event) -> str:
    """Empty where a reader may skip it."""
    return "" if event.opt else f"{event.type} v{event.v} is not known to this version"


def _writer(subject: str, family: tuple[Family, Key] | None) -> tuple[str, str]:
    """Role, and token of its name where there is but one; empty: nobody knows."""
    if subject.startswith(HAPPENINGS):
        kind, _, name = subject.removeprefix(HAPPENINGS).partition(".")
        return {"command": ("control", ""), "usage": ("router", name)}.get(kind, ("", ""))
    if family is None:
        return "", ""
    if family[0].table in ("infos", "shards"):
        return "agent", family[1][0]
    return ("router", family[1][0]) if family[0].table == "routers" else ("control", "")


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
