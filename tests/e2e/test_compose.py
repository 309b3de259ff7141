"""compose.yaml, run without a container engine: each service's own command and environment as a
local process, until its own health check passes. Mapped are only the image's paths and the ports.
"""

import asyncio
import os
import re
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.log import server
from tests.support.ports import free_ports, free_range

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
STATE = "/var/lib/flotilla"
CAP_SECONDS = 60.0
ORDER = ("nats", "control", "router", "agent")

Service = dict[str, Any]


def services() -> dict[str, Service]:
    found: dict[str, Service] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    return found


class Mapping:
    """From the image and the host's network to this machine: paths, and free ports for fixed ones."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        fixed = ["4222", "8222", "7400", "7401", "7402", "8000"]
        self._ports = dict(zip(fixed, free_ports(len(fixed)), strict=True))
        first, last = free_range(20)
        self._range = f"{first}-{last}"

    def text(self, text: str, service: str) -> str:
        text = text.replace(STATE, str(self._folder / service)).replace("17000-17999", self._range)
        return re.sub(
            r"(127\.0\.0\.1:)(\d+)",
            lambda found: f"{found[1]}{self._ports[found[2]]}",  # A port that nobody knows fails.
            text,
        )

    def word(self, word: str, service: str) -> str:
        """A word of a command. A file of the image becomes a mapped copy."""
        if word.startswith("/app/"):
            source = ROOT / word.removeprefix("/app/")
            copy = self._folder / source.name
            copy.write_text(self.text(source.read_text(), service))
            return str(copy)
        return self.text(word, service)

    def command(self, words: list[str], service: str) -> list[str]:
        """The program comes from this environment's folder, as it does from the image's."""
        program, *rest = words
        return [str(BIN / program), *(self.word(word, service) for word in rest)]

    def environ(self, service: str, entry: Service) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("FLOTILLA_")}
        own = {k: self.text(v, service) for k, v in entry.get("environment", {}).items()}
        return {**inherited, **own}


@pytest.fixture
async def started(tmp_path: Path) -> AsyncIterator[dict[str, Process]]:
    """Processes that a test starts; ended when it is over."""
    processes: dict[str, Process] = {}
    yield processes
    for name in reversed(processes):
        await ended(processes[name])
        print(f"--- {name}\n{(tmp_path / f'{name}.log').read_text()[-3000:]}")  # noqa: T201


async def ended(process: Process) -> None:
    if process.returncode is None:
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), 20)
        except TimeoutError:
            process.kill()
            await process.wait()


def test_every_service_is_of_the_one_image_and_on_loopback() -> None:
    found = services()
    assert tuple(found) == ORDER
    for entry in found.values():
        assert entry["network_mode"] == "host"
        assert entry["image"] == "flotilla:0.1.0"
        assert "ports" not in entry
        listeners = [v for k, v in entry.get("environment", {}).items() if k.endswith("LISTEN")]
        assert all(listener.startswith("127.0.0.1:") for listener in listeners)


def test_every_service_keeps_its_state_in_a_volume() -> None:
    volumes = yaml.safe_load((ROOT / "compose.yaml").read_text())["volumes"]
    for name, entry in services().items():
        assert f"{name}:{STATE}" in entry["volumes"]
        assert name in volumes


def test_engines_inside_a_container_are_said_to_end_with_it() -> None:  # spec: A4
    assert services()["agent"]["environment"]["FLOTILLA_AGENT_SURVIVE"] == "off"


def test_the_image_holds_what_the_services_run() -> None:
    copied = re.findall(r"^COPY (\S+) \1$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert set(copied) == {"schemas", "services", "ctl", "tui", "deploy"}
    allowed = (ROOT / ".dockerignore").read_text().splitlines()
    assert all(f"!{folder}" in allowed for folder in copied)


def test_nats_is_configured_as_up_configures_it() -> None:
    written = (ROOT / "deploy" / "nats-server.conf").read_text()
    assert written == server.config(Path(f"{STATE}/nats"), 4222, monitor_port=8222)


async def test_each_service_runs_until_its_own_health_check_passes(
    tmp_path: Path, started: dict[str, Process]
) -> None:
    mapping = Mapping(tmp_path)
    for name, entry in services().items():
        (tmp_path / name).mkdir()
        environ = mapping.environ(name, entry)
        with (tmp_path / f"{name}.log").open("wb") as log:
            started[name] = await asyncio.create_subprocess_exec(
                *mapping.command(entry["command"], name),
                env=environ,
                cwd=tmp_path,
                stdout=log,
                stderr=log,
            )
        kind, *check = entry["healthcheck"]["test"]
        assert kind == "CMD"
        async with asyncio.timeout(CAP_SECONDS):
            while not await healthy(mapping.command(check, name), environ):
                assert started[name].returncode is None, f"{name} ended"


async def healthy(check: list[str], environ: dict[str, str]) -> bool:
    """What a container engine does at each interval."""
    process = await asyncio.create_subprocess_exec(*check, env=environ)
    return await process.wait() == 0
