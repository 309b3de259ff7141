"""Where a verb finds `typed`: programs that are reached as verbs say the same."""

from services.runtime.typed import typed

__all__ = ["typed"]
