"""Where a verb finds its way to say no: programs that are reached as verbs say it alike."""

from services.runtime.failure import Exit, Failure

__all__ = ["Exit", "Failure"]
