"""What is waited for, told once the wait is long."""

from collections.abc import Generator
from contextlib import contextmanager
from threading import Timer

from ctl.progress import Progress
from ctl.render import stderr_is_live

LONG_SECONDS = 2.0


@contextmanager
def told_if_long(text: str, tells: bool = True) -> Generator[None]:
    """On a terminal alone: to a log, the failure or the answer says enough."""
    if not (tells and stderr_is_live()):
        yield
        return
    progress = Progress(live=True)
    timer = Timer(LONG_SECONDS, progress.step, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # Or it might draw after what comes next.
        progress.done()
