"""The agent's parts below the log, with real engines."""

from tests.support.tiny_gguf import tiny_gguf

__all__ = ["tiny_gguf"]
