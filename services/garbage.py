"""Python's search for garbage, kept from going through a fleet's state again and again.

A state has a million objects, nearly all of which stay and none of which is garbage in a cycle. While
they are made, each ten thousand of them would set off another search through all.
"""

import gc
from collections.abc import Generator
from contextlib import contextmanager

SEARCH_AFTER = 50_000
"""Objects made and not yet given up: about as many as one pass over a large fleet holds on to."""


@contextmanager
def search_paused() -> Generator[None]:
    """While much is made that stays. What is garbage in a cycle by then is found later."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def search_no_more_in_what_is_there() -> None:
    """All that is there now stays, as far as cycles go: later searches leave it out."""
    if gc.get_freeze_count():
        gc.unfreeze()
        gc.collect()  # What was left out since the last time.
    gc.freeze()
    gc.set_threshold(SEARCH_AFTER, *gc.get_threshold()[1:])
