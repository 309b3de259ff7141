"""A whole fleet of real processes on loopback: nats-server, control, routers, agents, engines."""

import asyncio
import json
import os
import signal
from pathlib import Path
from types import TracebackType
from typing import Any

import aiohttp

from tests.support.doors import Doors
from tests.support.nats_server import NatsServer
from tests.support.ports import free_ports, free_range
from tests.support.programs import Program
from tests.support.waiting import eventually

ENGINE_MARK = b"FLOTILLA_REPLICA="


def engines_under(folder: Path) -> list[int]:
    """Pids of every engine or shim process whose state lies under `folder`."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environ = (entry / "environ").read_bytes()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if ENGINE_MARK in environ and str(folder).encode() in environ and state not in "ZX":
            found.append(int(entry.name))
    return found


class LiveFleet:
    """Programs by name: `control-1`, `router-1`, `node-1`, … Started and ended one by one or all."""

    def __init__(self, root: Path, *, users: bool = False) -> None:
        """`users`: each program is let into NATS as its own user and may do no more than that one."""
        self.root = root
        self.logs = root / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.doors = Doors(root / "doors", "admin") if users else None
        self.nats = NatsServer(root / "nats", users=self.doors.text if self.doors else "")
        self.nats_url = ""
        """Where programs find it, if not where it is: a proxy."""
        self.programs: dict[str, Program] = {}
        self._addresses: dict[str, str] = {}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "LiveFleet":
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10))
        await asyncio.to_thread(self.nats.start)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._session is not None
        await self._session.close()
        for program in self.programs.values():
            program.kill()
        for pid in engines_under(self.root):
            os.kill(pid, signal.SIGKILL)
        await asyncio.to_thread(self.nats.stop)
        if kind is not None:
            for program in self.programs.values():
                print(f"--- {program.name}\n{program.tail()}")  # noqa: T201

    @property
    def http(self) -> aiohttp.ClientSession:
        assert self._session is not None
        return self._session

    def add_control(self, name: str = "control-1", **settings: str) -> Program:
        (port,) = free_ports(1)
        env = {"CONTROL_LISTEN": f"127.0.0.1:{port}"}
        return self._add(name, "control", env | settings, f"127.0.0.1:{port}")

    def add_router(self, name: str = "router-1") -> Program:
        client, admin = free_ports(2)
        env = {
            "ROUTER_LISTEN": f"127.0.0.1:{client}",
            "ROUTER_ADMIN_LISTEN": f"127.0.0.1:{admin}",
            "ROUTER_REPORT_INTERVAL": "1s",
        }
        self._addresses[f"{name}/admin"] = f"127.0.0.1:{admin}"
        return self._add(name, "router", env, f"127.0.0.1:{client}")

    def add_node(self, name: str = "node-1", **settings: str) -> Program:
        (port,) = free_ports(1)
        first, last = free_range(20)
        env = {
            "AGENT_NODE": name,
            "AGENT_LISTEN": f"127.0.0.1:{port}",
            "AGENT_PORTS": f"{first}-{last}",
            "AGENT_CORES": "8",
        }
        return self._add(name, "agent", env | settings, f"127.0.0.1:{port}")

    def _add(self, name: str, module: str, env: dict[str, str], address: str) -> Program:
        common = {
            "FLOTILLA_NATS_URL": self.nats_url or self.nats.url,
            "FLOTILLA_DATA_DIR": str(self.root / name),
            f"FLOTILLA_{module.upper()}_NAME": name,
        }
        if module == "agent":
            del common["FLOTILLA_AGENT_NAME"]
        if self.doors:
            common |= self._admitted("control" if module == "control" else f"{module}.{name}")
        own = {f"FLOTILLA_{key}": value for key, value in env.items()}
        program = Program(name, f"services.{module}", common | own, self.logs)
        self.programs[name] = program
        self._addresses[name] = address
        program.start()
        return program

    def _admitted(self, user: str) -> dict[str, str]:
        """Settings of a program that NATS lets in."""
        assert self.doors is not None
        if user not in self.doors.names:
            self.doors.admit(user)
            self.nats.reload(self.doors.text)
        return self.doors.settings(user)

    def base_url(self, router: str = "router-1") -> str:
        """What an OpenAI client is given."""
        return f"http://{self._addresses[router]}/v1"

    def address(self, program: str) -> str:
        """host:port of its listener; `<router>/admin` for a router's admin listener."""
        return self._addresses[program]

    def token(self, control: str = "control-1") -> str:
        """The admin token that control made on its first start."""
        return (self.root / control / "control" / "admin.token").read_text().strip()

    async def call(
        self, path: str, body: object = None, control: str = "control-1"
    ) -> tuple[int, dict[str, Any]]:
        """A request to the management API; GET without a body, else POST."""
        async with self.http.request(
            "GET" if body is None else "POST",
            f"http://{self._addresses[control]}/api/v1/{path}",
            headers={"Authorization": f"Bearer {self.token(control)}"},
            data=None if body is None else json.dumps(body),
        ) as response:
            return response.status, json.loads(await response.read())

    async def ask(self, path: str, control: str = "control-1") -> dict[str, Any] | None:
        """A GET whose failure is no answer: for conditions that are waited for."""
        try:
            status, answer = await self.call(path, control=control)
        except (aiohttp.ClientError, OSError, TimeoutError):
            return None
        return answer if status == 200 else None

    async def apply(self, catalog: str, *, prune: tuple[str, ...] = ()) -> dict[str, Any]:
        """Make `catalog` the current one; fails when it is refused."""
        status, answer = await self.call("catalog", {"source": catalog, "prune": list(prune)})
        assert status in (200, 202), answer
        return answer

    async def until_up(self, control: str = "control-1") -> None:
        """Until control leads and answers."""

        async def leading() -> bool:
            answer = await self.ask("status", control)
            return bool(answer and answer["leading"])

        await eventually(leading, f"{control} leads")

    async def until_nodes(self, *names: str) -> None:
        """Until these nodes have registered."""

        async def registered() -> bool:
            answer = await self.ask("nodes")
            return answer is not None and {row["node"] for row in answer["items"]} == set(names)

        await eventually(registered, f"nodes {names} are registered")

    async def until_ready(self, model: str, count: int, cap: float = 60.0) -> list[dict[str, Any]]:
        """Until `count` replicas of the model are ready and routed; their rows."""

        async def ready() -> list[dict[str, Any]] | None:
            answer = await self.ask("replicas")
            rows = [
                row
                for row in (answer or {"items": []})["items"]
                if row["model"] == model and row["phase"] == "ready" and row.get("routed")
            ]
            return rows if len(rows) == count else None

        return await eventually(ready, f"{count} ready replicas of {model}", cap)

    async def until_served(self, model: str, router: str = "router-1") -> None:
        """Until the router answers for the model."""

        async def served() -> bool:
            body = {"model": model, "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}
            try:
                async with self.http.post(
                    f"{self.base_url(router)}/chat/completions", json=body
                ) as response:
                    return response.status == 200
            except (aiohttp.ClientError, OSError, TimeoutError):
                return False

        await eventually(served, f"{router} serves {model}")

    async def engine_pids(self) -> dict[str, int]:
        """Pid of each live shard's engine, by replica, as the agents reported it."""
        answer = await self.ask("state")
        assert answer is not None
        documents = answer["state"]["documents"]
        return {
            held["document"]["replica"]: held["document"]["process"]["pid"]
            for name, held in documents.items()
            if name.startswith("shards.") and held["document"]["phase"] == "ready"
        }


def tiny_entry(name: str, model: Path, replicas: int = 2, **settings: str) -> str:
    """One entry of a catalog: `name` on llama.cpp, with further settings as lines."""
    lines = {
        "engine": "llamacpp",
        "source": str(model),
        "replicas": str(replicas),
        "cpu": "{cores: 0.5, memory: 128MiB}",
    } | settings
    return f"  {name}:\n" + "".join(f"    {key}: {value}\n" for key, value in lines.items())


def catalog_of(*entries: str) -> str:
    """A catalog file."""
    return "models:\n" + "".join(entries)
