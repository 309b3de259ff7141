"""With users: an operator reads the log into files and verifies it; an administrator alone imports."""

import sys
from asyncio import create_subprocess_exec
from asyncio.subprocess import PIPE
from pathlib import Path

from services.control.checkpoint import write as write_checkpoint
from services.log.connect import Connection
from services.log.streams import create
from services.runtime.failure import Exit
from tests.support.doors import Doors
from tests.support.nats_server import NatsServer
from tests.support.past import age_away, begun, written


async def run(*words: str) -> tuple[int, str]:
    command = ("-m", "services.journal", *words)
    program = await create_subprocess_exec(sys.executable, *command, stdout=PIPE, stderr=PIPE)
    out, err = await program.communicate()
    assert program.returncode is not None
    return program.returncode, (out + err).decode()


async def test_an_operator_exports_and_verifies_and_does_not_import(tmp_path: Path) -> None:
    doors = Doors(tmp_path / "doors", "admin", "operator.cli")
    server = NatsServer(tmp_path / "nats", users=doors.text)
    server.start()
    connection = Connection(doors.door(server.url, "admin"), "test")
    try:
        await connection.start()
        await connection.wait_connected()
        await create(connection)
        past = begun().pass_by(60)
        await written(connection, past)
        await write_checkpoint(connection, 1_800_000_000.0)
        await written(connection, past.pass_by(5))
        await age_away(connection, 30)
        door = ["--nats-url", server.url, "--nats-user", "operator.cli"]
        door += ["--nats-password-file", str(doors.password_file("operator.cli"))]
        folder = str(tmp_path / "journal")
        code, told = await run("export", folder, "--since", "2026-01-01T00:00:00Z", *door)
        assert (code, "38 events added" in told) == (Exit.YES, True), told
        code, told = await run("verify", *door)
        assert (code, "1 checkpoints" in told) == (Exit.YES, True), told
        await written(connection, past.pass_by(3))
        code, told = await run("export", folder, *door)
        assert (code, told.splitlines()[0]) == (Exit.YES, "3 events added behind 67"), told
        code, told = await run("import", folder, *door)
        assert (code, "[denied]" in told) == (Exit.UNREACHABLE, True), told
    finally:
        await connection.close()
        server.kill()
