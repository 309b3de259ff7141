"""Is the log that is there the one that was here before? Asked at each opening, and every two seconds.

What counts as damage (`services.fleet.damage` has the rule, `services.log.identity` the questions,
this file what control alone can compare): LOG or STATE is
gone, another log id, a head below what this control or any beating agent or router has seen, STATE
ahead of LOG or of another log id, an unreadable genesis.

What one program alone says of the log is its own trouble where this control knows better: it had
followed this log before (`Seen.proven`), and all of that still stands. It is damage once two programs say
the same, or most of those that beat contradict. A control that knows no better believes anybody.

Then nothing is decided and nothing written,
also into a new log: what runs goes on, what is known is served, and `status` says what was found.
"""

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path

import structlog
from msgspec import DecodeError, Struct
from msgspec.structs import replace

from schemas import codec, subjects
from schemas.documents import Genesis
from schemas.ids import LogId, NodeId
from schemas.recovery import Damage
from services.fleet.damage import Found, Seen, damage, read_seen
from services.fleet.state import FleetState
from services.runtime.files import read_if_there, write_atomically

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class SeenFile:
    """This control's own memory of the log, on disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.seen = read_seen(read_if_there(path))
        self.trouble = ""
        """Why the disk did not take the last note; empty: it did."""
        self._written = self.seen
        self._since = self.beside("damaged-since")
        self._marking = asyncio.Lock()
        self.damaged_since = (read_if_there(self._since) or b"").decode(errors="replace")
        """When damage was found that still stands, RFC 3339; empty: there is none."""
        self._nodes = self.beside("nodes.json")
        self.nodes = _read_nodes(read_if_there(self._nodes))
        """Nodes that the log described when it was last followed."""

    def beside(self, name: str) -> Path:
        """Another file of this control's folder."""
        return self._path.with_name(name)

    async def mark(self, since: str) -> None:
        """Damage is told of from its beginning, over restarts. Empty: it is over."""
        async with self._marking:
            if since == self.damaged_since:
                return
            self.damaged_since = since
            try:
                await asyncio.to_thread(self._mark, since)
            except OSError as error:
                log.error("damage.not_remembered", path=str(self._since), reason=str(error))  # noqa: TRY400

    def _mark(self, since: str) -> None:
        if since:
            write_atomically(self._since, since.encode())
        else:
            self._since.unlink(missing_ok=True)

    async def remember(self, seen: Seen) -> None:
        """Written in a thread: it waits for the disk. A disk that refuses is asked again next time."""
        self.seen = seen
        if seen != self._written and await self._keep(self._path, codec.encode(seen)):
            self._written = seen

    async def remember_nodes(self, nodes: frozenset[NodeId]) -> None:
        """So that a recovery from agents can tell who is away. A disk that refuses: as above."""
        if nodes != self.nodes and await self._keep(self._nodes, codec.encode(sorted(nodes))):
            self.nodes = nodes

    async def _keep(self, path: Path, content: bytes) -> bool:
        try:
            await asyncio.to_thread(write_atomically, path, content)
        except OSError as error:
            if not self.trouble:
                log.error("log.not_remembered", path=str(path), reason=str(error))  # noqa: TRY400
            self.trouble = str(error)
            return False
        self.trouble = ""
        return True


def _read_nodes(content: bytes | None) -> frozenset[NodeId]:
    """A file that cannot be read counts as none."""
    try:
        return frozenset(codec.decode(content or b"[]", tuple[NodeId, ...]))
    except DecodeError:
        return frozenset()


class Reported(Struct, frozen=True):
    """What a beat says of the log that its sender follows."""

    who: str
    log: LogId | None
    highest: int


