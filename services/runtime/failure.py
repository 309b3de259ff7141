"""How a verb says no: what happened, why, what to type next, and an exit code that scripts can trust."""

from collections.abc import Sequence
from enum import IntEnum

from services.runtime.typed import typed


class Exit(IntEnum):
    """Exit codes of every verb."""

    YES = 0
    NO = 1
    """Asked and answered: the answer is no (degraded, not placed, …)."""
    USAGE = 2
    """The command line, a setting or the catalog is wrong."""
    NOT_FOUND = 3
    REFUSED = 4
    """Understood and refused: a conflict, a taken port, …"""
    UNREACHABLE = 5
    """No connection, or not allowed in."""
    OUTCOME_UNKNOWN = 6
    """A change was sent and no answer came: it may have been taken."""
    INTERRUPTED = 130
    UNREAD = 141
    """Whoever read standard output left before its end, so the answer was not given: as SIGPIPE ends others."""


class Failure(Exception):
    """Ends a verb. `steps` are commands that can be pasted."""

    def __init__(
        self,
        exit_code: Exit,
        code: str,
        message: str,
        *,
        why: str = "",
        steps: Sequence[str] = (),
        details: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.code = code
        self.message = message
        self.why = why
        self.steps = tuple(steps)
        self.details = tuple(details)
        """Whole lines printed before the message: one fault each."""

    def lines(self) -> list[str]:
        """As printed on stderr; what to do about it comes last."""
        told = [*self.details, f"error: {self.message} [{self.code}]"]
        if self.why:
            told.append(f"  why:  {self.why}")
        return told + [f"  next: {typed(step)}" for step in self.steps]
