"""Who may say and hear what on NATS: the subject table as data, a role at a time. Pure.

Agents and routers get their documents by direct gets whose subject stands in the API's own subject,
and by pushes: never a consumer, since whoever may create one may have the server deliver stored
messages under any subject that somebody listens to. Operators may; what keeps them from writing that
way is that nobody but an administrator may listen to a subject of the log itself.

What this cannot keep out: an operator may have a stored message delivered to any program, where it is
no beat and no answer; an agent may fill its own subjects, hold atomic batches open, or name the
epoch's subject as the guard of its own write, which delays the leader and decides nothing; and whoever
may ask for a stream's state may ask for the names of its subjects.
"""

import re
from typing import Literal, get_args

from msgspec import Struct

from schemas import subjects

Role = Literal["control", "agent", "router", "operator", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
NAMED: tuple[Role, ...] = ("agent", "router", "operator")
"""Roles with one user a name; the others are one user each."""

_NAME = re.compile(r"[a-z0-9-]{1,48}")
_STREAMS = (subjects.LOG, subjects.STATE, subjects.TAILS, subjects.CHECKPOINT)
_READ = (subjects.LOG, subjects.STATE)
_API = "$JS.API."


class Rights(Struct, frozen=True, kw_only=True):
    """What one user may do. Nothing else is allowed."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    answers: bool = False
    """May answer a request that it was allowed to hear, wherever the answer is awaited."""


class User(Struct, frozen=True, order=True):
    """One user of NATS."""

    role: Role
    name: str = ""
    """Token of the node, the router or the person; empty for roles that are one user."""

    @property
    def text(self) -> str:
        """What NATS knows it by; its inbox is `_INBOX.` and this."""
        return f"{self.role}.{self.name}" if self.name else self.role

    @property
    def rights(self) -> Rights:
        """By its role and name alone."""
        return _RIGHTS[self.role](self.name, f"_INBOX.{self.text}.>")


def user(text: str) -> User | None:
    """The other way round from `User.text`; None: it is no name of a user of ours."""
    role, dot, name = text.partition(".")
    for known in ROLES:
        if role == known and bool(dot) == (known in NAMED) and (not dot or _NAME.fullmatch(name)):
            return User(known, name)
    return None


def _control(_: str, inbox: str) -> Rights:
    """Writes all of the log, where a server refuses to delete or purge for it as for anybody."""
    return Rights(
        publish=(
            f"{subjects.LOG_ROOT}>",
            f"{subjects.CHECKPOINT_ROOT}>",
            subjects.ALL_CONTROL_BEATS,
            f"{subjects.ECHO_ROOT}*",
            f"{subjects.RPC_ROOT}agent.>",
            *(f"{_API}STREAM.{verb}.{name}" for verb in ("CREATE", "UPDATE") for name in _STREAMS),
            *_reads(),
            *(each for name in _STREAMS for each in _consumes(name)),
            inbox,
        ),
        subscribe=(
            "flotilla.beat.>",
            subjects.ALL_LOADS,
            f"{subjects.LIVE_ROOT}>",
            f"{subjects.ECHO_ROOT}*",
            f"{subjects.RPC_ROOT}control.>",
            inbox,
        ),
        answers=True,
    )


def _agent(name: str, inbox: str) -> Rights:
    """Speaks for its own node, and knows of no other's."""
    own = f"{subjects.STATE_ROOT}node.{name}"
    assignment = f"{subjects.STATE_ROOT}assignment.{name}"
    return Rights(
        publish=(
            f"{own}.info",
            f"{own}.shard.*",
            f"{subjects.TAIL_ROOT}{name}.>",
            f"flotilla.beat.agent.{name}",
            f"flotilla.load.{name}",
            *_infos(_READ),
            *_gets(subjects.GENESIS, assignment, f"{own}.info", f"{own}.shard.*"),
            inbox,
        ),
        subscribe=(
            subjects.live(assignment),
            subjects.ALL_CONTROL_BEATS,
            f"{subjects.RPC_ROOT}agent.{name}.>",
            inbox,
        ),
        answers=True,
    )


def _router(name: str, inbox: str) -> Rights:
    """Knows catalog and endpoints, and reports its own."""
    followed = (
        subjects.GENESIS,
        subjects.CATALOG,
        subjects.ALL_REVISIONS,
        subjects.ALL_ENDPOINTS,
    )
    own = f"{subjects.STATE_ROOT}router.{name}.*"
    return Rights(
        publish=(
            own,
            f"flotilla.log.e.usage.{name}",
            f"flotilla.beat.router.{name}",
            *_infos(_READ),
            *_gets(*followed, own),
            inbox,
        ),
        subscribe=(
            *map(subjects.live, followed),
            subjects.ALL_CONTROL_BEATS,
            subjects.ALL_ROUTER_BEATS,
            subjects.ALL_LOADS,
            inbox,
        ),
    )


def _operator(_: str, inbox: str) -> Rights:
    """Reads everything with the `nats` command line, and asks control and agents; writes nothing."""
    return Rights(
        publish=(
            f"{subjects.RPC_ROOT}>",
            *_reads(),
            *(each for name in (*_READ, subjects.CHECKPOINT) for each in _consumes(name)),
            inbox,
        ),
        subscribe=("flotilla.beat.>", subjects.ALL_LOADS, f"{subjects.LIVE_ROOT}>", inbox),
    )


def _admin(_: str, _inbox: str) -> Rights:
    """The one who may delete, purge, restore and write in another's name."""
    return Rights(publish=(">",), subscribe=(">",), answers=True)


_RIGHTS = {
    "control": _control,
    "agent": _agent,
    "router": _router,
    "operator": _operator,
    "admin": _admin,
}


def _infos(streams: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{_API}STREAM.INFO.{name}" for name in streams)


def _gets(*log_subjects: str) -> tuple[str, ...]:
    """One document at a time, each by its subject."""
    return tuple(
        f"{_API}DIRECT.GET.{stream}.{subject}" for stream in _READ for subject in log_subjects
    )


def _reads() -> tuple[str, ...]:
    """Everything that is stored, without a consumer."""
    whole = ("INFO", "STREAM.NAMES", "STREAM.LIST", "STREAM.INFO.*", "STREAM.MSG.GET.*")
    return tuple(f"{_API}{verb}" for verb in (*whole, "DIRECT.GET.>"))


def _consumes(stream: str) -> tuple[str, ...]:
    """Consumers of one stream, for as long as they are read from."""
    verbs = ("CREATE", "MSG.NEXT", "INFO", "DELETE")
    return (
        *(f"{_API}CONSUMER.{verb}.{stream}.>" for verb in verbs),
        f"{_API}CONSUMER.CREATE.{stream}",
        f"{_API}CONSUMER.NAMES.{stream}",
        f"{_API}CONSUMER.LIST.{stream}",
    )
