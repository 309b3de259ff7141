"""`flotilla journal recover` and `mend`: what they print, what they send, and their exit codes."""

from pathlib import Path

import msgspec
import pytest

from ctl.failure import Exit
from ctl.main import run
from schemas import codec
from schemas.frames import Accepted, Frame, Refusal
from schemas.ids import EventId, LogId, ModelName, NodeId
from schemas.recovery import (
    BadDocument,
    BadDocuments,
    Damage,
    Mend,
    Moving,
    Recover,
    Recovery,
    WayOut,
)
from tests.support.scripted_http import Scripted, answering

SINCE = "2026-11-30T12:00:00.000000Z"
DONE = Accepted(as_of_seq=9, command=EventId("c-1"))


def told(
    capfd: pytest.CaptureFixture[str], frame: Frame, *words: str, status: int = 200
) -> tuple[int, str, Scripted]:
    """Exit code, all that was printed, and the server that was asked."""
    with answering(status, codec.encode(frame)) as server:
        code = run(["journal", *words, "--server", server.url])
    said = capfd.readouterr()
    return code, said.out + said.err, server


def test_what_is_known_and_every_way_out_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    frame = Recovery(
        as_of_seq=7,
        damage=Damage(reason="stream FLOTILLA_LOG does not exist", since=SINCE),
        running={"tiny": 2},
        ways=(
            WayOut(
                way="memory",
                log="0123",
                sequence=1200,
                revision=3,
                models=1,
                replicas=2,
                nodes=2,
                command="flotilla journal recover --from memory",
            ),
            WayOut(way="log", impossible="nothing of a log stands in NATS"),
            WayOut(way="agents", away=(NodeId("n-3"), NodeId("n-4")), unsure="others may be away"),
        ),
    )
    code, text, _ = told(capfd, frame, "recover")
    lines = [line.strip() for line in text.splitlines()]
    assert code == Exit.NO
    assert lines[:4] == [
        f"damaged since {SINCE}: stream FLOTILLA_LOG does not exist",
        "running   2 of tiny",
        "memory    log 0123 to sequence 1,200, catalog r3, 2 replicas, 2 nodes",
        lines[3],
    ]
    assert "flotilla journal recover --from memory" in lines[3]
    assert lines[4] == "log       impossible: nothing of a log stands in NATS"
    assert lines[6:8] == [
        "away: n-3, n-4 (to go on without one: --without NODE)",
        "others may be away",
    ]


def test_a_recovery_under_way_says_what_it_waits_for(capfd: pytest.CaptureFixture[str]) -> None:
    moving = Moving(
        log=LogId("new"), parent="old", told="memory: log old to 7", waits_for=("node-1: away",)
    )
    code, text, _ = told(capfd, Recovery(as_of_seq=7, moving=moving, running={}), "recover")
    assert code == Exit.NO
    assert text.splitlines() == [
        "recovering: log new goes on from old, made from memory: log old to 7",
        "  waits for node-1: away",
    ]
    sound = Recovery(as_of_seq=7, running={})
    code, text, _ = told(capfd, sound, "recover")
    assert (code, text) == (Exit.YES, "the log is sound: there is nothing to recover\n")


def test_a_way_is_sent_with_its_catalog_and_what_may_end(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text("models: {}\n")
    way = ("--from", "agents", "--catalog", str(file), "--prune", "tiny")
    without = ("--without", "n-3", "--without", "n-4")
    code, text, server = told(capfd, DONE, "recover", *way, *without, "-m", "fire")
    assert code == Exit.YES
    assert "flotilla status" in text
    ((_, _, _, body),) = server.asked
    assert codec.decode(body, Recover) == Recover(
        way="agents",
        catalog="models: {}\n",
        file=str(file),
        prune=(ModelName("tiny"),),
        without=(NodeId("n-3"), NodeId("n-4")),
        reason="fire",
    )


def test_a_refusal_says_what_to_type(capfd: pytest.CaptureFixture[str]) -> None:
    refusal = Refusal(
        as_of_seq=1,
        code="would_stop",
        message="engines would be stopped",
        next="flotilla journal recover --from log --prune tiny",
    )
    code, text, _ = told(capfd, refusal, "recover", "--from", "log", status=409)
    assert code == Exit.REFUSED
    assert "flotilla journal recover --from log --prune tiny" in text.splitlines()[-1]


def test_bad_documents_are_listed_with_what_mends_them(capfd: pytest.CaptureFixture[str]) -> None:
    bad = BadDocument(
        subject="flotilla.log.s.catalog",
        sequence=9,
        reason="not JSON",
        writer="control",
        last_good=4,
        command="flotilla journal mend flotilla.log.s.catalog",
    )
    of_agent = msgspec.structs.replace(
        bad,
        subject="flotilla.log.s.node.n.info",
        writer="agent n",
        command="",
        waits="agent n puts it right",
        last_good=0,
    )
    code, text, _ = told(capfd, BadDocuments(as_of_seq=9, items=(bad, of_agent)), "mend")
    lines = text.splitlines()
    assert code == Exit.NO
    assert lines[1].split() == ["flotilla.log.s.catalog", "9", "control", "4", "not", "JSON"]
    assert "nothing" in lines[2]
    assert lines[3:] == [
        "next: flotilla journal mend flotilla.log.s.catalog",
        "flotilla.log.s.node.n.info: agent n puts it right",
    ]
    code, text, _ = told(capfd, BadDocuments(as_of_seq=9, items=()), "mend")
    assert (code, text) == (Exit.YES, "every document can be read\n")


@pytest.mark.parametrize(("words", "to"), [((), "last-good"), (("--gone",), "gone")])
def test_a_document_is_mended_by_name(
    capfd: pytest.CaptureFixture[str], words: tuple[str, ...], to: str
) -> None:
    code, text, server = told(capfd, DONE, "mend", "flotilla.log.s.catalog", *words)
    assert code == Exit.YES
    assert "is mended" in text
    ((_, _, _, body),) = server.asked
    sent = codec.decode(body, Mend)
    assert (sent.subject, sent.to) == ("flotilla.log.s.catalog", to)
