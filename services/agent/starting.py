"""Starts the engine of one shard, or says why it cannot be started."""

import asyncio
import errno
import os
import socket
from pathlib import Path

from msgspec import Struct

from schemas.documents import LastError, LaunchSpec
from services.agent import engine_log, process, secrets
from services.agent.engines.adapter import Environment, refusal
from services.agent.engines.table import ADAPTERS
from services.agent.host import Host
from services.agent.shard import Life, Started


class Begun(Struct, frozen=True):
    """An engine that runs, and what its output may hold that nobody must see."""

    started: Started
    secrets: tuple[str, ...]


async def start(life: Life, host: Host) -> Begun | LastError:
    """Its process is there when this returns; whether it will serve is another question."""
    launch, store = life.order.launch, host.store
    environment = _environment(launch, host)
    if isinstance(environment, LastError):
        return environment
    command = ADAPTERS[launch.kind].command(launch, environment)
    resolved = secrets.resolve(launch.env, host.secrets_folder, os.environ)
    if isinstance(command, LastError):
        return command
    if isinstance(resolved, LastError):
        return resolved
    log, exit_file = store.log(life.replica), store.exit_file(life.replica)
    await host.disk.keep(f"log of {life.replica}", lambda: engine_log.shorten(log))
    env = {**resolved.env, **command.env, **process.mark(life, store.data)}
    try:
        begins = await asyncio.to_thread(_prepare, log, exit_file)
        if (reason := _obstacle(life, host)) is not None:
            return reason
        began = await process.spawn(command.argv, env, log, exit_file)
    except OSError as error:
        return LastError(failure="start_failed", message=f"{command.argv[0]}: {error}")
    seal = secrets.seal(resolved.secrets)
    return Begun(Started(began, environment.version, begins, seal), resolved.secrets)


def _prepare(log: Path, exit_file: Path) -> int:
    """Where this run's part of the log begins."""
    exit_file.unlink(missing_ok=True)
    return engine_log.size_of(log)


def _environment(launch: LaunchSpec, host: Host) -> Environment | LastError:
    found = host.environments.get(launch.engine)
    if found is None:
        return refusal("engine_missing", f"no engine environment {launch.engine} on this node")
    if launch.version and found.version != launch.version:
        has = found.version or "an unknown version"
        wants = f"{launch.engine} {launch.version} is asked for, this node has {has}"
        return refusal("engine_version", wants)
    return found


def _obstacle(life: Life, host: Host) -> LastError | None:
    """What another process holds; it may let go."""
    other = host.in_the_way(life)
    if other is not None:
        return LastError(failure="gpu_held", message=f"{other} still uses one of its cards")
    launch = life.order.launch
    try:
        with socket.socket(_family(launch.host)) as attempt:
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            attempt.bind((launch.host, launch.port))
    except OSError as error:
        name = "port_in_use" if error.errno == errno.EADDRINUSE else "address_unusable"
        at = f"{launch.host}:{launch.port}"
        return LastError(failure=name, message=f"{at}: {error.strerror}")
    return None


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
