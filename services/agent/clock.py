"""The two clocks of the node, read in one place."""

import time

from services.agent.shard import Moment


def now() -> Moment:
    """Linux' monotonic clock counts from the machine's start, for all of its processes alike."""
    return Moment(wall=time.time(), steady=time.monotonic())  # noqa: TID251 - the shell owns the clock.
