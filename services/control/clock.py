"""The fleet's clock. Pure: monotonic time is passed in.

Now = the newest of: the newest `at` that control wrote, and the stamp of the newest LOG message plus
the monotonic time since it was seen. So it never runs behind the log, whatever the machine's own
clock says, and timers go on after a restart from the log's times. Control's claim is the newest
message when it begins to decide, so the clock is the server's then.

A step that nobody lived through (a suspended machine) counts as one second, so that timers neither
end all at once nor begin afresh. From then on the clock is behind the log's time, and makes that up
by running half as fast again: a wait lasts two thirds of its length at the least, and an hour is made
up in two. It does not stay behind: `at` is read by people, and the next start of control begins with
the log's time.
"""

LONGEST_STEP_SECONDS = 60.0
"""A longer step between two readings is no passing of time that anybody lived through."""
STEP_COUNTS_SECONDS = 1.0
CATCH_UP = 0.5
"""Seconds made up in each second while the clock is behind the log's time."""


class Clock:
    """Read once a turn. Seconds since 1970, and monotonic seconds."""

    def __init__(self) -> None:
        self.steps: list[float] = []
        """Steps that were not counted, in seconds; the caller reports and clears them."""
        self._stamp = 0.0
        self._seen = 0.0
        self._behind = 0.0
        """Seconds by which it is behind the log's time: steps that are not made up yet."""
        self._last: float | None = None
        self._read_at = 0.0

    @property
    def set(self) -> bool:
        """Whether any message of the log was seen."""
        return self._stamp > 0

    def heard(self, stamp: float, monotonic: float) -> None:
        """LOG's newest message carries this stamp of the server; 0: not known."""
        if stamp > 0:
            self._stamp, self._seen = stamp, monotonic

    def read(self, newest_control_at: float, monotonic: float) -> float:
        """The fleet's time now."""
        log_time = self._stamp + (monotonic - self._seen)
        now = max(newest_control_at, log_time - self._behind)
        if self._last is not None:
            step, lived = now - self._last, monotonic - self._read_at
            if step > LONGEST_STEP_SECONDS:
                self.steps.append(step)
                now, lived = max(newest_control_at, self._last + STEP_COUNTS_SECONDS), 0.0
            now = max(now, self._last)
            self._behind = max(0.0, log_time - now - CATCH_UP * lived)
        self._last, self._read_at = now, monotonic
        return now
