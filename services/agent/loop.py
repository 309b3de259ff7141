"""Shell of the agent: assignment in, reports out.

Engines come first: they are adopted and kept before NATS is there, and when it is not. The log is
spoken to only while it is the one followed before (`services.agent.trust`).
"""

import asyncio
import contextlib
import random  # noqa: TID251 - for its type.
import secrets

import structlog
from msgspec import DecodeError

from schemas import codec, subjects
from schemas.beats import AgentBeat, NodeLoad
from schemas.documents import Assignment
from schemas.events import log_prefix
from schemas.ids import LogId
from services.agent import gpus, probe
from services.agent.config import Config
from services.agent.metrics import Metrics
from services.agent.node import NameTaken, check_name, describe, read_info, read_shards
from services.agent.reports import Reports
from services.agent.runner import Host
from services.agent.sessions import stop_orphans
from services.agent.shards import Shards
from services.agent.store import Store
from services.agent.trust import Trust
from services.log import streams
from services.log.connect import Connection, Unavailable
from services.log.follow import Follower
from services.log.snapshot import get
from services.log.stored import Stored
from services.log.write import Writer
from services.runtime.admin import admin_app, listen

log = structlog.get_logger()

BEAT_SECONDS = 1.0
RETRY_SECONDS = 1.0


class Agent:
    """One node. `run` ends when cancelled, or with NameTaken."""

    def __init__(self, config: Config, source: random.Random) -> None:
        self.config = config
        self.store = Store(config.data)
        self.incarnation = secrets.token_hex(8)
        self.connection = Connection(config.nats_url, f"agent/{config.node}")
        self._source = source
        self._reports = Reports(config.node, self.incarnation)
        self.shards = Shards(self.store, self._reports)
        self._turned = asyncio.Event()
        self.trust = Trust(self.connection, self.store.seen, self._turned.set)
        self._assigned: tuple[LogId, int] | None = None
        """The log and the sequence there of the assignment that was last obeyed."""
        self._speaks_for_node = False
        self._cards = gpus.Snapshot()
        self._machine_id = self.store.machine_id()

    async def run(self) -> None:
        """Until cancelled. Engines live on."""
        lives = self.store.load()
        async with probe.session() as http, asyncio.TaskGroup() as group:
            host = Host(
                store=self.store,
                environments={each.name: each for each in self.config.environments},
                secrets_folder=self.config.secrets_folder,
                http=http,
                source=self._source,
                changed=self.shards.changed,
                in_the_way=self.shards.in_the_way,
            )
            self.shards.resume(lives, host, group)
            metrics = Metrics(lambda: self.shards.lives, lambda: bool(self.trust.damage))
            app = admin_app(lambda: True, self._ready, metrics.registry)
            admin = await listen(app, self.config.listen)
            try:
                await self._serve(host, group, lives=[life.replica for life in lives])
            finally:
                await admin.cleanup()
                await self.connection.close()
