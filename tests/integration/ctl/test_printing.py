"""What is printed, wherever it comes from: it steers no terminal, fits one, and ends quietly in a pipe."""

import fcntl
import json
import os
import pty
import shlex
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctl.failure import Exit
from ctl.fitting import width
from ctl.main import run
from schemas.api import ROUTES, CardRow, NodeList, NodeRow
from schemas.frames import Refusal
from schemas.history import EventList, EventRow
from services.fleet.unseen import UNSEEN
from tests.support.examples import examples
from tests.support.filling import filled
from tests.support.ports import free_port
from tests.support.scripted_http import Scripted, answering

AT = "2026-11-30T12:00:00.000000Z"
LOOKS = {
    "status": ("status",),
    "nodes": ("nodes",),
    "replicas": ("replicas",),
    "models": ("models",),
    "catalog": ("catalog", "show", "-o", "json"),
    "explain": ("explain-placement", "m"),
    "events": ("events", "--limit", "1"),
    "why": ("why", "node", "n"),
    "catalog-history": ("catalog", "history"),
    "catalog-revision": ("catalog", "show", "r1", "-o", "json"),
    "catalog-diff": ("catalog", "diff", "r1", "r2"),
    "rollback": ("catalog", "rollback", "r1"),
    "brake": ("brake",),
    "brake-off": ("brake", "off"),
    "recovery": ("journal", "recover"),
    "recover": ("journal", "recover", "--from", "log"),
    "bad-documents": ("journal", "mend"),
    "mend": ("journal", "mend", "s"),
}
"""A verb by the route that it asks."""
ITEMS = {"nodes": "node", "replicas": "replica", "models": "model"}
HOSTILE = st.text(st.sampled_from("a \x1b[2J\r\n\t\x00\x07\x7f\x9b\u202e\u2066\u200b\ufeff模❤️👍"))


def answer(name: str, text: str) -> bytes:
    """What the route `name` answers, every text of it the same."""
    kind = next(route.response for route in ROUTES if route.name == name)
    return msgspec.json.encode(filled(kind, text))


def unseen_in(told: str) -> list[str]:
    return [each for each in UNSEEN.findall(told) if each != "\n"]


def test_every_route_is_looked_at_here() -> None:
    assert LOOKS.keys() | {"apply", "state"} == {route.name for route in ROUTES}


