"""The node's cards: what a probe read, and what class and health that means."""

import asyncio
import re
import sys

import msgspec
from msgspec import Struct

from schemas import codec
from schemas.documents import Card
from schemas.ids import GpuUuid, token

PROBE_SECONDS = 30.0

_FAMILY = re.compile(
    r"\b(gb\d{3}|gh\d{3}|[abhlt]\d{1,3}s?|v100|rtx (?:pro )?a?\d{4}(?: ada| ti)?)\b"
)
_IN_SIZES = frozenset(
    {"a100", "b200", "b300", "gb200", "gb300", "gh200", "h100", "h20", "h200", "v100"}
)
"""Families sold with different memories: the class names it."""


class Found(Struct, frozen=True):
    """One card as the probe saw it."""

    uuid: str
    name: str = ""
    memory_bytes: int = 0
    fault: str = ""


class Snapshot(Struct, frozen=True):
    """What one look gave. With a fault the cards are not known, which is not "none"."""

    cards: tuple[Found, ...] = ()
    fault: str = ""


async def look() -> Snapshot:
    """In a process that can be killed: a driver may hang."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "services.agent.gpu_probe",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            output, _ = await child.communicate()
    except TimeoutError:
        child.kill()
        return Snapshot(fault=f"the driver gave no answer in {PROBE_SECONDS:g} s")
    try:
        return codec.decode(output, Snapshot)
    except msgspec.DecodeError:
        return Snapshot(fault=f"the probe ended with code {child.returncode} and no answer")


def cards(snapshot: Snapshot) -> tuple[Card, ...]:
    """As the node's document shows them."""
    return tuple(
        Card(
            uuid=GpuUuid(found.uuid),
            gpu_class=gpu_class(found.name, found.memory_bytes),
            memory_bytes=found.memory_bytes,
            health="unhealthy" if found.fault else "healthy",
            reason=found.fault,
        )
        for found in snapshot.cards
    )


def gpu_class(name: str, memory_bytes: int) -> str:
    """What a profile asks for: `h100-80gb`, `l4`. An unknown product's class is its cleaned name."""
    known = _FAMILY.search(name.lower())
    if known is None:
        return token(name.lower().removeprefix("nvidia ")) if name else "unknown"
    family = known[1].replace(" ", "-")
    if family not in _IN_SIZES:
        return family
    return f"{family}-{-(-memory_bytes // (1 << 30))}gb"  # The driver keeps a part of the last GiB.
