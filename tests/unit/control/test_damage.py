import threading
from pathlib import Path

import pytest
from msgspec import Raw
from msgspec.structs import replace

from schemas import subjects
from schemas.documents import CatalogRevision
from schemas.ids import EventId, LogId, NodeId
from services.control.commanding.commands import Actor
from services.control.damage import Reported, SeenFile, doubted, judge
from services.control.recovery.handover import Base
from services.control.recovery.job import Job, JobFile
from services.fleet.damage import Found, Seen
from services.fleet.state import FleetState
from services.runtime.files import write_atomically
from tests.builders import LOG_ID, Script, a_genesis, an_event

OTHER = LogId("f" * 32)
HERE = Found(a_genesis(), 50)


def test_a_first_log_is_accepted() -> None:
    assert judge(HERE, Script().state, 1) is None
    assert judge(Found(None, 0), FleetState(), 0) is None


def test_the_known_log_is_accepted_also_when_its_genesis_has_aged_away() -> None:
    assert judge(replace(HERE, seen=Seen(LOG_ID, 50)), Script().state, 50) is None
    assert judge(replace(Found(None, 50), seen=Seen(LOG_ID, 50)), Script().state, 50) is None


def test_a_log_that_is_gone_is_damage_only_to_who_knew_one() -> None:
    gone = Found(None, 0, "stream FLOTILLA_LOG does not exist")
    reason = judge(replace(gone, seen=Seen(LOG_ID, 50)), FleetState(), 0)
    assert reason is not None
    assert LOG_ID in reason
    assert judge(gone, FleetState(), 0) is None
    assert judge(gone, Script().state, 1) is not None


def test_a_log_that_is_shorter_than_what_was_seen_is_damage() -> None:
    assert judge(replace(HERE, seen=Seen(LOG_ID, 51)), Script().state, 50) is not None
    assert judge(HERE, Script().state, 51) is not None


def test_another_log_is_damage_unless_it_names_the_known_one_as_its_parent() -> None:
    found = Found(a_genesis(OTHER), 50)
    state = Script().state
    other = FleetState()
    other.apply(1, subjects.GENESIS, an_event(a_genesis(OTHER), log=OTHER))
    assert judge(found, state, 1) is not None
    assert judge(replace(found, seen=Seen(LOG_ID, 1)), other, 1) is not None
    recovered = FleetState()
    recovered.apply(1, subjects.GENESIS, an_event(a_genesis(OTHER, LOG_ID), log=OTHER))
    assert (
        judge(replace(Found(a_genesis(OTHER, LOG_ID), 50), seen=Seen(LOG_ID, 99)), recovered, 1)
        is None
    )


def test_what_others_have_seen_of_the_log_counts_too() -> None:
    state = Script().state
    assert judge(HERE, state, 1, [Reported("agent a", LOG_ID, 50)]) is None
    assert judge(HERE, state, 1, [Reported("agent a", None, 0)]) is None
    beyond = judge(HERE, state, 1, [Reported("agent a", LOG_ID, 51)])
    assert beyond is not None
    assert "agent a" in beyond
    assert judge(HERE, state, 1, [Reported("router r", OTHER, 1)]) is not None
    assert judge(Found(None, 0), FleetState(), 0, [Reported("agent a", OTHER, 1)]) is not None


KNOWN = replace(HERE, seen=Seen(LOG_ID, 48, proven=True))
HONEST = [Reported("agent a", LOG_ID, 50), Reported("router r", LOG_ID, 12)]
FOREIGN = Reported("agent x", OTHER, 1)
BEYOND = Reported("agent x", LOG_ID, 99_999_999)


@pytest.mark.parametrize("lie", [FOREIGN, BEYOND])
def test_one_that_contradicts_what_this_control_knows_is_the_one_in_trouble(lie: Reported) -> None:
    state, reports = Script().state, [*HONEST, lie]
    assert judge(KNOWN, state, 1, reports) is None
    (claim,) = doubted(KNOWN, state, 1, reports)
    assert (claim.who, claim.log) == (lie.who, lie.log)
    assert "agent x" in claim.line
    assert doubted(KNOWN, state, 1, HONEST) == ()


