"""`flotilla up` from start to end: what it prints, keeps, remembers, and leaves behind."""

import json
import os
import re
import shutil
import signal
import socket
import time
from pathlib import Path

from ctl.failure import Exit
from tests.support.tiny_gguf import tiny_gguf as tiny_gguf
from tests.support.up import Up, answered
from tests.support.up import up as up
from tests.support.waiting import blocking_until

CASES = Path(__file__).parents[2] / "data" / "catalogs"
STOP_SECONDS = 15.0


def test_a_terminal_that_closes_leaves_nothing(up: Up) -> None:  # spec: O7
    mine, theirs = os.openpty()
    up.start(terminal=theirs)
    os.close(theirs)
    while b"Ctrl-C stops everything" not in up.read_terminal(mine):
        assert up.running
    assert len(up.engines()) > 0
    os.close(mine)
    assert up.end(signal.SIGHUP) == Exit.YES
    assert up.processes() == {}


def test_up_serves_a_model_and_ctrl_c_leaves_nothing(up: Up) -> None:  # spec: O7
    up.start()
    told = up.until_told("Ctrl-C stops everything")
    assert f"http://127.0.0.1:{up.router}/v1" in told
    assert "curl " in told
    assert answered(up.router)
    status = up.ask("status")
    assert (status["models"], status.get("warnings", [])) == ({"ready": 1}, [])
    assert len(up.engines()) > 0

    began = time.monotonic()
    assert up.end(signal.SIGINT) == Exit.YES
    assert time.monotonic() - began < STOP_SECONDS
    assert up.processes() == {}


def test_an_operators_day_at_a_real_control(up: Up, tmp_path: Path) -> None:
    # spec: C1, C7, C9, O3, P6
    up.start()
    up.until_told("Ctrl-C stops everything")

    shown = up.flotilla("catalog", "show")
    same = tmp_path / "same.yaml"
    same.write_text(shown.stdout)
    again = up.flotilla("catalog", "apply", str(same))
    assert (again.returncode, again.stdout) == (0, "unchanged: this is catalog r1 already\n")

    for case in ("CC-01", "CC-03", "CC-05", "HR-01-half"):
        bad = up.flotilla("catalog", "apply", str(CASES / f"{case}.yaml"))
        assert bad.returncode == Exit.USAGE
        assert f"{case}.yaml:" in bad.stderr
        assert "hint: " in bad.stderr
    assert up.ask("status")["catalogRevision"] == 1

    other = tmp_path / "other.yaml"
    other.write_text(shown.stdout.replace("tiny:", "small:"))
    refused = up.flotilla("catalog", "apply", str(other))
    assert refused.returncode == Exit.REFUSED
    (step,) = re.findall(r"next: (?:uv run )?flotilla (.*)", refused.stderr)
    assert step == f"catalog apply {other} --prune tiny --data {up.data}"
    late = up.flotilla(*step.split(), "--if-revision", "7")
    assert (late.returncode, "[revision_changed]" in late.stderr) == (Exit.REFUSED, True)
    assert up.flotilla(*step.split(), "--reason", "renamed").returncode == Exit.YES
    assert up.ask("status")["catalogRevision"] == 2

    assert up.flotilla("explain-placement", "small").returncode == Exit.YES
    unknown = up.flotilla("explain-placement", "smal")
    assert (unknown.returncode, "[no_such_model]" in unknown.stderr) == (Exit.NOT_FOUND, True)
    stranger = tmp_path / "token"
    stranger.write_text("guessed")
    locked_out = up.flotilla("status", "--token-file", str(stranger))
    assert (locked_out.returncode, str(stranger) in locked_out.stderr) == (Exit.UNREACHABLE, True)


def test_up_again_goes_on_where_it_was(up: Up) -> None:  # spec: O7
    up.start()
    up.until_told("Ctrl-C stops everything")
    before = up.ask("status")
    replicas = [row["replica"] for row in up.ask("replicas")["items"]]
    assert up.end(signal.SIGTERM) == Exit.YES

    up.start("--log-level", "info")  # Neither ports nor model: they are remembered.
    up.until_told("Ctrl-C stops everything")
    after = up.ask("status")
    assert (after["log"], after["catalogRevision"]) == (before["log"], before["catalogRevision"])
    assert [row["replica"] for row in up.ask("replicas")["items"]] == replicas
    assert answered(up.router)


def test_a_killed_up_leaves_engines_that_the_next_one_adopts(up: Up) -> None:  # spec: A4, O7
    up.start()
    up.until_told("Ctrl-C stops everything")
    engines = up.engines()
    up.end(signal.SIGKILL)
    blocking_until(lambda: set(up.processes()) <= set(up.engines()), "the programs ended with it")
    assert up.engines().keys() == engines.keys()

    up.start()
    up.until_told("Ctrl-C stops everything")
    assert answered(up.router)
    assert up.engines().keys() == engines.keys()
    assert up.end(signal.SIGINT) == Exit.YES
    assert up.processes() == {}


def test_a_program_that_dies_is_started_again(up: Up) -> None:
    up.start()
    up.until_told("Ctrl-C stops everything")
    identity = json.loads((up.data / "run" / "router.json").read_bytes())
    os.kill(identity["pid"], signal.SIGKILL)
    up.until_told("router ended with -9; starting it again")

    def back() -> bool:
        try:
            return answered(up.router)
        except OSError:
            return False

    blocking_until(back, "the router is back")


def test_a_log_that_was_wiped_is_told_and_nothing_is_started_afresh(up: Up) -> None:
    up.start()
    up.until_told("Ctrl-C stops everything")
    assert up.end(signal.SIGINT) == Exit.YES
    shutil.rmtree(up.data / "nats" / "store")

    up.start()
    up.until_told("damaged: ")
    done = up.flotilla("status")
    assert done.returncode == Exit.NO
    assert done.stdout.startswith("DAMAGED")
    assert "replicas  not known" in done.stdout  # What is not known is not 0.
    for verb in ("nodes", "models", "replicas"):
        listed = up.flotilla(verb)
        assert listed.returncode == Exit.REFUSED
        assert "[damaged]" in listed.stderr
        assert "flotilla journal recover" in listed.stderr
    assert up.end(signal.SIGINT) == Exit.YES
    assert up.processes() == {}


def test_a_second_up_with_the_same_data_says_who_has_it(up: Up) -> None:
    up.start()
    up.until_told("starting")
    second = up.flotilla("up")
    assert second.returncode == Exit.REFUSED
    assert "[already_up]" in second.stderr


def test_a_taken_port_is_named_with_its_flag_and_its_holder(up: Up) -> None:  # spec: O7
    with socket.create_server(("127.0.0.1", up.control)):
        up.start()
        told = up.until_told("[port_taken]")
    assert f"port {up.control} (--control-port) is taken by pid {os.getpid()}" in told
    assert not (up.data / "up.json").exists()
