"""How many examples a property test tries."""

import os

TIMES = int(os.environ.get("EXAMPLES_TIMES", "1"))
"""Many in the nightly run."""


def examples(usual: int) -> int:
    """`usual` in an ordinary run."""
    return usual * TIMES