def test_who_was_doubted_stays_so_once_the_log_itself_is_damaged() -> None:
    state, reports = Script().state, [*HONEST, FOREIGN]
    before = doubted(KNOWN, state, 1, reports)
    gone = Found(None, 0, "stream FLOTILLA_LOG does not exist", seen=KNOWN.seen)
    assert doubted(gone, state, 1, reports, before) == before != ()
    believed = [*reports, replace(FOREIGN, who="agent z")]
    assert doubted(KNOWN, state, 1, believed, before) == ()


@pytest.mark.parametrize("lie", [FOREIGN, BEYOND])
@pytest.mark.parametrize(
    "seen", [None, Seen(LOG_ID, 48), Seen(LOG_ID, 51, proven=True), Seen(OTHER, 1, proven=True)]
)
def test_who_does_not_know_better_believes_one(lie: Reported, seen: Seen | None) -> None:
    found = replace(HERE, seen=seen)
    assert judge(found, Script().state, 1, [*HONEST, lie]) is not None


@pytest.mark.parametrize("lie", [FOREIGN, BEYOND])
def test_what_two_say_is_damage(lie: Reported) -> None:
    second = replace(lie, who="router s")
    many = [replace(HONEST[0], who=f"agent {n}") for n in range(9)]
    assert judge(KNOWN, Script().state, 1, [*many, lie, second]) is not None


def test_two_that_say_different_things_prove_nothing() -> None:
    third = Reported("router s", LogId("e" * 32), 1)
    many = [*HONEST, Reported("agent b", LOG_ID, 3), Reported("agent c", None, 0)]
    assert judge(KNOWN, Script().state, 1, [*many, FOREIGN, third]) is None


def test_what_most_contradict_is_damage() -> None:
    third = Reported("router s", LogId("e" * 32), 1)
    assert judge(KNOWN, Script().state, 1, [HONEST[0], FOREIGN, third]) is not None
    assert judge(KNOWN, Script().state, 1, [BEYOND, Reported("agent c", None, 0)]) is not None


def test_a_follower_of_the_parent_is_on_its_way() -> None:
    state = FleetState()
    state.apply(1, subjects.GENESIS, an_event(a_genesis(OTHER, LOG_ID), log=OTHER))
    found = Found(a_genesis(OTHER, LOG_ID), 50)
    assert judge(found, state, 1, [Reported("agent a", LOG_ID, 999)]) is None


def test_an_unreadable_genesis_is_damage() -> None:
    state = FleetState()
    state.apply(1, subjects.GENESIS, b"?")
    assert judge(Found(None, 1), state, 1) is not None
    unreadable = judge(Found(None, 1, unreadable="v2"), FleetState(), 0)
    assert unreadable is not None
    assert "v2" in unreadable


async def test_a_mark_of_damage_waits_for_the_disk_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    write = write_atomically

    def written(path: Path, content: bytes) -> None:
        threads.append(threading.current_thread())
        write(path, content)

    monkeypatch.setattr("services.control.damage.write_atomically", written)
    seen = SeenFile(tmp_path / "seen.json")
    await seen.mark("2026-11-30T12:00:00Z")
    assert SeenFile(tmp_path / "seen.json").damaged_since == "2026-11-30T12:00:00Z"
    assert threading.main_thread() not in threads
    await seen.mark("")
    assert SeenFile(tmp_path / "seen.json").damaged_since == ""


async def test_the_nodes_of_the_log_are_remembered_and_garbage_names_none(tmp_path: Path) -> None:
    nodes = frozenset({NodeId("node-1"), NodeId("node-2")})
    await SeenFile(tmp_path / "seen.json").remember_nodes(nodes)
    assert SeenFile(tmp_path / "seen.json").nodes == nodes
    (tmp_path / "nodes.json").write_bytes(b'["node-1"')
    assert SeenFile(tmp_path / "seen.json").nodes == frozenset()


async def test_a_recovery_that_the_disk_does_not_forget_is_over_all_the_same(
    tmp_path: Path,
) -> None:
    path = tmp_path / "recovery.json"
    file = JobFile(path)
    await file.keep(
        Job(
            log=LOG_ID,
            told="agents",
            actor=Actor("tests", "", EventId("command-1")),
            reason="",
            revision=CatalogRevision(revision=1, hash="", source=Raw(b"{}")),
            base=Base((), (), ()),
        )
    )
    path.unlink()
    path.mkdir()  # Which cannot be unlinked.
    await file.forget()
    assert file.job is None
