"""What all shards of a node share."""

import random  # noqa: TID251 - for its type.
from collections.abc import Callable, Mapping
from pathlib import Path

import aiohttp
from msgspec import Struct

from schemas.ids import EngineName, ReplicaId
from services.agent.disk import Disk
from services.agent.engines.adapter import Environment
from services.agent.shard import Life
from services.agent.store import Store


class Host(Struct, frozen=True):
    """One node, as its shards' runners see it."""

    store: Store
    disk: Disk
    environments: Mapping[EngineName, Environment]
    secrets_folder: Path
    http: aiohttp.ClientSession
    source: random.Random
    changed: Callable[[Life], None]
    """Told of every new state, after it is on disk."""
    in_the_way: Callable[[Life], ReplicaId | None]
    """Which other live shard uses one of its cards."""
    failed: Callable[[ReplicaId, str], None]
    """Told of each failure of an engine, with the last that it said, fit to be shown."""

    def version(self, name: EngineName) -> str:
        """Of an engine environment; empty: this node has none of the name, or it does not tell."""
        found = self.environments.get(name)
        return found.version if found else ""
