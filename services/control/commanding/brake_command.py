"""`flotilla brake off`, planned against one state. Pure.

Only what is on can be ended: a command that comes late, or twice, is refused and changes nothing. The
document that it writes pardons every silence that has begun by then (`brake.py`).
"""

from msgspec.structs import replace

from schemas import subjects
from schemas.brake import ReleaseBrake
from schemas.frames import Accepted, Frame
from services.control.commanding.commands import Actor, No, record, refuse
from services.control.commanding.moment import Moment, Planned
from services.control.deciding.drafts import Draft

VERB = "brake"


def plan_release(moment: Moment, request: ReleaseBrake, actor: Actor) -> Planned:
    """End the brake, if it is on."""
    if (halted := moment.state.halted()) != ():
        no = No("halted", "this control decides nothing", why=halted[0])
        return refuse(VERB, request.reason, actor, no, VERB)
    held = moment.state.brake.get(())
    if held is None or not held.document.engaged:
        return refuse(VERB, request.reason, actor, _is_off(), VERB)
    document = replace(held.document, engaged=False, calm_since=None, released_by=actor.command)
    drafts = [
        Draft(
            subject=subjects.CONTROL_BRAKE,
            type="brake.released",
            document=document,
            id=actor.command,
            cause=held.event,
            corr=actor.command,
        ),
        record(VERB, request.reason, actor, "accepted", f"on since {document.since}", VERB),
    ]

    def answer(sequence: int) -> Frame:
        return Accepted(as_of_seq=sequence, command=actor.command)

    return Planned(drafts, answer)


def _is_off() -> No:
    return No(
        "brake_is_off",
        "the brake is not on",
        why="no mass silence holds anything back",
        next="flotilla brake",
    )
