"""The engine environments of this node: those of the configuration, else what is installed here."""

import importlib.metadata
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping

from schemas.documents import EngineOnNode
from schemas.ids import EngineName
from services.agent.engines.adapter import Environment
from services.fleet.settings import EngineCommand

VERSION_TIMEOUT_SECONDS = 20.0
_VERSION = re.compile(r"version:?\s+v?(\S+)", re.IGNORECASE)


def installed() -> tuple[Environment, ...]:
    """llama.cpp, where its wheel is beside us."""
    if importlib.util.find_spec("xllamacpp") is None:
        return ()
    return (
        Environment(
            name=EngineName("llamacpp"),
            kind="llamacpp",
            command=(sys.executable, "-m", "services.agent.llamacpp_server"),
            version=importlib.metadata.version("xllamacpp"),
        ),
    )


def configured(commands: Mapping[str, EngineCommand]) -> tuple[Environment, ...]:
    """Each with its stated version, else with what `--version` answers."""
    return tuple(
        Environment(
            name=EngineName(each.name),
            kind=each.kind,
            command=each.command,
            version=each.version or _ask_version(each.command),
        )
        for each in commands.values()
    )


def shown(environments: Iterable[Environment]) -> tuple[EngineOnNode, ...]:
    """As the node's document lists them."""
    return tuple(
        EngineOnNode(name=each.name, kind=each.kind, version=each.version) for each in environments
    )


def _ask_version(command: tuple[str, ...]) -> str:
    """Empty: it did not tell."""
    try:
        answer = subprocess.run(  # noqa: S603 - a command line of this node's configuration.
            [*command, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=VERSION_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    text = (answer.stdout + answer.stderr).decode(errors="replace")
    found = _VERSION.search(text)
    return found[1] if found and answer.returncode == 0 else ""
