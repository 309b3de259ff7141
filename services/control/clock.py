"""The fleet's clock. Pure: monotonic time is passed in.

Now = the newest of: the newest `at` that control wrote, and the stamp of the newest LOG message plus
the monotonic time since it was seen. So it never runs behind the log, whatever the machine's own
clock says, and timers go on after a restart from the log's times. Control's claim is the newest
message when it begins to decide, so the clock is the server's then.
"""

LONGEST_STEP_SECONDS = 60.0
"""A longer step between two readings is no passing of time that anybody lived through."""
STEP_COUNTS_SECONDS = 1.0


class Clock:
    """Read once a turn. Seconds since 1970, and monotonic seconds."""

    def __init__(self) -> None:
        self.steps: list[float] = []
        """Steps that were not counted, in seconds; the caller reports and clears them."""
        self._stamp = 0.0
        self._seen = 0.0
        self._ignored = 0.0
        self._last: float | None = None

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
        now = max(newest_control_at, self._stamp + (monotonic - self._seen) - self._ignored)
        if self._last is not None and now - self._last > LONGEST_STEP_SECONDS:
            self.steps.append(now - self._last)
            counted = self._last + STEP_COUNTS_SECONDS
            self._ignored += now - counted
            now = max(newest_control_at, counted)
        self._last = now if self._last is None else max(now, self._last)
        return self._last
