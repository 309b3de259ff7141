"""How long a text may be that somebody gives: what is told in the log must fit one message of it."""

from typing import Annotated

from msgspec import Meta

from schemas.ids import ModelName

Reason = Annotated[str, Meta(max_length=2000)]
FileName = Annotated[str, Meta(max_length=1000)]
Subject = Annotated[str, Meta(max_length=256)]
Prune = Annotated[tuple[Annotated[ModelName, Meta(max_length=256)], ...], Meta(max_length=10_000)]
"""Models that may vanish."""
