"""How long a text may be that somebody gives: what is told in the log must fit one message of it."""

from typing import Annotated

from msgspec import Meta

from schemas.ids import ModelName, NodeId

LONGEST_NAME = 256
LONGEST_REASON = 2000

Reason = Annotated[str, Meta(max_length=LONGEST_REASON)]
FileName = Annotated[str, Meta(max_length=1000)]
Subject = Annotated[str, Meta(max_length=LONGEST_NAME)]
Prune = Annotated[
    tuple[Annotated[ModelName, Meta(max_length=LONGEST_NAME)], ...], Meta(max_length=10_000)
]
"""Models that may vanish."""
Without = Annotated[tuple[Annotated[NodeId, Meta(max_length=256)], ...], Meta(max_length=10_000)]
"""Nodes that may be missing."""
