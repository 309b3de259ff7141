"""Flotilla's own programs as real processes, for end-to-end tests."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Program:
    """One process of ours, its output in a file, ended by its own handle."""

    def __init__(self, name: str, module: str, env: dict[str, str], logs: Path) -> None:
        self.name = name
        self.log = logs / f"{name}.log"
        self._module = module
        self._env = env
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it (again)."""
        assert not self.running, f"{self.name} is running"
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("FLOTILLA_")}
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._module],
                cwd=ROOT,
                env=inherited | self._env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    async def stop(self, cap: float = 20.0) -> int:
        """SIGTERM, its exit code; killed when it takes longer than `cap` seconds."""
        if self._process is None:
            return 0
        self._process.terminate()
        try:
            return await asyncio.to_thread(self._process.wait, cap)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} ignored SIGTERM for {cap:.0f} s") from None

    def tail(self, lines: int = 40) -> str:
        """The end of its output."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
