"""How many examples a property test tries, and how often a slow test repeats itself."""

import os

TIMES = int(os.environ.get("EXAMPLES_TIMES", "1"))
"""Many in the nightly run."""


def examples(usual: int) -> int:
    """`usual` in an ordinary run."""
    return usual * TIMES


def rounds(variable: str, usual: int) -> int:
    """How often a slow thing is done over: `usual` unless the environment says otherwise."""
    return int(os.environ.get(variable, usual))
