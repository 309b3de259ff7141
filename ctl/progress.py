"""What is going on, on stderr: one line drawn over on a terminal, a line per change elsewhere."""

import sys

from ctl.render import escaped, talk

_CLEAR = "\r\x1b[K"


class Progress:
    """Tells steps as they come. Repeating a text prints nothing."""

    def __init__(self, *, live: bool) -> None:
        self._live = live
        self._last = ""

    def step(self, text: str) -> None:
        """What is being done now."""
        if text == self._last:
            return
        self._last = text
        if self._live:
            sys.stderr.write(f"{_CLEAR}{escaped(text)}")
            sys.stderr.flush()
        else:
            talk(text)

    def line(self, text: str) -> None:
        """Something that stays on the screen."""
        if self._live and self._last:
            sys.stderr.write(_CLEAR)
        self._last = ""
        talk(text)

    def done(self) -> None:
        """Leave nothing half-drawn."""
        if self._live and self._last:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
        self._last = ""
