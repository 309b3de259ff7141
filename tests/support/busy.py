"""The control service whole, in a thread of the test, whose event loop can be kept busy."""

import asyncio
import time
from pathlib import Path
from threading import Event, Thread

from services.control.__main__ import serve
from services.control.answering.tokens import Tokens
from services.control.config import from_settings
from services.control.damage import SeenFile
from services.fleet.settings import Resolved, resolve
from tests.support.control import Control
from tests.support.nats_server import NatsServer


class BusyControl(Control):
    """`begin` and `end` instead of a process."""

    def __init__(self, name: str, nats: NatsServer, root: Path) -> None:
        super().__init__(name, nats, root)
        flags = {
            "nats-url": nats.url,
            "data": str(self.data),
            "name": name,
            "listen": self.address,
        }
        found = resolve("control", "", {}, flags)
        assert isinstance(found, Resolved), found
        self._config = from_settings(found)
        self._running = Event()
        self._thread = Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[int] | None = None

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        seen = SeenFile(self._config.data / "seen.json")
        assert self._config.name is not None
        self._task = self._loop.create_task(
            serve(self._config, self._config.name, seen, Tokens(self._config.tokens))
        )
        self._running.set()
        await asyncio.wait([self._task])

    def begin(self) -> None:
        self._thread.start()
        self._running.wait()

    def keep_busy(self, seconds: float) -> None:
        """Nothing else runs on its event loop for so long; returns at once."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(time.sleep, seconds)

    def end(self) -> None:
        if self._thread.is_alive():
            assert self._loop is not None
            assert self._task is not None
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()