@pytest.mark.parametrize("form", ["table", "wide", "name", "json", "jsonl", "yaml"])
@pytest.mark.parametrize("name", LOOKS)
def test_nothing_that_a_server_says_steers_the_terminal(
    name: str, form: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with answering(200) as server:

        @given(HOSTILE)
        @settings(max_examples=examples(8), deadline=None)
        def check(text: str) -> None:
            server.answer = 200, answer(name, text), {}
            words = LOOKS[name] if "-o" in LOOKS[name] else (*LOOKS[name], "-o", form)
            run([*words, "--server", server.url])
            told = capfd.readouterr()
            assert unseen_in(told.out + told.err) == []

        check()


@pytest.mark.parametrize(("noun", "field"), ITEMS.items())
def test_one_item_and_all_of_it_steers_nothing(
    noun: str, field: str, capfd: pytest.CaptureFixture[str]
) -> None:
    name = "a\x1b[2J\u202e\nb"
    with answering(200, answer(noun, name)) as server:
        assert run([noun, "show", name, "--server", server.url]) == Exit.YES
    told = capfd.readouterr()
    assert r"a\x1b[2J\u202e\x0ab" in told.out
    assert unseen_in(told.out + told.err) == []


def test_a_refusal_steers_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with answering(409) as server:

        @given(HOSTILE)
        @settings(max_examples=examples(30), deadline=None)
        def check(text: str) -> None:
            server.answer = 409, msgspec.json.encode(filled(Refusal, text)), {}
            assert run(["catalog", "rollback", "r1", "--server", server.url]) == Exit.REFUSED
            told = capfd.readouterr()
            assert unseen_in(told.out + told.err) == []

        check()


@pytest.mark.parametrize(
    "words",
    [
        ["\x1b[2J"],
        ["nodes", "--\x1b[2J"],
        ["catalog", "show", "\x1b[2J"],
        ["catalog", "validate", "/no/\x1b[2J"],
        ["status", "--server", "http://\x1b[2J"],
        ["status", "--at", "\x1b[2J"],
        ["status", "--token-file", "/proc/self/mem/\x1b[2J"],
        ["join", "entry", "\x1b[2J"],
        ["healthcheck", "\x1b[2J"],
        ["config", "show", "--config", "/no/\x1b[2J"],
        ["up", "--model", "/no/\x1b[2J"],
    ],
)
def test_what_was_typed_steers_nothing_when_it_is_told_back(
    words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(words) in set(Exit) - {Exit.YES}
    told = capfd.readouterr()
    assert r"\x1b" in told.err or "control character" in told.err
    assert unseen_in(told.out + told.err) == []


def test_what_is_escaped_as_data_means_the_same(capfd: pytest.CaptureFixture[str]) -> None:
    text = "a\x9b\u202e\U000e0101模"
    body = answer("nodes", text)
    with answering(200, body) as server:
        for form, decode in (("json", json.loads), ("yaml", msgspec.yaml.decode)):
            run(["nodes", "-o", form, "--server", server.url])
            assert decode(capfd.readouterr().out) == json.loads(body)


FLOTILLA = (sys.executable, "-m", "ctl.main")
LINES = 500


@pytest.fixture
def server() -> Iterator[Scripted]:
    """Answers with more events than a pipe holds."""
    one = filled(EventRow, "x" * 300) | {"at": AT}
    frame = filled(EventList, AT) | {"items": [one] * LINES, "nextSeq": 9, "endSeq": 8}
    with answering(200, msgspec.json.encode(frame)) as found:
        yield found


@pytest.fixture
def unread() -> Iterator[int]:
    """A pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


@pytest.mark.parametrize(
    "command",
    [
        (*FLOTILLA, "--help"),
        (*FLOTILLA, "version"),
        (*FLOTILLA, "events"),
        (*FLOTILLA, "events", "-o", "json"),
        (*FLOTILLA, "config", "show"),
        (*FLOTILLA, "control", "--help"),
        (*FLOTILLA, "journal", "verify", "--help"),
        (sys.executable, "-m", "services.journal", "--help"),
    ],
)
def test_who_reads_no_more_is_told_nothing_and_no_answer_counts_as_given(
    command: tuple[str, ...], server: Scripted, unread: int
) -> None:
    told = {**os.environ, "FLOTILLA_OPERATOR_SERVER": server.url}
    done = subprocess.run(command, stdout=unread, stderr=subprocess.PIPE, env=told, check=False)
    assert (done.returncode, done.stderr) == (Exit.UNREAD, b"")


def test_a_reader_that_has_enough_ends_the_verb(server: Scripted) -> None:
    command = (*FLOTILLA, "events", "--server", server.url)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as verb:
        assert verb.stdout is not None
        assert verb.stderr is not None
        assert verb.stdout.readline().split()[0] == b"SEQ"
        verb.stdout.close()
        assert (verb.stderr.read(), verb.wait()) == (b"", Exit.UNREAD)


def test_errors_that_nobody_reads_keep_their_exit_code(unread: int) -> None:
    command = (*FLOTILLA, "status", "--server", f"http://127.0.0.1:{free_port()}")
    assert subprocess.run(command, stderr=unread, check=False).returncode == Exit.UNREACHABLE


def test_a_full_disk_is_told_of() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            (*FLOTILLA, "version"), stdout=full, stderr=subprocess.PIPE, check=False, text=True
        )
    assert done.returncode == Exit.USAGE
    assert done.stderr.startswith("error: cannot write the result: ")
    assert len(done.stderr.splitlines()) == 1


def test_what_has_no_output_at_all_does_its_work() -> None:
    command = f"{shlex.join((*FLOTILLA, 'version'))} >&- 2>&-"
    assert subprocess.run(["bash", "-c", command], check=False).returncode == Exit.YES


def test_what_an_encoding_lacks_is_escaped() -> None:
    with answering(200, answer("nodes", "模")) as server:
        done = subprocess.run(
            (*FLOTILLA, "nodes", "--server", server.url),
            capture_output=True,
            env={**os.environ, "PYTHONIOENCODING": "ascii"},
            check=False,
        )
    assert b"\\u6a21" in done.stdout


def test_a_table_fits_a_terminal_and_is_whole_in_a_pipe(tmp_path: Path) -> None:
    long = "gpu-" + "n" * 40
    card = filled(CardRow, "GPU-a") | {"health": "unhealthy", "reason": "no memory " * 20}
    row = filled(NodeRow, "7") | {"node": long, "cards": [card]}
    with answering(200, msgspec.json.encode(filled(NodeList, "") | {"items": [row]})) as server:
        command = (*FLOTILLA, "nodes", "--server", server.url)
        piped = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        drawn = on_a_terminal(command, columns=110)
        wide = on_a_terminal((*command, "-o", "wide"), columns=110)
    assert ("no memory " * 20).strip() in piped
    assert ("no memory " * 20).strip() in "".join(wide)
    assert max(map(width, drawn)) == 110
    assert drawn[1].startswith(long)
    assert drawn[1].endswith("…")


def on_a_terminal(command: Sequence[str], columns: int) -> list[str]:
    """What a terminal of that width is told."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    told = {name: text for name, text in os.environ.items() if name != "COLUMNS"}
    with subprocess.Popen(command, stdout=its, env=told) as verb:
        os.close(its)
        drawn = b""
        with suppress(OSError):  # Its end, on Linux.
            while part := os.read(ours, 1 << 16):
                drawn += part
        os.close(ours)
        assert verb.wait() == Exit.YES
    return drawn.decode().splitlines()


def test_a_long_wait_is_told_on_a_terminal_and_wiped_away() -> None:
    with answering(200, answer("nodes", "a")) as server:
        server.answers.clear()
        ours, its = pty.openpty()
        command = (*FLOTILLA, "nodes", "--server", server.url)
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=its) as verb:
            os.close(its)
            told = b""
            while b"waiting for" not in told:
                told += os.read(ours, 1 << 10)
            server.answers.set()
            with suppress(OSError):
                while part := os.read(ours, 1 << 10):
                    told += part
            assert verb.wait() == Exit.YES
        os.close(ours)
    assert f"waiting for {server.url} to answer nodes".encode() in told
    assert told.endswith(b"\r\x1b[K")
