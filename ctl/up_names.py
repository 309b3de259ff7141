"""What this machine's agent and router will call themselves: by their own settings, as they read them."""

import platform
from pathlib import Path

from ctl.settings import settings
from schemas.ids import NodeId, RouterId


def node_here(config: Path | None) -> NodeId:
    """Of this machine's agent."""
    found = settings("agent", config=config)
    return NodeId(found.text("agent.node") if found.has("agent.node") else platform.node())


def router_here(config: Path | None) -> RouterId | None:
    """None: it makes its name on its first start."""
    found = settings("router", config=config)
    return RouterId(found.text("router.name")) if found.has("router.name") else None
