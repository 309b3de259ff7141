"""Event streams: only whole events pass to the client, so that one can always be added. Pure.

If the upstream breaks in the middle of an event, what came of it is dropped; the client then reads
an error event and not the half of something else glued to it.
"""

HOLD_LIMIT = 1 << 20
"""Bytes. An event longer than this passes in pieces."""

_DONE = b"[DONE]"


class WholeEvents:
    """Passes bytes on unchanged, holding back an event until its end has come."""

    __slots__ = ("_held", "done")

    def __init__(self) -> None:
        self.done = False
        """`data: [DONE]` has passed."""
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What may go to the client now; perhaps nothing."""
        if self._held:
            data = self._held + data
            self._held = b""
        if not data.endswith(b"\n\n"):
            end = _end_of_events(data)
            if len(data) - end <= HOLD_LIMIT:
                self._held, data = data[end:], data[:end]
        self._note(data)
        return data

    def rest(self) -> bytes:
        """What is left at a proper end."""
        held, self._held = self._held, b""
        self._note(held)
        return held

    def _note(self, data: bytes) -> None:
        if data[-16:].rstrip().endswith(_DONE):
            self.done = True


def _end_of_events(data: bytes) -> int:
    newlines, returns = data.rfind(b"\n\n"), data.rfind(b"\r\n\r\n")
    return max(newlines + 2 if newlines >= 0 else 0, returns + 4 if returns >= 0 else 0)
