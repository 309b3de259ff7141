"""One endpoint's circuit breaker: pure, told the time.

Closed until five failures in a row; then open for ten seconds, after which one request may probe.
What counts as a failure is the caller's to say: connect, reset, time-out, 5xx other than "busy";
never a client's own mistake, nor a client that left.
"""

from typing import Literal

FAILURES = 5
OPEN_SECONDS = 10.0

BreakerPhase = Literal["closed", "open", "probing"]


class Breaker:
    """Mutable. `now` is monotonic seconds."""

    __slots__ = ("failed_at", "failures", "opened_at", "probing", "reason")

    def __init__(self) -> None:
        self.failures = 0
        """In a row."""
        self.failed_at = 0.0
        self.opened_at: float | None = None
        self.probing = False
        self.reason = ""
        """What the last failure was; empty after a success."""

    def phase(self, now: float) -> BreakerPhase:
        """`probing`: open long enough, so that one request may find out."""
        if self.opened_at is None:
            return "closed"
        return "probing" if now >= self.opened_at + OPEN_SECONDS else "open"

    def allows(self, now: float) -> bool:
        """Whether a request may be sent by ordinary choice."""
        match self.phase(now):
            case "closed":
                return True
            case "open":
                return False
            case "probing":
                return not self.probing

    def begin(self, now: float) -> bool:
        """A request goes out. True: it is the probe, which must be handed to `end`."""
        if self.probing or self.phase(now) != "probing":
            return False
        self.probing = True
        return True

    def end(self, probe: bool) -> None:
        """The request is over, however it ended."""
        if probe:
            self.probing = False

    def succeeded(self) -> None:
        """The endpoint answered as a healthy one does, a 4xx included."""
        self.failures = 0
        self.opened_at = None
        self.reason = ""

    def failed(self, now: float, reason: str) -> None:
        """While open this starts the ten seconds anew."""
        self.failures += 1
        self.failed_at = now
        self.reason = reason
        if self.failures >= FAILURES:
            self.opened_at = now