def judge(
    found: Found,
    state: FleetState,
    applied: int,
    reports: Iterable[Reported] = (),
) -> str | None:
    """Why the log must not be acted on; None: it may.

    `applied` (what the state was at) and `reports` are from before the look, as `found.seen` is: the
    log may have grown since.
    """
    seen = found.seen
    if found.missing:
        was = "" if seen is None else f"; log {seen.log} was followed to {seen.highest}"
        return None if seen is None and not applied else found.missing + was
    if (bad := state.unreadable.get(subjects.GENESIS)) is not None:
        return damage(found) or f"the genesis cannot be read: {bad.reason}"
    held = state.genesis.get(())
    in_state = None if held is None else held.document
    if _contradict(found.genesis, in_state):
        return f"LOG is log {_id(found.genesis)}, STATE is of log {_id(in_state)}"
    if found.head < applied:
        return f"LOG ends at {found.head}, STATE goes to {applied}"
    whole = replace(found, genesis=found.genesis or in_state)
    return damage(whole) or _believed(whole, list(reports))


def _contradict(in_log: Genesis | None, in_state: Genesis | None) -> bool:
    """After a recovery STATE is behind for some seconds, until the server has found LOG again."""
    if in_log is None or in_state is None or in_log == in_state:
        return False
    return not in_log.succeeds(in_state.log_id)


def _id(genesis: Genesis | None) -> str:
    return "" if genesis is None else genesis.log_id


class Claim(Struct, frozen=True):
    """What contradicts the log that is there."""

    who: str
    log: LogId
    """Two that name the same one say the same."""
    text: str

    @property
    def line(self) -> str:
        """For `status`, where it is not believed."""
        return f"{self.text}: not believed, nobody else says so"


def _believed(whole: Found, reports: list[Reported]) -> str | None:
    """What of the reports is damage."""
    claims = _claims(whole.genesis, whole.head, reports)
    if not claims or (_knows(whole) and not _proves(claims, reports)):
        return None
    return claims[0].text


def doubted(
    found: Found,
    state: FleetState,
    applied: int,
    reports: Sequence[Reported],
    before: tuple[Claim, ...] = (),
) -> tuple[Claim, ...]:
    """What programs say of a log that is judged sound, against what this control knows of it.

    `before`: what was doubted at the last look. It stays so once the log itself is damaged: what is
    left of it contradicts nobody.
    """
    if judge(found, state, applied) is not None:
        return before
    held = state.genesis.get(())
    whole = replace(found, genesis=found.genesis or (None if held is None else held.document))
    claims = _claims(whole.genesis, whole.head, reports)
    return tuple(claims) if _knows(whole) and not _proves(claims, reports) else ()


def _knows(whole: Found) -> bool:
    """Whether this control had followed the log before, and not only since it is as it is now."""
    seen, genesis = whole.seen, whole.genesis
    return seen is not None and seen.proven and genesis is not None and seen.log == genesis.log_id


def _proves(claims: list[Claim], reports: Sequence[Reported]) -> bool:
    said = [claim.log for claim in claims]
    follow = sum(report.log is not None for report in reports)
    return len(set(said)) < len(said) or 2 * len(said) > follow


def _claims(genesis: Genesis | None, head: int, reports: Iterable[Reported]) -> list[Claim]:
    told = [
        (report.who, report.log, _contradiction(genesis, head, report))
        for report in sorted(reports, key=lambda report: report.who)
    ]
    return [Claim(who, log_id, text) for who, log_id, text in told if text and log_id is not None]


def _contradiction(genesis: Genesis | None, head: int, report: Reported) -> str:
    """Empty: there is none."""
    if report.log is None:
        return ""
    if genesis is None:
        return f"{report.who} follows log {report.log}, here is none"
    if report.log == genesis.log_id:
        beyond = f"LOG ends at {head}, but {report.who} has seen {report.highest}"
        return beyond if report.highest > head else ""
    if genesis.succeeds(report.log):
        return ""
    return f"{report.who} follows log {report.log}, this is {genesis.log_id}"


def describe(reason: str, since: str, found: Found) -> Damage:
    """For `status`."""
    seen = found.seen
    return Damage(
        reason=reason,
        since=since,
        known_log="" if seen is None else seen.log,
        found_log="" if found.genesis is None else found.genesis.log_id,
        highest_known=0 if seen is None else seen.highest,
        head=found.head,
    )
