"""When to start again what has failed: back-off with jitter, and what forgets it.

Used by the agent for single-node shards. Times are seconds of the caller's clock.
"""

import random  # noqa: TID251 - for its type.

from schemas.documents import RestartPolicy

JITTER = 0.2
"""A pause is this fraction longer or shorter, so that what failed together does not return together."""


def pause(policy: RestartPolicy, failures: int, source: random.Random) -> float:
    """Seconds to wait after the `failures`-th failure in a row (from 1): doubling, bounded."""
    doublings = min(failures - 1, 32)  # Beyond it any sane bound is reached, and floats are safe.
    bounded = min(policy.first_seconds * 2.0**doublings, policy.longest_seconds)
    return bounded * source.uniform(1 - JITTER, 1 + JITTER)


def forgotten(policy: RestartPolicy, healthy_for: float) -> bool:
    """Whether failures in a row count from 0 again."""
    return healthy_for >= policy.healthy_seconds
