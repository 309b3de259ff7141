"""`flotilla brake`: what it prints, what it sends, and its exit codes."""

import msgspec
import pytest

from ctl.failure import Exit
from ctl.main import run
from schemas import codec
from schemas.brake import BrakeRow, BrakeView, ReleaseBrake
from schemas.frames import Accepted, Frame, Refusal
from schemas.ids import EventId
from tests.support.scripted_http import answering

SINCE = "2026-11-30T12:00:00.000000Z"
ROW = BrakeRow(since=SINCE, silent=6, nodes=10, still_silent=5, replicas_held=8)


def told(
    capfd: pytest.CaptureFixture[str], frame: Frame, *words: str, status: int = 200
) -> tuple[int, str]:
    """Exit code and all that was printed."""
    with answering(status, codec.encode(frame)) as server:
        code = run(["brake", *words, "--server", server.url])
    said = capfd.readouterr()
    return code, said.out + said.err


# spec: R4
def test_shows_count_since_and_what_is_held_back(capfd: pytest.CaptureFixture[str]) -> None:
    code, text = told(capfd, BrakeView(as_of_seq=7, engaged=True, brake=ROW))
    lines = text.splitlines()
    assert code == Exit.YES
    assert lines[0] == f"on since {SINCE}: 6 of 10 nodes fell silent at once"
    assert lines[2].strip() == "held back     8 replicas: neither given up nor rebuilt"
    assert lines[3].strip() == "ends          once less than a quarter has been silent for 60 s"
    assert "flotilla brake off" in lines[-1]
    calm = msgspec.structs.replace(ROW, calm_since=SINCE)
    _, text = told(capfd, BrakeView(as_of_seq=7, engaged=True, brake=calm), "show")
    assert f"60 s after {SINCE}" in text


def test_says_that_it_is_off_and_how_it_ended(capfd: pytest.CaptureFixture[str]) -> None:
    assert told(capfd, BrakeView(as_of_seq=7, engaged=False)) == (Exit.YES, "off\n")
    ended = BrakeView(as_of_seq=7, engaged=False, released_at=SINCE, released_by="command-1")
    assert told(capfd, ended)[1] == f"off; released at {SINCE} by command command-1\n"


# spec: R4
def test_off_sends_the_reason_and_names_its_command(capfd: pytest.CaptureFixture[str]) -> None:
    accepted = Accepted(as_of_seq=7, command=EventId("command-1"))
    with answering(200, codec.encode(accepted)) as server:
        code = run(["brake", "off", "--reason", "half is on purpose", "--server", server.url])
    assert (code, "command command-1" in capfd.readouterr().out) == (Exit.YES, True)
    ((method, path, _, body),) = server.asked
    assert (method, path) == ("POST", "/api/v1/brake")
    assert codec.decode(body, ReleaseBrake).reason == "half is on purpose"


def test_off_is_refused_with_the_reason(capfd: pytest.CaptureFixture[str]) -> None:
    no = Refusal(as_of_seq=7, code="brake_is_off", message="the brake is not on")
    code, text = told(capfd, no, "off", status=409)
    assert (code, "error: the brake is not on [brake_is_off]" in text) == (Exit.REFUSED, True)
