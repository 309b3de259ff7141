"""Every recipe of docs/nats-cli.md, by the real `nats`, on a live fleet."""

import asyncio
import itertools
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fleet import LiveFleet, catalog_of, tiny_entry

PAGE = Path(__file__).parents[2] / "docs" / "nats-cli.md"
CACHED = (
    Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "flotilla/natscli-0.5.0/nats"
)

SHOWS = {
    'nats sub --stream FLOTILLA_LOG --since 1h --terminate-at-end --raw "flotilla.log.s.node.$NODE.>"': (
        '"type":"node.described"',
        '"type":"shard.ready"',
    ),
    'nats sub --stream FLOTILLA_LOG --since 1h --terminate-at-end --raw "flotilla.log.s.assignment.$NODE"': (
        '"type":"assignment.changed"',
    ),
    'nats stream get FLOTILLA_STATE --last-for "flotilla.log.s.assignment.$NODE"': (
        '"served_name":"tiny"',
    ),
    'nats sub "flotilla.live.s.*.$MODEL.>"': ('"type":"replica.',),
    'nats sub --stream FLOTILLA_STATE --last-per-subject --terminate-at-end --raw "flotilla.log.s.endpoints.$MODEL.*"': (
        '"type":"endpoints.published"',
        '"replica":"tiny-1-1"',
    ),
    'nats stream get FLOTILLA_STATE --last-for "flotilla.log.s.placement.$MODEL"': (
        '"verdict":"placed"',
    ),
    'nats sub --stream FLOTILLA_STATE --last-per-subject --terminate-at-end --raw "flotilla.log.s.replica.>"': (
        '"id":"tiny-0-1"',
        '"id":"tiny-1-1"',
    ),
    'nats sub --stream FLOTILLA_STATE --last-per-subject --terminate-at-end --raw "flotilla.log.s.node.*.shard.*"': (
        '"node":"node-1"',
        '"node":"node-2"',
    ),
    'nats sub --stream FLOTILLA_LOG --all --terminate-at-end --raw "flotilla.log.e.command.>"': (
        '"verb":"apply"',
        '"outcome":"accepted"',
    ),
    'nats sub --count 6 --raw "flotilla.beat.>"': ('"applied":', '"head":', '"assignment":'),
    "nats stream state FLOTILLA_LOG": ("Last Sequence: ",),
    "nats stream gaps FLOTILLA_LOG --json": ("No deleted messages in FLOTILLA_LOG",),
    'nats sub --stream FLOTILLA_LOG --since 10m --terminate-at-end --raw "flotilla.log.>"': (
        '"type":"log.begun"',
        '"type":"endpoints.published"',
    ),
    'nats sub --stream FLOTILLA_LOG --start-sequence "$SEQ" --terminate-at-end --subjects-only "flotilla.log.>"': (
        "flotilla.log.s.genesis",
        "flotilla.log.s.catalog",
    ),
    'nats stream get FLOTILLA_LOG "$SEQ"': ('"type":"log.begun"',),
    'nats request --raw --timeout 10s flotilla.rpc.control.rollback \'{"revision": 1, "reason": "the API is away"}\'': (
        '"kind":"Accepted"',
    ),
    'nats request --raw --timeout 10s flotilla.rpc.control.brake-off \'{"state": "off", "reason": "the switch is back"}\'': (
        '"code":"brake_is_off"',
    ),
    "nats stream ls": ("FLOTILLA_LOG", "FLOTILLA_CHECKPOINT"),
    "nats stream subjects FLOTILLA_STATE --names": ("flotilla.log.s.node.node-1.info",),
    "nats consumer ls FLOTILLA_LOG --names": ("(?m)^r[0-9a-f]{16}$",),
}
"""Patterns that each recipe's output must hold."""
ENDLESS = 'nats sub "flotilla.live.s.*.$MODEL.>"'


def nats() -> Path:
    """The binary: from PATH, or as `make nats-cli` built it."""
    if (found := shutil.which("nats")) is not None:
        return Path(found)
    if not CACHED.exists() and "NEEDS_NATS_CLI" not in os.environ:
        pytest.skip(f"no nats command line in PATH or at {CACHED}: `make nats-cli` builds it")
    return CACHED


def recipes() -> Iterator[str]:
    """The commands of the page, in order."""
    for block in re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL):
        yield from (line for line in block.splitlines() if line.startswith("nats "))


async def output_of(recipe: str, fleet: LiveFleet, expected: tuple[str, ...]) -> str:
    """Of a recipe, run as an operator would; an endless one is ended once it shows what it must."""
    words = {"NATS_URL": fleet.nats.url, "NODE": "node-1", "MODEL": "tiny", "SEQ": "1"}
    path = f"{nats().parent}:{os.environ['PATH']}"
    process = await asyncio.create_subprocess_exec(
        "bash",
        "-c",
        f"exec {recipe}",
        env=os.environ | words | {"PATH": path, "HOME": str(fleet.root)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    shown = ""
    try:
        async with asyncio.timeout(60):
            while data := await process.stdout.read(1 << 16):
                shown += data.decode()
                if recipe == ENDLESS and all(re.search(part, shown) for part in expected):
                    break
    finally:
        if process.returncode is None and recipe == ENDLESS:
            process.kill()
        code = await process.wait()
    assert recipe == ENDLESS or code == 0, shown
    return shown


async def shows(recipe: str, fleet: LiveFleet) -> None:
    shown = await output_of(recipe, fleet, SHOWS[recipe])
    for part in SHOWS[recipe]:
        assert re.search(part, shown), f"{part}\n{recipe}\n{shown}"


async def test_every_recipe_of_the_page_works(serving: LiveFleet, tiny_gguf: Path) -> None:
    # spec: O6
    assert set(recipes()) == set(SHOWS)
    for recipe in recipes():
        if recipe != ENDLESS:
            await shows(recipe, serving)
    async with asyncio.TaskGroup() as group:
        following = group.create_task(shows(ENDLESS, serving))
        for wanted in itertools.cycle((3, 2)):  # Whenever it begins to listen, there is news.
            if following.done():
                break
            await serving.apply(catalog_of(tiny_entry("tiny", tiny_gguf, replicas=wanted)))
            await serving.until_ready("tiny", wanted)
