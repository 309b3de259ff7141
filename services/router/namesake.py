"""Whether another router of this name lives, as after a data folder was copied. Pure, told the time.

An earlier start of this router is none: it beats no more.
"""

LIVES_SECONDS = 5.0
"""A router lives that beat twice within this time, and last no longer ago."""


class Namesakes:
    """Every other incarnation that beats under this name. `now` is monotonic seconds."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._beats: dict[str, tuple[float | None, float]] = {}
        """By incarnation: when the beat before the last came, and the last."""

    def heard(self, incarnation: str, now: float) -> None:
        """A beat under this name."""
        if incarnation != self._own:
            _, last = self._beats.get(incarnation, (None, None))
            self._beats[incarnation] = last, now

    def lives(self, incarnation: str, now: float) -> bool:
        """One beat alone proves nothing: it may have been long on its way."""
        before, last = self._beats.get(incarnation, (None, now))
        return before is not None and last - before <= LIVES_SECONDS and now - last <= LIVES_SECONDS

    def living(self, now: float) -> tuple[str, ...]:
        """Their incarnations. Forgets the silent ones."""
        for silent in [
            each for each, (_, last) in self._beats.items() if now - last > LIVES_SECONDS
        ]:
            del self._beats[silent]
        return tuple(sorted(each for each in self._beats if self.lives(each, now)))
