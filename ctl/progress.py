"""What is going on, on stderr: one line drawn over on a terminal, a line per change elsewhere."""

import re
import sys
from contextlib import suppress

from ctl.render import talk
from services.fleet.unseen import escaped

_CLEAR = "\r\x1b[K"
_PERCENT = re.compile(r" \d+%")


class Progress:
    """Tells steps as they come. Repeating one prints nothing."""

    def __init__(self, *, live: bool) -> None:
        self._live = live
        self._last = ""

    def step(self, text: str) -> None:
        """What is being done now. A log is spared the percents."""
        shown = text if self._live else _PERCENT.sub("", text)
        if shown == self._last:
            return
        self._last = shown
        if self._live:
            _draw(shown)
        else:
            talk(shown)

    def line(self, text: str) -> None:
        """Something that stays on the screen."""
        self.done()
        talk(text)

    def done(self) -> None:
        """Leave nothing half-drawn."""
        if self._live and self._last:
            _draw("")
            self._last = ""


def _draw(text: str) -> None:
    with suppress(OSError):  # As `talk`: the terminal may be gone.
        sys.stderr.write(f"{_CLEAR}{escaped(text)}")  # noqa: TID251 - it steers the cursor itself.
        sys.stderr.flush()
