"""Who puts right what stands on a subject and cannot be read: its writer, an operator, or nobody. Pure.

One rule for the list of such documents, for the status page and for the command that mends them: what is
offered is taken, and what is refused is offered nowhere.

What control writes is mended by writing the last good value anew, or by retiring the entity. What an
agent or a router writes it puts right by itself while it runs, also in slots that it does not use; nobody
writes a value there in its place. It may be retired where nothing that was decided can stand behind it, or
where nobody would come to put it right.
"""

import shlex
from collections.abc import Iterable
from functools import cached_property

from msgspec import Struct

from schemas import subjects
from schemas.documents import Gone
from schemas.ids import ReplicaId, Token, token
from schemas.recovery import Putting
from services.fleet.families import Key, family_of
from services.fleet.state import FleetState

VERB = "flotilla journal mend"
SOON = "within a minute"
"""So long after it began to run, and so often, an agent or a router looks at what stands under its
name."""


class Remedy(Struct, frozen=True):
    """What puts a subject right."""

    ways: tuple[Putting, ...] = ()
    """What mending takes, the best first."""
    command: str = ""
    """What an operator may type, and is not refused; empty: there is nothing."""
    waits: str = ""
    """Who puts it right without, and when; empty: nobody."""

    @property
    def told(self) -> str:
        """In one line."""
        return ", else: ".join(part for part in (self.waits, self.command) if part)


def writer_of(subject: str) -> str:
    """Who writes there: `control`, `agent <node>`, `router <router>`, or `nobody` known."""
    found = family_of(subject)
    if found is None:
        return "nobody"
    family, key = found
    return family.writer if family.writer == "control" else f"{family.writer} {key[0]}"


class Remedies:
    """For one state, as long as it is not changed: what is looked up is looked up once."""

    def __init__(self, state: FleetState) -> None:
        self._state = state

    def of(self, subject: str) -> Remedy:
        """Of a subject whose last message cannot be read."""
        ways = self._ways(subject)
        return Remedy(ways, _command(subject, ways), self._waits(subject, ways))

    def _ways(self, subject: str) -> tuple[Putting, ...]:
        found, kept = family_of(subject), self._state.held(subject) is not None
        if found is None:
            return ("last-good", "gone") if kept else ("gone",)
        family, key = found
        match family.table:
            case "genesis" | "epoch":
                return ()
            case "infos" | "shards":
                return ("gone",) if self._is_free(subject, key) else ()
            case "routers":
                return ("gone",)  # At worst it is unknown for how long nobody used what it serves.
            case "catalog" | "assignments" | "brake" if kept:
                return ("last-good",)
            case "catalog":
                return ()
            case "assignments":
                return ("gone",) if self._can_be_told_anew(Token(key[0])) else ()
            case _:
                return ("last-good", "gone") if kept else ("gone",)

    def _waits(self, subject: str, ways: tuple[Putting, ...]) -> str:
        if subject == subjects.CONTROL_EPOCH:
            return "the control that leads next writes it anew"
        found = family_of(subject)
        if found is None:
            return ""
        family, key = found
        if family.table == "assignments" and not ways:
            return "its node is left as it is: what it was told cannot be made again"
        if family.writer == "control" or (family.writer == "agent" and self._is_nobody(key)):
            return ""
        return f"{writer_of(subject)}, where it runs, puts it right {SOON}"

    def _is_nobody(self, key: Key) -> bool:
        """No agent describes the node, or it was removed."""
        state, info = self._state, f"{subjects.STATE_ROOT}node.{key[0]}.info"
        return (key[0],) not in state.infos and not self._is_lost(info)

    def _is_lost_node(self, key: Key) -> bool:
        held = self._state.verdicts.get((key[0],))
        return held is not None and held.document.condition == "lost"

    def _is_free(self, subject: str, key: Key) -> bool:
        """Its agent will not come, or has nothing to tell there."""
        if self._is_nobody(key) or self._is_lost_node(key):
            return True
        node, held = Token(key[0]), self._state.held(subject)
        if held is not None and not isinstance(held.document, Gone):
            return False
        if self._is_lost(f"{subjects.STATE_ROOT}assignment.{node}"):
            return False  # Nobody knows what it was told.
        decided = self._planned.get(node, set()) | self._assigned(node)
        reported = self._reported.get(node, {})
        if len(key) > 1:  # A slot; whoever has a document has no other.
            return decided <= reported.keys()
        return not decided and all(phase == "stopped" for phase in reported.values())

    def _is_lost(self, subject: str) -> bool:
        state = self._state
        bad = state.is_set_aside(subject)
        return bad and state.held(subject) is None

    def _assigned(self, node: Token) -> set[ReplicaId]:
        held = self._state.assignments.get((node,))
        return set() if held is None else {shard.replica for shard in held.document.shards}

    def _can_be_told_anew(self, node: Token) -> bool:
        """Control, which no longer knows what the node was told, would tell it the same."""
        state, planned = self._state, self._planned.get(node, set())
        if any(map(self._is_lost, self._bad_replicas)):
            return False
        kept = {held.document.revision for held in state.revisions.values()}
        replicas = [held.document for held in map(state.replica, planned) if held is not None]
        reported = self._reported.get(node, {})
        return (
            all(replica.revision in kept for replica in replicas)
            and all(state.info(plan.node) is not None for each in replicas for plan in each.shards)
            and all(name in planned for name, phase in reported.items() if phase != "stopped")
        )

    @cached_property
    def _bad_replicas(self) -> Iterable[str]:
        start = subjects.ALL_REPLICAS.removesuffix(">")
        bad = (*self._state.unreadable, *self._state.unknown)
        return tuple(subject for subject in bad if subject.startswith(start))

    @cached_property
    def _planned(self) -> dict[Token, set[ReplicaId]]:
        """Replicas that were decided, by the nodes that are to run them."""
        found: dict[Token, set[ReplicaId]] = {}
        for held in self._state.replicas.values():
            for plan in held.document.shards:
                found.setdefault(token(plan.node), set()).add(held.document.id)
        return found

    @cached_property
    def _reported(self) -> dict[Token, dict[ReplicaId, str]]:
        """Phases that agents tell, by node."""
        found: dict[Token, dict[ReplicaId, str]] = {}
        for (node, _), held in self._state.shards.items():
            found.setdefault(Token(node), {})[held.document.replica] = held.document.phase
        return found


def _command(subject: str, ways: tuple[Putting, ...]) -> str:
    if subject == subjects.GENESIS:
        return "flotilla journal recover"
    if not ways:
        return "flotilla catalog apply FILE" if subject == subjects.CATALOG else ""
    gone = " --gone" if ways[0] == "gone" else ""
    return f"{VERB} {shlex.quote(subject)}{gone}"
