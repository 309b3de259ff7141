"""Commands by name, and how one is carried out whichever door it came by: HTTP or NATS. Shell.

Each is planned in the loop's next turn. An answer is a frame; what was not taken is a Refusal that says
so, and one whose fate is not known says that.
"""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from msgspec import DecodeError, ValidationError

from schemas import codec
from schemas.api import ApplyCatalog
from schemas.brake import ReleaseBrake
from schemas.frames import Frame, Refusal
from schemas.history import RollbackCatalog
from schemas.recovery import Mend
from services.control.commanding.brake_command import plan_release
from services.control.commanding.commands import Actor, plan_apply, plan_rollback
from services.control.commanding.mending import plan_mend
from services.control.commanding.moment import Moment, Plan, Planned
from services.control.deciding.current import find_revision
from services.control.loop import Loop
from services.control.requests import Failed, LogRefuses, OutcomeUnknown, TooMany
from services.fleet.catalog import from_json
from services.fleet.state import FleetState
from services.fleet.unseen import unseen

UNREAD = "the request cannot be read"


class Reasoned(Protocol):
    """A request that says why."""

    @property
    def reason(self) -> str:
        """Kept in the log."""
        ...


R = TypeVar("R", bound=Reasoned)

Planner = Callable[[bytes, Actor, FleetState], Plan]
"""From a request's body, which it may raise DecodeError for. It runs beside the event loop, while the
state goes on: of that it looks at one entity at most."""


def understood(body: bytes, kind: type[R]) -> R:
    """The request; raises DecodeError. A reason is shown to people: it is as visible as a catalog."""
    wanted = codec.decode(body, kind)
    if fault := unseen(wanted.reason):
        raise ValidationError(f"the reason {fault}")
    return wanted


def _planner(kind: type[R], plan: Callable[[Moment, R, Actor], Planned]) -> Planner:
    def planned(body: bytes, actor: Actor, _state: FleetState) -> Plan:
        wanted = understood(body, kind)
        return lambda moment: plan(moment, wanted, actor)

    return planned


def _apply(body: bytes, actor: Actor, _state: FleetState) -> Plan:
    return plan_apply(understood(body, ApplyCatalog), actor)


def _rollback(body: bytes, actor: Actor, state: FleetState) -> Plan:
    wanted = understood(body, RollbackCatalog)
    held = find_revision(state, wanted.revision)
    if held is not None:
        from_json(held.document.source)  # Remembered for the plan, which must not take long.
    return lambda moment: plan_rollback(moment, wanted, actor)


ORDERS: Mapping[str, Planner] = {
    "apply": _apply,
    "rollback": _rollback,
    "brake-off": _planner(ReleaseBrake, plan_release),
    "mend": _planner(Mend, plan_mend),
}
"""By the name of the route."""


async def carry_out(loop: Loop, name: str, body: bytes, actor: Actor) -> Frame:
    """Once it stands in the log, or is refused. Raises NotLeading: another control takes it."""
    if loop.recovering.due(loop.state):
        return refusal(loop, "recovering", *_RECOVERING)
    planner = ORDERS[name]
    try:
        return await loop.perform(await loop.prepare(lambda: planner(body, actor, loop.state)))
    except DecodeError as error:
        return refusal(loop, "bad_request", UNREAD, str(error))
    except LogRefuses as error:
        return refusal(loop, "log_refuses", "the log takes no write", str(error))
    except TooMany:
        return refusal(loop, "too_many", "too many commands wait", "nothing was changed")
    except OutcomeUnknown as error:
        message = f"{name} may or may not have been taken"
        return refusal(loop, "outcome_unknown", message, str(error), look_for(actor))
    except Failed as error:
        return refusal(loop, "failed", f"{name} failed: nothing was changed", str(error))


def look_for(actor: Actor) -> str:
    """What tells whether a command was taken: its record stands with what it changed, or not at all."""
    return f"flotilla events --for command/{actor.command}"


def not_here(loop: Loop) -> Refusal:
    """Why no command is taken by this control, when there is no other that would."""
    if loop.damage is not None:
        message, next_ = "the log is damaged: nothing is changed", "flotilla journal recover"
        return refusal(loop, "damaged", message, loop.damage.reason, next_)
    return refusal(loop, "not_leading", "no control service leads at this moment")


def refusal(loop: Loop, code: str, message: str, why: str = "", next_: str = "") -> Refusal:
    """At what this control has applied."""
    return Refusal(as_of_seq=loop.state.sequence, code=code, message=message, why=why, next=next_)


_RECOVERING = (
    "the log is being recovered: nothing is changed before it has a catalog",
    "engines run on, and are handed over",
    "flotilla journal recover",
)
