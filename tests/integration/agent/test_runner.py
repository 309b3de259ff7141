# ruff: noqa: ASYNC220, ASYNC240 - a few small files and processes.
"""One shard with the real llama.cpp engine: start, drain, stop, adoption, failures."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from msgspec.structs import replace

from schemas import codec
from schemas.documents import ProcessIdentity, Progress, SecretRef
from schemas.ids import ReplicaId
from services.agent import clock, shard
from services.agent.sessions import end, orphans, stop_all
from services.runtime import proc
from tests.support.ports import free_port
from tests.support.shards import OneShard, an_order, drained, engines, one_shard
from tests.support.waiting import until


@pytest_asyncio.fixture
async def one(tmp_path: Path) -> AsyncIterator[OneShard]:
    async with one_shard(tmp_path) as shard_:
        yield shard_


async def complete(one: OneShard, tokens: int = 1) -> int:
    port = one.life.order.launch.port
    body = {"model": "tiny", "prompt": "a", "max_tokens": tokens}
    url = f"http://127.0.0.1:{port}/v1/completions"
    async with one.http.post(url, json=body, timeout=aiohttp.ClientTimeout(60)) as answer:
        await answer.read()
        return answer.status


async def busy(one: OneShard) -> list[asyncio.Task[int]]:
    """Requests under way, enough for the agent to have seen one, on a fast machine and on a slow one."""
    requests: list[asyncio.Task[int]] = []

    def seen() -> bool:
        if all(request.done() for request in requests[-2:]):
            requests.extend(asyncio.ensure_future(complete(one, 2000)) for _ in range(2))
        return one.runner is not None and bool(one.runner.load.running)

    await one.until(seen)
    return requests


async def test_a_shard_becomes_ready_by_a_real_answer(one: OneShard, tiny_gguf: Path) -> None:
    # spec: A2 A3
    one.start(an_order(str(tiny_gguf), free_port()))
    life = await one.until_phase("ready")
    assert await complete(one) == 200
    assert one.phases()[-1] == "ready"
    assert one.phases()[0] == "starting"
    assert life.engine_version
    assert life.error is None
    await one.until(lambda: one.runner is not None and one.runner.load.running is not None)


async def test_a_stop_leaves_no_process_of_the_session(one: OneShard, tiny_gguf: Path) -> None:
    # spec: A2
    one.start(an_order(str(tiny_gguf), free_port()))
    await one.until_phase("ready")
    assert len(engines(one.store.data)) == 2  # Shim and engine.
    one.send(shard.Dropped())
    life = await one.until_phase("stopped")
    assert life.exit_code == 0
    assert engines(one.store.data) == []
    assert one.phases()[-2:] == ["stopping", "stopped"]
    assert one.tails == []


async def test_a_drain_waits_for_a_running_stream(one: OneShard, tiny_gguf: Path) -> None:
    # spec: R7
    order = an_order(str(tiny_gguf), free_port(), args={"ctx-size": "32768"})
    one.start(order)
    await one.until_phase("ready")
    requests = await busy(one)
    one.send(shard.Ordered(drained(order)))
    await one.until(lambda: one.life.phase != "ready")
    assert all(request.done() and request.result() == 200 for request in requests)
    await one.until_phase("stopped")


async def test_a_drain_ends_at_its_deadline_even_when_busy(one: OneShard, tiny_gguf: Path) -> None:
    # spec: R5
    order = an_order(str(tiny_gguf), free_port(), args={"ctx-size": "32768"})
    one.start(order)
    await one.until_phase("ready")
    requests = await busy(one)
    one.send(shard.Ordered(drained(order, 0.0)))
    await one.until(lambda: one.life.phase in ("stopping", "stopped"))
    assert not all(request.done() for request in requests)
    await one.until_phase("stopped")
    await asyncio.gather(*requests, return_exceptions=True)


async def test_a_new_agent_adopts_the_engine_of_the_old(one: OneShard, tiny_gguf: Path) -> None:
    # spec: A4
    one.start(an_order(str(tiny_gguf), free_port()))
    await one.until_phase("ready")
    before = one.process
    await one.end_agent()
    assert await complete(one) == 200
    one.resume()
    await one.until(lambda: one.told)
    assert one.process == before
    assert one.phases() == ["ready"]
    assert await complete(one) == 200


async def test_what_died_meanwhile_is_told_and_started_again(
    one: OneShard, tiny_gguf: Path
) -> None:  # spec: A4 R6
    one.start(an_order(str(tiny_gguf), free_port()))
    await one.until_phase("ready")
    before = one.process
    await one.end_agent()
    os.kill(before.engine.pid, signal.SIGKILL)
    await until(lambda: engines(one.store.data) == [])
    one.resume()
    life = await one.until_phase("failed")
    assert life.error is not None
    assert (life.error.failure, life.error.exit_code) == ("killed", -9)
    life = await one.until_phase("ready")
    assert (life.run, life.failures, life.error) == (1, 1, None)
    assert one.process.engine.pid != before.engine.pid


async def test_an_engine_survives_its_shim_and_is_still_ended(
    one: OneShard, tiny_gguf: Path
) -> None:  # spec: A4
    one.start(an_order(str(tiny_gguf), free_port()))
    await one.until_phase("ready")
    before = one.process
    await one.end_agent()
    os.kill(before.leader.pid, signal.SIGKILL)
    await until(lambda: not proc.is_alive(before.leader))
    one.resume()
    await one.until_phase("ready")
    assert await complete(one) == 200
    one.send(shard.Dropped())
    await one.until_phase("stopped")
    assert engines(one.store.data) == []


async def test_a_start_that_no_state_file_saw_is_found_by_its_mark(
    one: OneShard, tiny_gguf: Path
) -> None:  # spec: A4
    one.start(an_order(str(tiny_gguf), free_port()))
    await one.until_phase("ready")
    before = one.process
    await one.end_agent()
    one.store.save(replace(one.life, phase="starting", process=None))
    one.resume()
    await one.until_phase("ready")
    assert one.process == before


async def test_a_stranger_with_a_reused_pid_is_never_signalled(
    one: OneShard, tiny_gguf: Path
) -> None:  # spec: A4
    stranger = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        real = proc.identify(stranger.pid)
        assert real is not None
        earlier = replace(real, start_ticks=real.start_ticks - 1)
        order = an_order(str(tiny_gguf), free_port())
        life, _ = shard.begin(order, slot=0, now=clock.now())
        process = shard.Process(leader=earlier, engine=earlier)
        one.store.save(replace(life, phase="ready", process=process))
        one.resume()
        life = await one.until_phase("failed")  # Its engine is gone; nothing else is.
        one.send(shard.Dropped())
        await one.until_phase("stopped")
        assert not proc.send(earlier, signal.SIGKILL)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


async def test_a_reboot_is_no_failure(one: OneShard, tiny_gguf: Path) -> None:  # spec: A4
    life, _ = shard.begin(an_order(str(tiny_gguf), free_port()), slot=0, now=clock.now())
    before = ProcessIdentity(boot_id="another", pid=os.getpid(), start_ticks=1)
    process = shard.Process(leader=before, engine=before)
    one.store.save(replace(life, phase="ready", process=process))
    one.resume()
    life = await one.until_phase("ready")
    assert (life.run, life.failures) == (1, 0)


async def test_orphans_are_ended(one: OneShard, tiny_gguf: Path) -> None:  # spec: A4
    one.start(an_order(str(tiny_gguf), free_port()))
    await one.until_phase("ready")
    life = one.life
    await one.end_agent()
    assert orphans(one.store, [life]) == []
    assert len(engines(one.store.data)) == 2
    await end(orphans(one.store, []))
    assert engines(one.store.data) == []


async def test_engines_stopped_with_the_agent_start_again_with_it(
    one: OneShard, tiny_gguf: Path
) -> None:  # spec: O7
    one.start(an_order(str(tiny_gguf), free_port()))
    await one.until_phase("ready")
    await one.end_agent()
    assert await stop_all(one.store, now=clock.now(), grace_seconds=5.0) == 1
    assert engines(one.store.data) == []
    one.resume()
    life = await one.until_phase("ready")
    assert (life.run, life.failures) == (1, 0)


async def test_an_engine_whose_start_no_state_file_saw_is_stopped_too(
    one: OneShard, tiny_gguf: Path
) -> None:  # spec: O7
    one.start(an_order(str(tiny_gguf), free_port()))
    life = await one.until_phase("ready")
    await one.end_agent()
    one.store.save(replace(life, phase="starting", process=None))
    assert await stop_all(one.store, now=clock.now(), grace_seconds=5.0) == 1
    assert engines(one.store.data) == []


@pytest.mark.parametrize(
    ("content", "failure"), [(None, "model_not_found"), (b"garbage" * 100, "model_corrupt")]
)
async def test_a_missing_or_corrupt_model_waits_for_a_change(
    one: OneShard, tmp_path: Path, tiny_gguf: Path, content: bytes | None, failure: str
) -> None:  # spec: R6 A3
    model = tmp_path / "model.gguf"
    if content is not None:
        model.write_bytes(content)
    order = an_order(str(model), free_port())
    one.start(order)
    life = await one.until_phase("failed")
    assert life.error is not None
    assert (life.error.failure, life.error.permanent) == (failure, True)
    assert life.retry_at is None
    assert life.error.exit_code == 1
    assert "gguf" in life.error.log
    ((replica, said),) = one.tails  # Once a failure.
    assert replica == life.replica
    assert life.error.log in said
    changed = replace(order, launch=replace(order.launch, source=str(tiny_gguf)))
    one.send(shard.Ordered(changed))
    life = await one.until_phase("ready")
    assert life.error is None


async def test_a_cut_model_is_corrupt(one: OneShard, tmp_path: Path, tiny_gguf: Path) -> None:
    # spec: R6
    model = tmp_path / "cut.gguf"
    model.write_bytes(tiny_gguf.read_bytes()[:100_000])
    one.start(an_order(str(model), free_port()))
    life = await one.until_phase("failed")
    assert life.error is not None
    assert life.error.failure == "model_corrupt"


async def test_a_wrong_flag_is_named(one: OneShard, tiny_gguf: Path) -> None:  # spec: R6
    one.start(an_order(str(tiny_gguf), free_port(), args={"no-such-flag": "1"}))
    life = await one.until_phase("failed")
    assert life.error is not None
    assert life.error.failure == "bad_argument"
    assert "--no-such-flag" in life.error.message


async def test_a_taken_port_is_told_and_tried_again(one: OneShard, tiny_gguf: Path) -> None:
    # spec: A3
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        one.start(an_order(str(tiny_gguf), taken.getsockname()[1]))
        life = await one.until_phase("failed")
        assert life.error is not None
        assert (life.error.failure, life.error.permanent) == ("port_in_use", False)
    await one.until_phase("ready")


async def test_a_stranger_on_the_port_makes_no_shard_ready(one: OneShard, tiny_gguf: Path) -> None:
    # spec: A3
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.agent.llamacpp_server",
        *("-m", str(tiny_gguf), "--port", "0", "--alias", "tiny"),
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert other.stderr is not None
        port = 0
        async for line in other.stderr:
            if b"llamacpp-server: listening" in line:
                port = int(line.rpartition(b":")[2])
                break
        life, _ = shard.begin(an_order(str(tiny_gguf), port), slot=0, now=clock.now())
        sleeper = subprocess.Popen(["sleep", "600"], start_new_session=True)
        identity = proc.identify(sleeper.pid)
        assert identity is not None
        process = shard.Process(leader=identity, engine=identity)
        one.store.save(replace(life, process=process))
        one.resume()
        await one.until_phase("loading")
        assert await complete(one) == 200
        assert one.life.progress == Progress(
            step=f"not ready: port {port} belongs to another process"
        )
        sleeper.kill()
        await one.until_phase("failed")
        sleeper.wait()
    finally:
        other.kill()
        await other.wait()


async def test_one_that_answers_no_real_request_is_not_ready(
    one: OneShard, tiny_gguf: Path
) -> None:  # spec: A3
    order = an_order(str(tiny_gguf), free_port())
    one.start(replace(order, launch=replace(order.launch, task="embed")))
    await one.until(lambda: one.told and one.life.progress and "Pooling" in one.life.progress.step)
    assert one.life.phase == "loading"


async def test_an_embedder_becomes_ready_by_an_embedding(one: OneShard, tiny_gguf: Path) -> None:
    # spec: A2
    order = an_order(str(tiny_gguf), free_port(), args={"pooling": "mean"})
    one.start(replace(order, launch=replace(order.launch, task="embed")))
    await one.until_phase("ready")


async def test_a_secret_reaches_the_engine_and_nothing_else(
    one: OneShard, tiny_gguf: Path
) -> None:  # spec: W2
    folder = one.store.data / "secrets"
    folder.mkdir()
    (folder / "hf-token").write_text("s3cr3t-value\n")
    (folder / "hf-token").chmod(0o600)
    env: dict[str, str | SecretRef] = {"HF_TOKEN": SecretRef(secret="hf-token"), "PLAIN": "seen"}
    one.start(an_order(str(tiny_gguf), free_port(), env=env))
    await one.until_phase("ready")
    environ = proc.environ(one.process.engine.pid)
    assert (environ["HF_TOKEN"], environ["PLAIN"]) == ("s3cr3t-value", "seen")
    argv = Path(f"/proc/{one.process.engine.pid}/cmdline").read_bytes()
    assert b"s3cr3t" not in argv
    written = [path for path in one.store.data.rglob("*") if path.is_file()]
    assert [path.name for path in written if b"s3cr3t" in path.read_bytes()] == ["hf-token"]


async def test_what_an_engine_says_of_its_secrets_is_struck_out(
    one: OneShard, tiny_gguf: Path
) -> None:  # spec: A3 W2
    folder = one.store.data / "secrets"
    folder.mkdir()
    (folder / "hf-token").write_text("s3cr3t-value")
    (folder / "hf-token").chmod(0o600)
    (name, environment) = next(iter(one.environments.items()))
    talker = ("sh", "-c", "echo error: invalid argument: $HF_TOKEN >&2; exit 3")
    one.environments = {name: replace(environment, command=talker)}
    env: dict[str, str | SecretRef] = {"HF_TOKEN": SecretRef(secret="hf-token")}
    one.start(an_order(str(tiny_gguf), free_port(), env=env))
    life = await one.until_phase("failed")
    assert life.error is not None
    assert life.error.message.startswith("error: invalid argument: [secret]")
    assert life.error.log == "error: invalid argument: [secret]"
    assert life.error.exit_code == 3
    before = life.error
    await one.end_agent()
    one.resume()  # A new agent goes on reporting it.
    life = await one.until_phase("failed")
    assert life.error == before
    assert one.tails == [(life.replica, before.log)]


CANARY = "c4n4ry-v4lue"


def put_secret(one: OneShard, value: str) -> Path:
    path = one.store.data / "secrets" / "hf-token"
    path.parent.mkdir(exist_ok=True)
    path.write_text(value)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("meanwhile", ["kept", "removed", "replaced"])
async def test_no_secret_of_an_engine_that_died_without_an_agent_is_told(
    one: OneShard, tiny_gguf: Path, meanwhile: str
) -> None:  # spec: A3 W2
    secret = put_secret(one, CANARY)
    (name, environment) = next(iter(one.environments.items()))
    talker = ("sh", "-c", "echo error: invalid argument: $HF_TOKEN >&2; exec sleep 600")
    one.environments = {name: replace(environment, command=talker)}
    env: dict[str, str | SecretRef] = {"HF_TOKEN": SecretRef(secret="hf-token")}
    one.start(an_order(str(tiny_gguf), free_port(), env=env))
    log = one.store.log(ReplicaId("tiny-0-1"))
    await until(lambda: log.exists() and CANARY in log.read_text())
    await one.until(lambda: one.told and one.life.process is not None)
    before = one.process
    await one.end_agent()
    os.kill(before.engine.pid, signal.SIGKILL)
    await until(lambda: engines(one.store.data) == [])
    if meanwhile == "removed":
        secret.unlink()
    elif meanwhile == "replaced":
        secret.write_text("another")
    one.resume()
    life = await one.until_phase("failed")
    assert life.error is not None
    assert (life.error.failure, life.error.exit_code) == ("bad_argument", -9)
    assert CANARY not in "".join(codec.encode(told).decode() for told in one.told)
    if meanwhile == "kept":
        assert life.error.log == "error: invalid argument: [secret]"
        assert one.tails == [(life.replica, life.error.log)]
    else:
        assert life.error.log == ""
        assert one.tails == []
        assert "withheld" in life.error.message


async def test_a_disk_that_refuses_ends_nobody_and_hides_a_stop_alone(
    one: OneShard, tiny_gguf: Path
) -> None:  # spec: A4
    order = an_order(str(tiny_gguf), free_port())
    one.start(order)
    await one.until_phase("ready")
    in_its_way = one.store.data / "agent" / "shards" / f".tiny-0-1.json.{os.getpid()}.tmp"
    in_its_way.mkdir()
    os.kill(one.process.engine.pid, signal.SIGKILL)
    await one.until_phase("failed")
    assert one.disk.fault
    await one.until(lambda: one.life.phase == "ready" and one.life.run == 1)
    one.send(shard.Dropped())
    await one.until(lambda: engines(one.store.data) == [])
    await one.until(lambda: one.runner is not None and one.runner.life.phase == "stopped")
    assert one.life.phase == "stopping"
    in_its_way.rmdir()
    await one.until_phase("stopped")
    assert one.disk.fault == ""
    (kept,) = one.store.load()
    assert kept.phase == "stopped"


async def test_a_command_that_is_not_there_is_told(one: OneShard, tiny_gguf: Path) -> None:
    (name, environment) = next(iter(one.environments.items()))
    one.environments = {name: replace(environment, command=("/no/such/engine",))}
    one.start(an_order(str(tiny_gguf), free_port()))
    life = await one.until_phase("failed")
    assert life.error is not None
    assert life.error.exit_code == 127
    assert "/no/such/engine" in life.error.message


async def test_another_version_than_the_pinned_one_is_not_started(
    one: OneShard, tiny_gguf: Path
) -> None:  # spec: W3
    order = an_order(str(tiny_gguf), free_port())
    one.start(replace(order, launch=replace(order.launch, version="0.0.1")))
    life = await one.until_phase("failed")
    assert life.error is not None
    assert (life.error.failure, life.error.permanent) == ("engine_version", True)
    assert "0.0.1" in life.error.message


async def test_an_engine_that_the_node_lacks_is_named(one: OneShard, tiny_gguf: Path) -> None:
    # spec: W3
    one.environments = {}
    one.start(an_order(str(tiny_gguf), free_port()))
    life = await one.until_phase("failed")
    assert life.error is not None
    assert (life.error.failure, life.error.permanent) == ("engine_missing", True)


async def test_a_card_that_another_live_shard_uses_is_not_taken(
    one: OneShard, tiny_gguf: Path
) -> None:  # spec: P5
    one.in_the_way = ReplicaId("other-0-1")
    one.start(an_order(str(tiny_gguf), free_port()))
    life = await one.until_phase("failed")
    assert life.error is not None
    assert (life.error.failure, life.error.permanent) == ("gpu_held", False)
    one.in_the_way = None
    await one.until_phase("ready")


async def test_a_missing_secret_is_named_and_waits_for_a_change(
    one: OneShard, tiny_gguf: Path
) -> None:  # spec: W2
    order = an_order(str(tiny_gguf), free_port(), env={"HF_TOKEN": SecretRef(secret="hf-token")})
    one.start(order)
    life = await one.until_phase("failed")
    assert life.error is not None
    assert (life.error.failure, life.error.permanent) == ("secret_missing", True)
    assert "hf-token" in life.error.message


async def test_an_engine_without_a_live_process_leaves_its_exit_in_a_file(
    one: OneShard, tiny_gguf: Path
) -> None:  # spec: A4
    one.start(an_order(str(tiny_gguf), free_port()))
    await one.until_phase("ready")
    exit_file = one.store.exit_file(one.life.replica)
    await one.end_agent()
    os.kill(one.process.engine.pid, signal.SIGKILL)
    await until(exit_file.exists)
    assert json.loads(exit_file.read_text())["rc"] == -9
