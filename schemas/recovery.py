"""Frames of what follows damage: the ways out of a lost log, and documents to put right."""

from typing import Literal

from msgspec import Struct

from schemas.frames import Frame
from schemas.ids import LogId, NodeId
from schemas.texts import FileName, Prune, Reason, Subject, Without

Way = Literal["memory", "log", "agents"]
"""What a new log is begun from: what control held, what stands in NATS, what agents run."""
Putting = Literal["last-good", "gone"]


class Damage(Struct, frozen=True, kw_only=True, rename="camel"):
    """The log is not the one that was here before. Nothing is stopped; nothing is decided."""

    reason: str
    since: str
    known_log: str = ""
    found_log: str = ""
    highest_known: int = 0
    head: int = 0


class WayOut(Struct, frozen=True, kw_only=True, rename="camel"):
    """One way to go on."""

    way: Way
    impossible: str = ""
    """Not empty: it cannot be taken, and why."""
    log: str = ""
    sequence: int = 0
    """How far that log is known this way."""
    revision: int = 0
    """Of its catalog; 0: it knows none, and one must be given."""
    models: int = 0
    replicas: int = 0
    nodes: int = 0
    away: tuple[NodeId, ...] = ()
    """Nodes of the lost log that do not beat, and of which nothing is known this way: they must be named
    to go on without them."""
    unsure: str = ""
    """Not empty: there may be others, and why that is not known."""
    command: str = ""


class Moving(Struct, frozen=True, kw_only=True, rename="camel"):
    """A recovery under way: a new log is begun, and nothing is decided before it has a catalog."""

    log: LogId
    parent: str
    told: str = ""
    """What it is made from; empty: this control has nothing to go on with, a way must be chosen again."""
    moved: tuple[str, ...] = ()
    """Nodes that have told the new log all that they run."""
    waits_for: tuple[str, ...] = ()
    """What it waits for, one line each."""


class Recovery(Frame, frozen=True, kw_only=True, tag="Recovery"):
    """What is known of a lost log, and how to go on. Neither `damage` nor `moving`: the log is sound."""

    damage: Damage | None = None
    moving: Moving | None = None
    running: dict[str, int]
    """Replicas that agents run, by model."""
    ways: tuple[WayOut, ...] = ()


class Recover(Struct, frozen=True, kw_only=True, rename="camel"):
    """Begin a new log in the place of the lost one."""

    way: Way
    catalog: str | None = None
    """YAML text; None: the one that was known."""
    file: FileName = ""
    """Its name, for the places of faults."""
    prune: Prune = ()
    """Models whose engines may end."""
    without: Without = ()
    """Nodes that are away and are gone on without; what they run is taken over when they return."""
    reason: Reason = ""


class BadDocument(Struct, frozen=True, kw_only=True, rename="camel"):
    """A subject whose last message this version does not read."""

    subject: str
    sequence: int
    reason: str
    writer: str
    """Who writes there: `control`, `agent <node>`, `router <router>`, or `nobody` known."""
    last_good: int = 0
    """LOG sequence of what is in force instead; 0: nothing."""
    optional: bool = False
    """Of a newer version, marked as one that may be skipped."""
    command: str = ""
    """What puts it right; empty: nothing that an operator could type."""
    waits: str = ""
    """Who puts it right without, and when; empty: nobody."""


class BadDocuments(Frame, frozen=True, kw_only=True, tag="BadDocuments"):
    """Everything that cannot be read."""

    items: tuple[BadDocument, ...]


class Mend(Struct, frozen=True, kw_only=True, rename="camel"):
    """Put a document right."""

    subject: Subject
    to: Putting = "last-good"
    reason: Reason = ""
