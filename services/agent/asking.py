"""Asks one running engine: until it serves, is it ready; then once a second, how busy is it."""

import asyncio
from collections.abc import Callable

from schemas.beats import EngineLoad
from schemas.documents import LastError, Progress
from services.agent import probe, process
from services.agent.diagnose import lines, progress
from services.agent.engine_log import EngineLog
from services.agent.engines.table import ADAPTERS
from services.agent.host import Host
from services.agent.shard import Answered, Event, Life, Looked, Moved, Process, Unhealthy
from services.runtime import proc

FIRST_LOOK_SECONDS, LONGEST_LOOK_SECONDS = 0.05, 1.0
SCRAPE_SECONDS = 1.0
DEAD_LOOKS = 3
"""Looks in a row at which nobody serves, before a living process counts as failed."""
WITHHELD = "it gives no good answer; what it says is withheld, for this run's secrets are not known"


class Asking:
    """Until cancelled. What is found is sent as events; `load` is the newest scrape."""

    def __init__(
        self,
        running: Process,
        secrets: tuple[str, ...] | None,
        host: Host,
        life: Callable[[], Life],
        send: Callable[[Event], None],
    ) -> None:
        self.load = EngineLoad()
        self._running = running
        self._secrets = secrets
        self._host = host
        self._life = life
        self._send = send
        self._launch = life().order.launch
        self._adapter = ADAPTERS[self._launch.kind]
        self._mark = process.mark(life(), host.store.data)

    async def run(self) -> None:
        await self._until_it_serves()
        await self._while_it_serves()

    async def _until_it_serves(self) -> None:
        life = self._life()
        output = EngineLog(self._host.store.log(life.replica), life.log_start)
        pause, done, told = FIRST_LOOK_SECONDS, 0, ""
        while (life := self._life()).phase in ("starting", "loading"):
            text = output.fresh()
            reached = progress(lines(text, ()), self._adapter.steps)  # Names and numbers alone.
            health = await probe.health(self._host.http, self._launch, self._adapter)
            if reached is None and health == "loading" and life.progress is None:
                reached = Progress(step="loading")
            work = proc.work_done([self._running.engine.pid])
            if health == "ready":
                self._send(Moved(None))  # Its first answer may take longer than a stall.
                reason = await self._fault()
                if not reason:
                    self._send(Answered())
                    return
                reached = Progress(step=f"not ready: {reason}") if reason != told else None
                told, text = reason, ""  # What it logs now is our own asking.
            if reached is not None or text or work > done:
                self._send(Moved(reached))
            done = max(done, work)
            await asyncio.sleep(pause)
            pause = min(pause * 1.3, LONGEST_LOOK_SECONDS)

    async def _fault(self) -> str:
        """Empty: the right model answered, and the process that listens there is ours."""
        reason = await probe.fault(self._host.http, self._launch)
        if reason:
            return WITHHELD if self._secrets is None else "".join(lines(reason, self._secrets))
        ours = await asyncio.to_thread(self._listens)
        return "" if ours else f"port {self._launch.port} belongs to another process"

    def _listens(self) -> bool:
        session = proc.members(self._running.leader, self._mark)
        return proc.listens([member.pid for member in session], self._launch.port)

    async def _while_it_serves(self) -> None:
        """Only the end of the engine ends it: a drain goes on while it is `ready`."""
        dead = 0
        while True:
            load = await probe.scrape(self._host.http, self._launch, self._adapter)
            self.load = load or EngineLoad()
            self._send(Looked(await self._busy(load)))
            dead = 0 if load is not None else await self._dead_looks(dead)
            if dead == DEAD_LOOKS:
                message = f"its process lives and port {self._launch.port} serves nobody"
                self._send(Unhealthy(LastError(failure="engine_dead", message=message)))
            await asyncio.sleep(SCRAPE_SECONDS)

    async def _busy(self, load: EngineLoad | None) -> bool | None:
        if load is None:
            return None
        if load.running is None:
            return await asyncio.to_thread(proc.connections, self._launch.port) > 0
        return load.running + (load.waiting or 0.0) > 0

    async def _dead_looks(self, dead: int) -> int:
        said = await probe.health(self._host.http, self._launch, self._adapter)
        return dead + 1 if said in ("dead", "refused") else dead
